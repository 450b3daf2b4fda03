"""Pushes metrics of an Envoy and its applications to the collectors that Envoy's own configuration names."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from cp.agent.admin import EnvoyAdmin
from cp.agent.say import Say
from cp.client.http import NO_ANSWER, OK, HttpRequest, NotConnected, whole_answer
from cp.client.problem import missing_library
from cp.model.names import dataplane_key
from cp.model.pushing import CLUSTER, FIELD, METADATA, MetricCollector, PushedApplication, PushOrders, read

_TICK: Final = 1.0
_LOOK_EVERY: Final = 5.0
_PATIENCE: Final = 5.0
_ORDERS: Final = f"/config_dump?resource=dynamic_active_clusters&name_regex=%5E{CLUSTER}%24"
_OF_ENVOY: Final = "envoy"


@contextmanager
def pushed_metrics(admin: EnvoyAdmin, bootstrap: str, say: Say) -> Iterator[None]:
    """While this lasts: read the push orders from Envoy's configuration, and push."""
    ended = threading.Event()
    pusher = MetricsPusher(admin, _resource(bootstrap), say)
    threading.Thread(target=_push, args=(pusher, ended, say), name="metrics", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _push(pusher: MetricsPusher, ended: threading.Event, say: Say) -> None:
    while not ended.wait(_TICK):
        try:
            pusher.turn(time.monotonic())
        except ModuleNotFoundError as error:
            problem = missing_library(error, "metrics")
            say(f"metrics are not sent: {problem.message}. {problem.hint}")
            return
        except Exception as error:  # noqa: BLE001  # a fault here must not end the proxy
            say(f"metrics were not sent: {type(error).__name__}: {error}")


def _resource(bootstrap: str) -> Mapping[str, str]:
    """The attributes of the proxy as an OpenTelemetry resource."""
    node = json.loads(bootstrap)["node"]
    dataplane = dataplane_key(node["id"])
    return {
        "service.name": node.get("cluster", ""),
        "service.instance.id": node["id"],
        "kuma.mesh": dataplane.mesh,
        "kuma.dataplane": dataplane.name,
    }


class MetricsPusher:
    """Pushes metrics when they are due, and reports collectors that cannot be reached."""

    def __init__(self, admin: EnvoyAdmin, resource: Mapping[str, str], say: Say) -> None:
        self._admin, self._resource, self._say = admin, resource, say
        self._begun = time.time_ns()
        self._looked, self._orders = -_LOOK_EVERY, PushOrders()
        self._sent: dict[MetricCollector, float] = {}
        self._away: set[MetricCollector] = set()

    def turn(self, now: float) -> None:
        """Push to every collector whose interval has passed."""
        if now - self._looked >= _LOOK_EVERY:
            self._looked, self._orders = now, self._current_orders()
        orders = self._orders
        due_collectors = [
            collector
            for collector in orders.collectors
            if now - self._sent.get(collector, -collector.seconds) >= collector.seconds
        ]
        if due_collectors:
            self._send(orders, due_collectors)
        self._sent = {
            collector: now if collector in due_collectors else self._sent[collector] for collector in orders.collectors
        }

    def _current_orders(self) -> PushOrders:
        """The orders in Envoy's configuration; the last known ones while Envoy does not answer."""
        answer = self._admin.get(_ORDERS)
        if answer is None:
            return self._orders
        metadata = (entry["cluster"].get("metadata", {}) for entry in json.loads(answer).get("configs") or ())
        texts = (
            cluster_metadata.get("filter_metadata", {}).get(METADATA, {}).get(FIELD, "")
            for cluster_metadata in metadata
        )
        return next((orders for text in texts if (orders := read(text)) is not None), PushOrders())

    def _send(self, orders: PushOrders, due_collectors: list[MetricCollector]) -> None:
        from cp.agent import otlp  # noqa: PLC0415  # large, and most proxies push nothing

        envoy_metrics = [family for family in otlp.families(self._envoy_page(orders)) if orders.are_about(family.name)]
        application_metrics = [
            (application.name or application.authority, otlp.families(_application_page(application)))
            for application in orders.applications
        ]
        scopes = [(_OF_ENVOY, envoy_metrics), *application_metrics]
        request = otlp.request(self._resource, scopes, otlp.CounterSpan(self._begun, time.time_ns()))
        for collector in due_collectors:
            self._report(collector, otlp.send(collector, request))

    def _envoy_page(self, orders: PushOrders) -> bytes:
        """The Prometheus page of Envoy; empty if it does not answer."""
        return self._admin.get(f"/stats/prometheus{'' if orders.unused else '?usedonly'}", _PATIENCE) or b""

    def _report(self, collector: MetricCollector, fault: str) -> None:
        """Report once that a collector cannot be reached, and once that it can be again."""
        if fault and collector not in self._away:
            self._away.add(collector)
            self._say(f"metrics for {collector.authority}: {fault}")
        elif not fault and collector in self._away:
            self._away.discard(collector)
            self._say(f"metrics for {collector.authority}: sent again")


def _application_page(application: PushedApplication) -> bytes:
    """The Prometheus page of an application; empty if it does not answer."""
    try:
        answer = whole_answer(HttpRequest("GET", f"http://{application.authority}{application.path}", _PATIENCE))
    except (NotConnected, *NO_ANSWER):
        return b""
    return answer.content if answer.status_code == OK else b""

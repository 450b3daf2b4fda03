"""Metrics of an Envoy and of the applications beside it, pushed to collectors as its own configuration says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import httpx

from cp.agent.admin import EnvoyAdmin
from cp.model.names import dataplane_key
from cp.model.pushing import CLUSTER, FIELD, METADATA, MetricCollector, PushedApplication, PushOrders, read

Say = Callable[[str], None]

_TICK: Final = 1.0
_LOOK_EVERY: Final = 5.0
_PATIENCE: Final = 5.0
_ORDERS: Final = f"/config_dump?resource=dynamic_active_clusters&name_regex=%5E{CLUSTER}%24"
_OF_ENVOY: Final = "envoy"


@contextmanager
def pushed_metrics(admin: EnvoyAdmin, bootstrap: str, say: Say) -> Iterator[None]:
    """While this lasts: look for orders in Envoy's configuration, and carry them out."""
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
        except Exception as error:  # noqa: BLE001  # a fault of ours costs metrics, and not the proxy
            say(f"metrics were not sent: {type(error).__name__}: {error}")


def _resource(bootstrap: str) -> Mapping[str, str]:
    """Who it is that tells, in OpenTelemetry's words."""
    node = json.loads(bootstrap)["node"]
    dataplane = dataplane_key(node["id"])
    return {
        "service.name": node.get("cluster", ""),
        "service.instance.id": node["id"],
        "kuma.mesh": dataplane.mesh,
        "kuma.dataplane": dataplane.name,
    }


class MetricsPusher:
    """Knows when it sent what, and to whom it could not."""

    def __init__(self, admin: EnvoyAdmin, resource: Mapping[str, str], say: Say) -> None:
        self._admin, self._resource, self._say = admin, resource, say
        self._begun = time.time_ns()
        self._looked, self._orders = -_LOOK_EVERY, PushOrders()
        self._sent: dict[MetricCollector, float] = {}
        self._away: set[MetricCollector] = set()

    def turn(self, now: float) -> None:
        """Send what is due."""
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
        """What stands in the configuration; what stood there, while Envoy does not answer."""
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
        from cp.agent import otlp  # noqa: PLC0415  # it imports much that only those need who push

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
        """An Envoy that does not answer has nothing to tell, and is asked again next time."""
        return self._admin.get(f"/stats/prometheus{'' if orders.unused else '?usedonly'}", _PATIENCE) or b""

    def _report(self, collector: MetricCollector, fault: str) -> None:
        """Once when a collector cannot be reached, and once when it can again."""
        if fault and collector not in self._away:
            self._away.add(collector)
            self._say(f"metrics for {collector.authority}: {fault}")
        elif not fault and collector in self._away:
            self._away.discard(collector)
            self._say(f"metrics for {collector.authority}: sent again")


def _application_page(application: PushedApplication) -> bytes:
    """An application that does not answer has nothing to tell."""
    try:
        answer = httpx.get(f"http://{application.authority}{application.path}", timeout=_PATIENCE)
    except (httpx.HTTPError, httpx.InvalidURL):
        return b""
    return answer.content if answer.status_code == httpx.codes.OK else b""

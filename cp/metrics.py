"""`Metrics`: the metrics of the control plane itself, for Prometheus.

Events are counted when they happen. Numbers that can be read at any time (how many streams there are, how many
fragments were built) are read when Prometheus collects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from platform import python_version
from time import monotonic
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from cp.version import VERSION

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

Values = float | Mapping[str, float] | Mapping[tuple[str, ...], float]
"""One number, or one for each value of a label, or for each set of values of several labels."""


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._messages = self._counter("ads_messages_sent", "Responses sent to proxies", "stream", "type")
        self._resources = self._counter("ads_resources_sent", "Resources in these responses", "stream", "type")
        self._bytes = self._counter("ads_bytes_sent", "Bytes of these responses", "stream", "type")
        self._of_traffic: dict[tuple[str, str], tuple[Counter, Counter, Counter]] = {}
        self.acks = self._counter("ads_acks", "Responses that a proxy took", "type")
        self.nacks = self._counter("ads_nacks", "Responses that a proxy refused", "type")
        self.opened = self._counter("ads_streams_opened", "Streams that proxies opened", "stream")
        self.refused = self._counter("ads_streams_refused", "Streams that were turned away", "reason")
        self.change_to_ack = self._histogram(
            "change_to_ack_seconds", "From a change in the store to a proxy's word that all of it is in force"
        )
        self.turn = self._histogram("turn_seconds", "What it took to work out what changes come to, of one turn")
        self.lag = self._histogram("event_loop_lag_seconds", "How much later than planned the event loop woke up")
        self.own_lag = self._histogram(
            "event_loop_own_lag_seconds", "How much of that the loop's own callbacks took, by their processor time"
        )
        self.certificates = self._counter("certificates_issued", "Certificates issued to proxies")
        self.certificate_failures = self._counter(
            "certificates_failed", "Attempts to issue a certificate that failed: the proxy keeps what it has"
        )
        self.self_checks = self._counter("self_checks", "Snapshots compared with a full computation", "outcome")
        self.api_requests = self._counter("api_requests", "Requests over HTTP", "method", "route", "status")
        self.api_seconds = self._histogram(
            "api_request_seconds", "From a request to the beginning of its answer", "method", "route"
        )
        self.api_limited = self._counter("api_limited", "Requests that were too many of their sort", "limit")
        self.store_seconds = self._histogram("store_seconds", "How long the store takes", "operation")
        self.store_errors = self._counter("store_errors", "What the store failed to do", "operation", "error")
        self.spans = self._counter("spans", "Spans of traces", "outcome")
        self._tell_build()

    def register(self, name: str, text: str, read: Callable[[], Values], *labels: str, grows: bool = False) -> None:
        """Add a metric that is read when Prometheus collects. `grows`: it is a counter, and otherwise a gauge."""
        self.registry.register(_ReadOnCollection(f"koguma_{name}", text, read, labels, grows=grows))

    def sent(self, stream: str, type_name: str, resources: int, size: int) -> None:
        """Count a response. Called for each one, so the counters of its labels are looked up once."""
        key = (stream, type_name)
        if key not in self._of_traffic:
            counters = (self._messages, self._resources, self._bytes)
            self._of_traffic[key] = tuple(counter.labels(*key) for counter in counters)  # type: ignore[assignment]
        messages, of_resources, of_bytes = self._of_traffic[key]
        messages.inc()
        of_resources.inc(resources)
        of_bytes.inc(size)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)

    def in_force_after(self, began: float) -> None:
        """Note that a proxy has confirmed everything that follows from a change at that moment (`monotonic`)."""
        self.change_to_ack.observe(monotonic() - began)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"koguma_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"koguma_{name}", text, labels, registry=self.registry, buckets=_SECONDS)

    def _tell_build(self) -> None:
        text = "Which version this is, and of which Python; always 1"
        build = Gauge("koguma_build_info", text, ("version", "python"), registry=self.registry)
        build.labels(VERSION, python_version()).set(1)


class _ReadOnCollection(Collector):
    def __init__(
        self, name: str, text: str, read: Callable[[], Values], labels: tuple[str, ...], *, grows: bool
    ) -> None:
        self._read = read
        self._family = CounterMetricFamily if grows else GaugeMetricFamily
        self._name_and_text = (name, text)
        self._labels = labels

    def describe(self) -> Iterable[Metric]:
        yield self._family(*self._name_and_text, labels=self._labels)

    def collect(self) -> Iterable[Metric]:
        family = self._family(*self._name_and_text, labels=self._labels)
        values = self._read()
        for labels, value in values.items() if isinstance(values, Mapping) else (((), values),):
            family.add_metric([labels] if isinstance(labels, str) else list(labels), value)
        yield family


def combined_text(texts: Mapping[str, bytes]) -> bytes:
    """The metrics of several processes as one text, with the name of the process in the label `worker`."""
    registry = CollectorRegistry()
    registry.register(_TextCollector(texts))
    return generate_latest(registry)


class _TextCollector(Collector):
    def __init__(self, texts: Mapping[str, bytes]) -> None:
        self._texts = texts

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for worker, text in self._texts.items():
            for family in text_string_to_metric_families(text.decode()):
                combined = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                combined.samples += (
                    sample._replace(labels={**sample.labels, "worker": worker}) for sample in family.samples
                )
        return families.values()

"""`SpanExporter`: sends spans from a thread, so that nobody who has some waits for a collector.

Only the end of the process does, for two seconds at the most.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import structlog

from cp.metrics import Metrics
from cp.tracing import otlp
from cp.tracing.collector import TraceCollector
from cp.tracing.spans import Attribute, Span

MOST_WAITING: Final = 2000
"""Spans that wait to be sent. While a collector does not answer in time, newer ones are dropped, and counted."""

_AT_ONCE: Final = 500
_AT_THE_END: Final = 2.0
"""Seconds for what is left when the process ends."""


class SpanSink(Protocol):
    def take(self, spans: Sequence[Span]) -> None:
        """Have spans sent later: all of them or, where too many wait already, none. It does not wait."""
        ...


class SpanExporter:
    """Sends spans to one collector, from a thread of its own. Those that it does not take are not sent again."""

    def __init__(self, collector: TraceCollector, resource: Mapping[str, Attribute], metrics: Metrics) -> None:
        self._collector, self._resource, self._counts = collector, resource, metrics.spans
        self._waiting: deque[Span] = deque()
        self._has_news = threading.Event()
        self._is_ending = self._is_dropping = False
        self._fault = ""
        self._is_away = False
        self._log = structlog.get_logger()

    def take(self, spans: Sequence[Span]) -> None:
        self._is_dropping = self._is_dropping and bool(self._waiting)
        if len(self._waiting) + len(spans) > MOST_WAITING:
            self._drop(len(spans))
            return
        self._waiting.extend(spans)
        self._has_news.set()

    def _drop(self, count: int) -> None:
        """Count, and tell it once until all that waits was sent."""
        self._counts.labels("dropped").inc(count)
        if not self._is_dropping:
            self._is_dropping = True
            self._log.warning("traces.dropped", collector=self._collector.url, waiting=len(self._waiting))

    def run(self) -> None:
        """Until `end`, and until nothing waits any more or the collector is away. No error ends it before."""
        while not self._is_ending or (self._waiting and not self._is_away):
            if not self._waiting:
                self._has_news.wait()
                self._has_news.clear()
            if self._waiting:
                self._send([self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))])

    def end(self) -> None:
        self._is_ending = True
        self._has_news.set()

    def _send(self, spans: Sequence[Span]) -> None:
        try:
            rejected = otlp.send(self._collector, otlp.export_request(self._resource, spans))
        except otlp.NotExported as error:
            self._note(len(spans), 0, str(error))
        except Exception as error:  # noqa: BLE001  # without this thread there would be no traces, and no word of that
            self._note(len(spans), 0, f"{type(error).__name__}: a fault of ours")  # its text may quote the headers
        else:
            count = min(rejected.count, len(spans))
            fault = f"{count} of {len(spans)} spans are rejected: {rejected.reason}" if count else ""
            self._note(count, len(spans) - count, fault)

    def _note(self, failed: int, sent: int, fault: str) -> None:
        self._is_away = bool(fault) and not sent
        self._counts.labels("failed").inc(failed)
        self._counts.labels("sent").inc(sent)
        self._tell(fault)

    def _tell(self, fault: str) -> None:
        """Once that the collector does not take spans, and once that it does again."""
        before, self._fault = self._fault, fault
        if fault and not before:
            self._log.warning("traces.unsent", collector=self._collector.url, reason=fault)
        elif before and not fault:
            self._log.info("traces.sent_again", collector=self._collector.url)


@contextmanager
def exported(
    collector: TraceCollector | None, resource: Mapping[str, Attribute], metrics: Metrics
) -> Iterator[SpanSink | None]:
    """An exporter for as long as the block lasts; None without a collector."""
    if collector is None:
        yield None
        return
    exporter = SpanExporter(collector, resource, metrics)
    thread = threading.Thread(target=exporter.run, name="koguma-traces", daemon=True)
    thread.start()
    try:
        yield exporter
    finally:
        exporter.end()
        thread.join(_AT_THE_END)

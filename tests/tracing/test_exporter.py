"""Spans are sent from a thread of their own; whoever has some to send never waits."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import structlog

from cp.metrics import Metrics
from cp.tracing import otlp
from cp.tracing.collector import TraceCollector
from cp.tracing.exporter import MOST_WAITING, SpanExporter, exported
from cp.tracing.spans import Span, TraceContext
from koguma.v1.traces_pb2 import ExportTracePartialSuccess, ExportTraceServiceResponse
from tests.support.collector import Collector
from tests.support.endless import ENDLESS, endless
from tests.support.http_collector import HttpCollector
from tests.support.loopback import new_address
from tests.support.waiting import eventually

SPAN = Span("s", TraceContext(b"a" * 16, b"b" * 8), b"", 1, 2)


@pytest.fixture
def collector() -> Iterator[HttpCollector]:
    with HttpCollector() as running:
        yield running


def base(endpoint: str, **headers: str) -> TraceCollector:
    return TraceCollector.of_base(endpoint, headers)


def counted(metrics: Metrics, outcome: str) -> float:
    return metrics.registry.get_sample_value("koguma_spans_total", {"outcome": outcome}) or 0.0


def test_spans_come_to_a_collector_over_http(collector: HttpCollector) -> None:
    metrics = Metrics()
    with exported(base(f"{collector.url}/otlp"), {"service.name": "koguma"}, metrics) as sink:
        assert sink is not None
        sink.take([SPAN, SPAN])
        eventually(lambda: counted(metrics, "sent") == 2)

    assert (collector.paths, collector.spans) == (["/otlp/v1/traces"], ["s", "s"])


def test_without_a_collector_there_is_nobody_to_take_spans() -> None:
    with exported(None, {}, Metrics()) as sink:
        assert sink is None


def test_a_slow_collector_costs_the_newest_spans_and_nobody_any_time(collector: HttpCollector) -> None:
    metrics = Metrics()
    collector.lets.clear()
    with structlog.testing.capture_logs() as told, exported(base(collector.url), {}, metrics) as sink:
        assert sink is not None
        for _ in range(2 * MOST_WAITING):
            sink.take([SPAN])
        dropped = counted(metrics, "dropped")
        collector.lets.set()
        eventually(lambda: counted(metrics, "sent") + counted(metrics, "dropped") == 2 * MOST_WAITING)

    assert dropped >= MOST_WAITING / 2
    assert [event["event"] for event in told][:1] == ["traces.dropped"]


def test_what_waits_at_the_end_is_sent(collector: HttpCollector) -> None:
    with exported(base(collector.url), {}, Metrics()) as sink:
        assert sink is not None
        sink.take([SPAN])

    assert collector.spans == ["s"]


def test_what_a_collector_does_not_take_is_counted_and_dropped(collector: HttpCollector) -> None:
    metrics = Metrics()
    collector.status = 503
    with exported(base(collector.url), {}, metrics) as sink:
        assert sink is not None
        sink.take([SPAN])
        eventually(lambda: counted(metrics, "failed") == 1)
        collector.status = 200
        sink.take([SPAN])
        eventually(lambda: counted(metrics, "sent") == 1)


REJECTING = ExportTraceServiceResponse(
    partial_success=ExportTracePartialSuccess(rejected_spans=2, error_message="too old, says abc-def")
).SerializeToString()


@pytest.mark.parametrize("way", ["http", "grpc"])
def test_spans_that_a_collector_rejects_in_an_answer_of_success_are_not_sent(
    way: str, collector: HttpCollector
) -> None:
    """https://opentelemetry.io/docs/specs/otlp/#partial-success"""
    metrics, collector.answer = Metrics(), REJECTING
    with Collector() as over_grpc, structlog.testing.capture_logs() as told:
        over_grpc.answer = REJECTING
        url = collector.url if way == "http" else f"grpc://{over_grpc.address}"
        exporter = SpanExporter(base(url, authorization="Bearer abc-def"), {}, metrics)
        exporter.take([SPAN] * 5)
        exporter.end()
        exporter.run()

    assert (counted(metrics, "failed"), counted(metrics, "sent")) == (2, 3)
    reasons = [event["reason"] for event in told if event["event"] == "traces.unsent"]
    assert reasons == ["2 of 5 spans are rejected: too old, says [redacted]"]


@pytest.mark.parametrize("answer", [b"{}", b"\xff", ExportTraceServiceResponse().SerializeToString()])
def test_an_answer_of_success_that_rejects_nothing_is_one(answer: bytes, collector: HttpCollector) -> None:
    metrics, collector.answer = Metrics(), answer
    with exported(base(collector.url), {}, metrics) as sink:
        assert sink is not None
        sink.take([SPAN])

    assert (counted(metrics, "failed"), counted(metrics, "sent")) == (0, 1)


def test_an_exporter_ends_though_its_collector_is_away() -> None:
    exporter = SpanExporter(base("http://127.0.0.1:9"), {}, Metrics())
    exporter.take([SPAN])
    exporter.end()

    exporter.run()


UNSENDABLE = Span("s", TraceContext(b"a" * 16, b"b" * 8), b"", 1, 2, {"koguma.author": "\ud800"})
"""A text that is none, which the library that writes messages refuses in its own way."""


def reasons(collector: TraceCollector, span: Span = SPAN) -> list[str]:
    """Why spans were not sent, as the log has it."""
    metrics = Metrics()
    with structlog.testing.capture_logs() as told, exported(collector, {}, metrics) as sink:
        assert sink is not None
        sink.take([span])
        eventually(lambda: counted(metrics, "failed") == 1)
    return [event["reason"] for event in told if event["event"] == "traces.unsent"]


def test_no_error_of_sending_ends_the_thread_that_sends(collector: HttpCollector) -> None:
    metrics = Metrics()
    with exported(base(collector.url), {}, metrics) as sink:
        assert sink is not None
        sink.take([UNSENDABLE])
        eventually(lambda: counted(metrics, "failed") == 1)
        sink.take([SPAN])
        eventually(lambda: counted(metrics, "sent") == 1)

    assert collector.spans == ["s"]


@pytest.mark.parametrize(
    ("collector", "span", "reason"),
    [
        (base(f"http://{'a' * 64}.example:4318"), SPAN, "too long"),
        (base("http://127.0.0.1:65536"), SPAN, "ValueError: a fault of ours"),
        (base("http://127.0.0.1:9", key="quoted\nin the error"), SPAN, "ValueError: a fault of ours"),
        (base("grpc://127.0.0.1:9", key="quoted\nin the error"), SPAN, "Invalid metadata"),
        (base("http://127.0.0.1:9"), UNSENDABLE, "Error: a fault of ours"),
    ],
    ids=["name", "port", "header", "header of gRPC", "span"],
)
def test_what_cannot_be_sent_is_told_without_a_secret(collector: TraceCollector, span: Span, reason: str) -> None:
    (told,) = reasons(collector, span)

    assert reason in told
    assert "quoted" not in told


@pytest.mark.parametrize("answer", ENDLESS.values(), ids=ENDLESS)
def test_a_collector_that_never_ends_its_answer_is_given_up_and_told(
    answer: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "_PATIENCE", 0.2)

    with endless(answer) as where:
        assert reasons(base(f"http://{where}")) == ["it takes more than 0.2 s to answer"]


SECRET = "s3cr\\et'key"


@pytest.mark.parametrize("answer", [f"you sent {SECRET}", f"HTTP/1.1 403 {SECRET}", f"HTTP/9 {SECRET}"])
def test_nothing_is_logged_that_a_collector_over_http_says(answer: str) -> None:
    with endless((f"{answer}\r\ncontent-length: 0\r\n\r\n".encode(), b"")) as where:
        (reason,) = reasons(base(f"http://{where}", key=SECRET))

    assert not [part for part in ("s3cr", "key", "you sent", "HTTP/9") if part in reason]


def test_of_secrets_that_begin_alike_nothing_stays() -> None:
    collector = base("http://localhost", team="team", key="team-9f8e", other="Team-9f8e7d6c", short="me")

    assert collector.without_secrets("some team: team-9f8e7d6c, TEAM-9f8e") == (
        "some [redacted]: [redacted], [redacted]"
    )


def test_a_collector_over_http_is_shown_the_headers(collector: HttpCollector) -> None:
    with exported(base(collector.url, authorization="Bearer abc"), {}, Metrics()) as sink:
        assert sink is not None
        sink.take([SPAN])

    (headers,) = collector.headers
    assert (headers["authorization"], headers["content-type"]) == ("Bearer abc", "application/x-protobuf")


def test_a_collector_over_grpc_is_shown_the_headers_and_what_it_repeats_of_them_is_not_logged() -> None:
    shown: list[dict[str, Any]] = []

    class Repeating(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            shown.append(dict(handler_call_details.invocation_metadata))
            return grpc.unary_unary_rpc_method_handler(self.refuse)

        @staticmethod
        def refuse(_sent: bytes, context: grpc.ServicerContext) -> bytes:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "who is abc-def? Bearer abc-def is nobody")
            return b""

    address = new_address()
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Repeating(),))
    server.add_insecure_port(str(address))
    server.start()
    try:
        told = reasons(base(f"grpc://{address}", authorization="Bearer abc-def"))
    finally:
        server.stop(0).wait(5)

    assert shown[0]["authorization"] == "Bearer abc-def"
    assert told == ["who is [redacted]? [redacted] is nobody"]

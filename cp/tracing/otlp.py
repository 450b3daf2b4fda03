"""Spans as OpenTelemetry's messages, and one call that sends them to a collector.

https://opentelemetry.io/docs/specs/otlp/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # type: ignore[import-untyped]
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2 as otel  # type: ignore[import-untyped]

from cp.calling import connection_to, ended_within
from cp.tracing.collector import TraceCollector
from cp.tracing.spans import Attribute, Span
from koguma.v1.traces_pb2 import ExportTraceServiceResponse

_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_PATIENCE: Final = 10.0
_SUCCESS: Final = range(200, 300)
_LARGEST_ANSWER: Final = 64 * 1024
_LONGEST_REASON: Final = 300


class NotExported(Exception):
    """A collector does not take spans, or is not there."""


@dataclass(frozen=True, slots=True)
class RejectedSpans:
    """How many spans a collector has not taken of those that it was sent, and why, in its words."""

    count: int = 0
    reason: str = ""


def export_request(resource: Mapping[str, Attribute], spans: Iterable[Span]) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.extend(_attributes(resource))
    scope = of_resource.instrumentation_library_spans.add()  # renamed to scope_spans since, with the same bytes
    scope.instrumentation_library.name = "koguma"
    scope.spans.extend(map(_message, spans))
    return request


def send(collector: TraceCollector, request: ExportTraceServiceRequest) -> RejectedSpans:
    """Send once. Raises `NotExported`. No secret is in its text, nor in what is returned."""
    try:
        if collector.url.startswith("grpc"):
            return _rejected(_call(collector, request), collector)
        return _rejected(_post(collector, request.SerializeToString()), collector)
    except HTTPException as error:  # its text is the collector's, in quotes that hide what is secret in it
        raise NotExported(f"it does not answer in HTTP: {type(error).__name__}") from None
    except (OSError, UnicodeError) as error:  # the last is what Python says of a name that cannot be one
        raise NotExported(str(error) or type(error).__name__) from None
    except grpc.RpcError as error:
        raise NotExported(collector.without_secrets(_details(error))) from None


def _details(error: grpc.RpcError) -> str:
    if not isinstance(error, grpc.Call):
        return type(error).__name__
    return error.details() or error.code().name


def _rejected(answer: bytes, collector: TraceCollector) -> RejectedSpans:
    """https://opentelemetry.io/docs/specs/otlp/#partial-success; an answer that nobody can read rejects nothing."""
    try:
        success = ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return RejectedSpans()
    return RejectedSpans(
        max(0, success.rejected_spans), collector.without_secrets(success.error_message)[:_LONGEST_REASON]
    )


def _call(collector: TraceCollector, request: ExportTraceServiceRequest) -> bytes:
    with _channel(collector) as channel:
        call = channel.unary_unary(_EXPORT, ExportTraceServiceRequest.SerializeToString, bytes)
        answer: bytes = call(request, timeout=_PATIENCE, metadata=tuple(collector.headers.items()))
        return answer


def _channel(collector: TraceCollector) -> grpc.Channel:
    parts = urlsplit(collector.url)
    if parts.scheme == "grpcs":
        return grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials())
    return grpc.insecure_channel(parts.netloc)


def _post(collector: TraceCollector, content: bytes) -> bytes:
    path = urlsplit(collector.url).path or "/"
    connection = connection_to(collector.url, _PATIENCE)
    with closing(connection), ended_within(connection, _PATIENCE):
        connection.request("POST", path, content, {**collector.headers, "content-type": "application/x-protobuf"})
        answer = connection.getresponse()
        body = answer.read(_LARGEST_ANSWER)
    if answer.status not in _SUCCESS:
        raise NotExported(f"{path} answers {answer.status}")
    return body


def _message(span: Span) -> otel.Span:
    message = otel.Span(
        name=span.name,
        trace_id=span.context.trace,
        span_id=span.context.span,
        parent_span_id=span.parent,
        start_time_unix_nano=span.began,
        end_time_unix_nano=span.ended,
        kind=otel.Span.SPAN_KIND_SERVER if span.is_request else otel.Span.SPAN_KIND_INTERNAL,
        attributes=_attributes(span.attributes),
    )
    for link in span.links:
        message.links.add(trace_id=link.trace, span_id=link.span)
    if span.fault:
        message.status.code, message.status.message = otel.Status.STATUS_CODE_ERROR, span.fault
    return message


def _attributes(values: Mapping[str, Attribute]) -> Iterator[KeyValue]:
    for name, value in values.items():
        yield KeyValue(key=name, value=_value(value))


def _value(value: Attribute) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    array = AnyValue()
    array.array_value.values.extend(map(_value, value))
    return array

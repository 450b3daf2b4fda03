"""Which trace a request belongs to, and what is sent of spans."""

from __future__ import annotations

from typing import Any

import pytest

from cp.tracing import otlp
from cp.tracing.spans import Span, TraceContext

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_the_header_of_a_caller_names_the_trace() -> None:
    context = TraceContext.parse(f"00-{TRACE}-{PARENT}-01")

    assert context == TraceContext(bytes.fromhex(TRACE), bytes.fromhex(PARENT), is_sampled=True)
    assert TraceContext.parse(f"cc-{TRACE}-{PARENT}-00-later") == TraceContext(
        bytes.fromhex(TRACE), bytes.fromhex(PARENT), is_sampled=False
    ), "a later version may have more, and begins like this one"


@pytest.mark.parametrize(
    "header",
    [
        *("", "nonsense", "00", f"00-{TRACE}-{PARENT}", f"00-{TRACE}-{PARENT}-1", f"00-{TRACE}-{PARENT}-01-more"),
        *(f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01"),
        *(f"00-{TRACE.upper()}-{PARENT}-01", f"00-{TRACE}-{PARENT}-zz", "00-" * 10_000),
    ],
)
def test_what_is_no_context_names_none(header: str) -> None:
    assert TraceContext.parse(header) is None


def test_a_span_within_another_is_of_the_same_trace() -> None:
    context = TraceContext.begun(lambda count: b"a" * count)

    assert context.within(lambda count: b"b" * count) == TraceContext(b"a" * 16, b"b" * 8)


def test_attributes_keep_their_types() -> None:
    values: dict[str, Any] = {"text": "t", "number": 2**40, "part": 0.5, "flag": True, "names": ("a", "b")}
    context = TraceContext(b"a" * 16, b"b" * 8)
    request = otlp.export_request({}, [Span("s", context, b"", 1, 2, values, fault="no", links=(context,))])

    scope = request.resource_spans[0].instrumentation_library_spans[0]
    assert scope.instrumentation_library.name == "koguma"
    (span,) = scope.spans
    kinds = [pair.value.WhichOneof("value") for pair in span.attributes]
    assert kinds == ["string_value", "int_value", "double_value", "bool_value", "array_value"]
    assert [value.string_value for value in span.attributes[4].value.array_value.values] == ["a", "b"]
    assert (span.status.code, span.status.message, span.links[0].trace_id) == (2, "no", b"a" * 16)

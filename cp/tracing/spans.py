"""`Span` and `TraceContext`: what a trace is made of, and how it is passed on.

https://www.w3.org/TR/trace-context/#traceparent-header
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NEVER: Final = "ff"
"""A version that no header may have."""

_FIRST: Final = "00"
_SAMPLED: Final = 1

Attribute: TypeAlias = str | int | float | bool | tuple[str, ...]
RandomBytes: TypeAlias = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace and the span that something belongs to."""

    trace: bytes
    span: bytes
    is_sampled: bool = True
    """Whether whoever began the trace wants it to be kept."""

    @classmethod
    def begun(cls, random: RandomBytes) -> TraceContext:
        return cls(random(16), random(8))

    @classmethod
    def parse(cls, traceparent: str) -> TraceContext | None:
        """The context that a header names; None if it is none."""
        match = _TRACEPARENT.fullmatch(traceparent.strip())
        if match is None or match[1] == _NEVER or (match[1] == _FIRST and match[5] is not None):
            return None
        trace, span = bytes.fromhex(match[2]), bytes.fromhex(match[3])
        return cls(trace, span, bool(int(match[4], 16) & _SAMPLED)) if any(trace) and any(span) else None

    def within(self, random: RandomBytes) -> TraceContext:
        """That of a new span in it."""
        return TraceContext(self.trace, random(8), self.is_sampled)


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took from one moment to another, in nanoseconds since 1970."""

    name: str
    context: TraceContext
    parent: bytes
    """The id of the span in which it happened; empty for the first of a trace."""

    began: int
    ended: int
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    fault: str = ""
    """What went wrong."""

    is_request: bool = False
    """Whether it is the answer to a request of somebody else."""

    links: tuple[TraceContext, ...] = ()
    """What else is about the same, in other traces."""

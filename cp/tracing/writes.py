"""`WriteTraces`: which write made which revision, so that what follows from it is a part of the same trace."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from cp.tracing.exporter import SpanSink
from cp.tracing.spans import Attribute, Span, TraceContext

REMEMBERED: Final = 1000
"""Revisions of which it is known who wrote them. What follows from a write does so within seconds."""


@dataclass(slots=True)
class RequestTrace:
    """A request that may write something."""

    context: TraceContext
    parent: bytes = b""
    revision: int = 0
    """The last that it made."""


_current: ContextVar[RequestTrace | None] = ContextVar("koguma_request", default=None)


class WriteTraces:
    """Asked by those who write, and by those who see what becomes of it."""

    def __init__(self, sink: SpanSink) -> None:
        self.sink = sink
        self._contexts: dict[int, TraceContext] = {}

    def begin(self, traceparent: str) -> RequestTrace:
        """A request whose writes from now on are a part of it."""
        caller = TraceContext.parse(traceparent)
        context = TraceContext.begun(secrets.token_bytes) if caller is None else caller.within(secrets.token_bytes)
        request = RequestTrace(context, b"" if caller is None else caller.span)
        _current.set(request)
        return request

    def context_of(self, revisions: Iterable[int]) -> TraceContext | None:
        """The write of the first of some revisions that was made here."""
        return next((self._contexts[revision] for revision in revisions if revision in self._contexts), None)

    def note_write(self, began: int, revision: int, attributes: dict[str, Attribute]) -> None:
        """Note a write that began at a moment (nanoseconds since 1970)."""
        request = _current.get()
        parent = None if request is None else request.context
        random = secrets.token_bytes
        context = TraceContext.begun(random) if parent is None else parent.within(random)
        if request is not None:
            request.revision = revision
        self._contexts.setdefault(revision, context)
        if len(self._contexts) > REMEMBERED:
            del self._contexts[next(iter(self._contexts))]
        self._take(Span("store write", context, parent.span if parent else b"", began, time.time_ns(), attributes))

    def note_request(self, request: RequestTrace, name: str, began: int, attributes: dict[str, Attribute]) -> None:
        """Note a request that wrote something."""
        self._take(Span(name, request.context, request.parent, began, time.time_ns(), attributes, is_request=True))

    def _take(self, span: Span) -> None:
        if span.context.is_sampled:
            self.sink.take([span])

"""`RequestTracer`: a request that writes is a span, in the trace that its caller has begun or in a new one.

https://www.w3.org/TR/trace-context/#traceparent-header
"""

from __future__ import annotations

import time
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cp.api.request_meter import NO_ROUTE, ROUTE
from cp.tracing.writes import WriteTraces

_WRITES: Final = frozenset({"POST", "PUT", "DELETE"})


class RequestTracer:
    """Stands before an application. A request that has written nothing leaves no span."""

    def __init__(self, app: ASGIApp, traces: WriteTraces) -> None:
        self._app, self._traces = app, traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _WRITES:
            await self._app(scope, receive, send)
            return
        began, status = time.time_ns(), 0
        request = self._traces.begin(Headers(scope=scope).get("traceparent", ""))

        async def note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            if request.revision:
                route, method = scope.get(ROUTE, NO_ROUTE), scope["method"]
                about = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
                self._traces.note_request(
                    request, f"{method} {route}", began, {**about, "koguma.revision": request.revision}
                )

"""`RequestMeter`: counts requests by route, and how long each waits for the beginning of its answer."""

from __future__ import annotations

from time import monotonic
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cp.metrics import Metrics

ROUTE: Final = "koguma.route"
"""Where a route notes its path, with the names of its parameters in place of their values: there are few of these."""

NO_ROUTE: Final = "none"
"""Of requests that lead nowhere, or are turned away before it is looked where they lead."""

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})


class RequestMeter:
    """Stands before an application. What clients choose is no label: other methods than ours are `other`."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = monotonic()

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope, message["status"], monotonic() - began)
            await send(message)

        await self._app(scope, receive, note)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = scope.get(ROUTE, NO_ROUTE)
        self._metrics.api_requests.labels(method, route, f"{status // 100}xx").inc()
        self._metrics.api_seconds.labels(method, route).observe(seconds)

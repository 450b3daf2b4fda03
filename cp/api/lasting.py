"""`LastingAnswers`: who reads an answer that lasts is looked at again: tokens are revoked, and rights change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cp.api.authentication import Authentication
from cp.api.caller import ApiCaller
from cp.api.collaborators import Collaborators
from cp.api.requirements import REQUIREMENTS, decisions


class LastingAnswers:
    """Those of one control plane."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._api = collaborators
        self._authentication = Authentication(collaborators.access, lambda: collaborators.state.loaded_world)

    def caller(self, request: Request, route: str) -> ApiCaller:
        """Who has sent a request to a route, with the rights of now. Raises `ApiError` if he may not have it by now."""
        caller = self._authentication.caller(request.scope)
        method = "GET" if request.method == "HEAD" else request.method
        required, world = REQUIREMENTS[method, route], self._api.state.loaded_world
        caller.must(decisions(required, caller, request.path_params, self._api.kinds, world))
        return caller


class CountedStream(StreamingResponse):
    """An answer that calls `left` when it is over, also if it never began."""

    def __init__(
        self,
        content: AsyncIterator[bytes] | AsyncIterator[str],
        left: Callable[[], None],
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()

"""`ApiDoor`: the one place where a request is let in or not, whatever it asks for.

The application asks who calls (`ApiDoor`), and each route whether the caller may do this (`guarded`). A route without a
row in the table of requirements cannot be made, so none is open by mistake (record 0060).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final, cast

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cp.api.authentication import Authentication, address_of
from cp.api.caller import caller_of, enter
from cp.api.errors import FORBIDDEN, UNAUTHORIZED, ApiError
from cp.api.parameters import must_know_parameters
from cp.api.request_meter import ROUTE
from cp.api.requirements import OPEN, decisions, requirements_of
from cp.resources.kinds import Kinds
from cp.resources.world import World

_REFUSALS: Final = frozenset({UNAUTHORIZED, FORBIDDEN})

log = structlog.get_logger()


class ApiDoor:
    """Stands before an application, and notes who sends each request."""

    def __init__(self, app: ASGIApp, authentication: Authentication) -> None:
        self._app = app
        self._authentication = authentication

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            enter(scope, self._authentication.caller(scope))
        except ApiError as error:
            if error.status == UNAUTHORIZED:
                log.info("api.refused", **_asked(scope), caller=address_of(scope), reason=error.detail)
            await error.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)


def guarded(
    route: Route,
    kinds: Kinds,
    current: Callable[[], Awaitable[World]],
    paths_judged_by_handlers: Collection[str] = (),
    must_be_in_time: Callable[[Request], None] = lambda _: None,
) -> Route:
    """A route that answers only those who have the rights that it takes, or whom its handler lets in.

    `must_be_in_time` raises `ApiError` for callers that ask too often.
    """
    required = requirements_of(route.path, set(route.methods or ()))
    if route.path in paths_judged_by_handlers:
        required = dict.fromkeys(required, OPEN)
    answer = cast("Callable[[Request], Awaitable[Response]]", route.endpoint)

    async def endpoint(request: Request) -> Response:
        request.scope[ROUTE] = route.path
        must_be_in_time(request)
        caller = caller_of(request)
        world = None if caller.proxy is None else await current()
        try:
            caller.must(decisions(required[request.method], caller, request.path_params, kinds, world))
            must_know_parameters(request, route.path)
            return await answer(request)
        except ApiError as error:
            if error.status in _REFUSALS:
                log.info("api.refused", **_asked(request.scope), **caller.traces, reason=error.detail)
            raise

    return Route(route.path, endpoint, methods=sorted(route.methods or ()))


def _asked(scope: Scope) -> dict[str, str]:
    return {"method": scope["method"], "path": scope["path"][:_LONGEST]}


_LONGEST: Final = 500

"""The HTTP API: which path is answered by whom, and how what goes wrong is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import structlog
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cp.api.apply import ApplyHandler
from cp.api.authentication import Authentication
from cp.api.bootstrap import BootstrapHandler
from cp.api.collaborators import Collaborators
from cp.api.crud import ResourceHandler, conflict, read_only
from cp.api.delivery import ProgressHandler
from cp.api.door import ApiDoor, guarded
from cp.api.errors import BAD_REQUEST, BROKEN, METHOD_NOT_ALLOWED, NOT_FOUND, UNAVAILABLE, ApiError
from cp.api.explain import ExplainHandler
from cp.api.guard import BrowserGuard
from cp.api.info import InfoHandler
from cp.api.inspect import InspectHandler
from cp.api.lint import LintHandler
from cp.api.near import Missing
from cp.api.overviews import OverviewHandler
from cp.api.registration import RegistrationHandler
from cp.api.tokens import TokenHandler
from cp.api.validate import ValidateHandler
from cp.api.work import WorkQueue, began
from cp.serving.workers.crew import SilentWorkers
from cp.store.port import Closed, Conflict, ReadOnly, Unusable

_ONE: Final = "/meshes/{mesh}/dataplanes/{name}"

MetricsText: TypeAlias = Callable[[], Awaitable[bytes]]
"""All metrics, as Prometheus reads them."""

log = structlog.get_logger()


def create_api(collaborators: Collaborators, metrics: MetricsText) -> Starlette:
    """The HTTP API of a control plane."""
    crud = ResourceHandler(collaborators)
    routes = [*_own(collaborators), _metrics(metrics), *OverviewHandler(collaborators, crud).routes, *_stored(crud)]
    return _app(routes, collaborators)


def create_diagnostics(collaborators: Collaborators, metrics: MetricsText) -> Starlette:
    """Health and metrics, on a port of their own that can be open to those who may not write."""
    return _app([*_health(InfoHandler(collaborators)), _metrics(metrics)], collaborators)


def _metrics(metrics: MetricsText) -> Route:
    """On both servers, as only that of the API has TLS."""

    async def scrape(_request: Request) -> Response:
        return Response(await metrics(), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", scrape)


def _app(routes: Sequence[Route], collaborators: Collaborators) -> Starlette:
    state, own_doors = collaborators.state, collaborators.own_doors
    authentication = Authentication(collaborators.access, lambda: state.loaded_world, own_doors)
    return Starlette(
        routes=[guarded(route, collaborators.kinds, state.current, own_doors) for route in routes],
        exception_handlers={**_HANDLERS, Missing: _missing(collaborators.works.resources)},
        middleware=[
            Middleware(_Faults),
            Middleware(BrowserGuard, hosts=collaborators.hosts),
            Middleware(ApiDoor, authentication=authentication),
        ],
    )


def _own(collaborators: Collaborators) -> Iterator[Route]:
    info, inspect = InfoHandler(collaborators), InspectHandler(collaborators)
    yield Route("/", info.index)
    yield Route("/config", info.config)
    yield Route("/who-am-i", info.who_am_i)
    yield Route("/_resources", info.resources)
    yield Route("/policies", info.policies)
    yield from _health(info)
    yield Route("/bootstrap", BootstrapHandler(collaborators).__call__, methods=["POST"])
    yield from LintHandler(collaborators).routes
    yield Route("/_apply", ApplyHandler(collaborators).__call__, methods=["POST"])
    yield from ProgressHandler(collaborators).routes
    yield Route("/validate", ValidateHandler(collaborators).__call__, methods=["POST"])
    yield from RegistrationHandler(collaborators).routes
    yield from TokenHandler(collaborators).routes
    yield Route(f"{_ONE}/_config", inspect.config)
    yield Route(f"{_ONE}/_rules", inspect.rules)
    yield Route(f"{_ONE}/_policies", inspect.policies)
    yield Route(f"{_ONE}/_delivery", inspect.delivery)
    yield Route(f"{_ONE}/_explain", ExplainHandler(collaborators).__call__)
    yield Route("/meshes/{mesh}/{plural}/{name}/_resources/dataplanes", inspect.dataplanes)


def _health(info: InfoHandler) -> Iterator[Route]:
    yield Route("/healthy", info.healthy)
    yield Route("/health", info.healthy)
    yield Route("/ready", info.ready)


def _stored(crud: ResourceHandler) -> Iterator[Route]:
    """Last, because their paths match what stands above too. A mesh is called before any other resource in it."""
    by_method = {"GET": crud.get, "HEAD": crud.get, "PUT": crud.put, "DELETE": crud.delete}

    async def by_name(request: Request) -> Response:
        return await by_method[request.method](request)

    for path in ("/meshes/{mesh}/{plural}/{name}", "/{plural}/{name}"):
        yield Route(path, by_name, methods=list(by_method))
    yield Route("/meshes/{mesh}/{plural}", crud.listing)
    yield Route("/{plural}", crud.listing)


async def _refused(_request: Request, error: Exception) -> Response:
    return cast("ApiError", error).response()


def _missing(work: WorkQueue) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        try:
            missing = await work.do(request, lambda _: cast("Missing", error).with_hint())
        except ApiError as busy:
            return busy.response()
        except ClientDisconnect as gone:
            return await _gone(request, gone)
        return missing.response()

    return answer


async def _conflict(_request: Request, error: Exception) -> Response:
    return conflict(str(error)).response()


async def _read_only(_request: Request, error: Exception) -> Response:
    return read_only(str(error)).response()


async def _unavailable(_request: Request, error: Exception) -> Response:
    return ApiError(UNAVAILABLE, "The store cannot be used", str(error)).response()


async def _unanswered(_request: Request, error: Exception) -> Response:
    return ApiError(UNAVAILABLE, "Too busy", str(error), headers={"retry-after": "5"}).response()


async def _http(request: Request, error: Exception) -> Response:
    """What Starlette refuses by itself: unknown paths and methods."""
    status = cast("HTTPException", error).status_code
    if status == NOT_FOUND:
        detail = f"there is no path {request.url.path}; GET /_resources lists what there is"
        return ApiError(NOT_FOUND, "Not found", detail).response()
    if status == METHOD_NOT_ALLOWED:
        detail = f"{request.url.path} does not take {request.method}; resources take GET, PUT and DELETE"
        headers = cast("HTTPException", error).headers or {}
        return ApiError(status, "Method not allowed", detail, headers=headers).response()
    return ApiError(status, "Could not answer", str(error)).response()


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=BAD_REQUEST)  # nobody reads it


class _Faults:
    """Answers where we are at fault. A handler of Starlette's for `Exception` would raise it again."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began(scope)
        try:
            await self._app(scope, receive, send)
        except Exception:  # the outermost place of a request
            log.exception("api.failed", method=scope.get("method"), path=scope.get("path"))
            detail = "Internal Server Error: the control plane's log tells more"
            await ApiError(BROKEN, "Could not answer", detail).response()(scope, receive, send)


_HANDLERS: Final[Mapping[Any, Callable[[Request, Exception], Any]]] = {
    ApiError: _refused,
    Conflict: _conflict,
    ReadOnly: _read_only,
    Unusable: _unavailable,
    Closed: _unavailable,
    SilentWorkers: _unanswered,
    HTTPException: _http,
    ClientDisconnect: _gone,
}

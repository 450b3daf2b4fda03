"""The HTTP API: which path is answered by whom, and how what goes wrong is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, cast

import structlog
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cp.api.answer_room import AnswerRoom, RoomForAnswers
from cp.api.apply import ApplyHandler
from cp.api.authentication import Authentication
from cp.api.body_room import BodyRoom, RoomForBodies
from cp.api.bootstrap import BootstrapHandler
from cp.api.collaborators import Collaborators
from cp.api.delivery import ProgressHandler
from cp.api.door import ApiDoor, guarded
from cp.api.envoys import EnvoyHandler
from cp.api.errors import BAD_REQUEST, BROKEN, METHOD_NOT_ALLOWED, NOT_FOUND, UNAVAILABLE, ApiError
from cp.api.explain import ExplainHandler
from cp.api.export import ExportHandler
from cp.api.feed import FeedHandler
from cp.api.fleet import FleetHandler
from cp.api.graph import GraphHandler
from cp.api.guard import BrowserGuard
from cp.api.info import InfoHandler
from cp.api.inspect import InspectHandler
from cp.api.instances import InstanceHandler
from cp.api.lint import LintHandler
from cp.api.near import Missing
from cp.api.overviews import OverviewHandler
from cp.api.page import PageHandler
from cp.api.past import PastHandler
from cp.api.planning import Planner
from cp.api.policy_list import PolicyListHandler
from cp.api.registration import RegistrationHandler
from cp.api.request_meter import RequestMeter
from cp.api.request_traces import RequestTracer
from cp.api.resource_reader import ResourceReader
from cp.api.resource_writer import ResourceWriter
from cp.api.rollback import RollbackHandler
from cp.api.rollouts import RolloutHandler
from cp.api.safe_headers import SafeHeaders
from cp.api.scraping import ScrapeHandler
from cp.api.timeline import TimelineHandler
from cp.api.tokens import TokenHandler
from cp.api.validate import ValidateHandler
from cp.api.work import WorkQueue, began
from cp.api.writes import conflict, read_only
from cp.serving.instances.fleet import Fleet
from cp.serving.workers.crew import SilentWorkers
from cp.store.port import Closed, Conflict, ReadOnly, Unusable

_ONE: Final = "/meshes/{mesh}/dataplanes/{name}"

MetricsText: TypeAlias = Callable[[], Awaitable[bytes]]
"""All metrics, as Prometheus reads them."""

log = structlog.get_logger()


def create_api(collaborators: Collaborators, metrics: MetricsText) -> Starlette:
    """The HTTP API of a control plane."""
    planner = Planner(collaborators)
    reader = ResourceReader(collaborators)
    writer = ResourceWriter(collaborators, planner, reader)
    routes = [
        *_own(collaborators, planner),
        _metrics(metrics),
        *OverviewHandler(collaborators, reader).routes,
        *_stored(reader, writer),
    ]
    return _app(routes, collaborators)


def create_diagnostics(collaborators: Collaborators, metrics: MetricsText) -> Starlette:
    """Health and metrics, on a port of their own that can be open to those who may not write."""
    app = _app([*_health(InfoHandler(collaborators)), _metrics(metrics)], collaborators)
    app.add_exception_handler(NOT_FOUND, _at_the_other_port)
    return app


def _metrics(metrics: MetricsText) -> Route:
    """On both servers, as only that of the API has TLS."""

    async def scrape(_request: Request) -> Response:
        return Response(await metrics(), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", scrape)


def _app(routes: Sequence[Route], collaborators: Collaborators) -> Starlette:
    state, paths_of_proxies = collaborators.state, collaborators.paths_of_proxies
    authentication = Authentication(collaborators.access, lambda: state.loaded_world, paths_of_proxies)
    judged = collaborators.paths_judged_by_handlers
    in_time = partial(collaborators.proxy_rates.check, metrics=collaborators.metrics)
    return Starlette(
        routes=[guarded(route, collaborators.kinds, state.current, judged, in_time) for route in routes],
        exception_handlers={**_HANDLERS, Missing: _missing(collaborators.works.resources)},
        middleware=[
            Middleware(SafeHeaders),
            Middleware(RequestMeter, metrics=collaborators.metrics),
            *([] if collaborators.traces is None else [Middleware(RequestTracer, traces=collaborators.traces)]),
            Middleware(_Faults),
            Middleware(BrowserGuard, hosts=collaborators.hosts),
            Middleware(ApiDoor, authentication=authentication),
            Middleware(RoomForAnswers, room=AnswerRoom()),
            Middleware(RoomForBodies, room=BodyRoom()),
        ],
    )


def _own(collaborators: Collaborators, planner: Planner) -> Iterator[Route]:
    info, inspect = InfoHandler(collaborators), InspectHandler(collaborators)
    yield Route("/", info.index)
    yield Route("/config", info.config)
    yield Route("/who-am-i", info.who_am_i)
    yield Route("/_resources", info.resources)
    yield Route("/policies", info.policies)
    yield from _health(info)
    yield from PageHandler(collaborators.page).routes
    yield Route("/bootstrap", BootstrapHandler(collaborators).__call__, methods=["POST"])
    yield from LintHandler(collaborators).routes
    yield from ScrapeHandler(collaborators).routes
    yield Route("/_apply", ApplyHandler(collaborators, planner).__call__, methods=["POST"])
    yield from PastHandler(collaborators).routes
    yield Route("/_changes", TimelineHandler(collaborators).__call__)
    yield Route("/_export", ExportHandler(collaborators).__call__)
    yield Route("/_rollback", RollbackHandler(collaborators, planner).__call__, methods=["POST"])
    yield from RolloutHandler(collaborators).routes
    yield from ProgressHandler(collaborators).routes
    yield from _live(collaborators)
    yield Route("/validate", ValidateHandler(collaborators).__call__, methods=["POST"])
    yield from RegistrationHandler(collaborators).routes
    yield from TokenHandler(collaborators).routes
    yield from InstanceHandler(collaborators).routes
    yield from EnvoyHandler(collaborators).routes
    yield Route(f"{_ONE}/_config", inspect.config)
    yield Route(f"{_ONE}/_rules", inspect.rules)
    yield Route(f"{_ONE}/_policies", inspect.policies)
    yield Route(f"{_ONE}/_delivery", inspect.delivery)
    explain = ExplainHandler(collaborators)
    yield Route(f"{_ONE}/_explain", explain.__call__)
    yield Route(f"{_ONE}/_values", explain.values)
    yield Route("/meshes/{mesh}/{plural}/{name}/_resources/dataplanes", inspect.dataplanes)
    yield Route("/meshes/{mesh}/_policies", PolicyListHandler(collaborators).__call__)


def _live(collaborators: Collaborators) -> Iterator[Route]:
    """What pages show that update by themselves."""
    state = collaborators.state
    fleet = Fleet(collaborators.observed.fleets, lambda: state.loaded_world)
    yield Route("/_fleet", FleetHandler(collaborators, fleet).__call__)
    yield Route("/_feed", FeedHandler(collaborators, fleet).__call__)
    yield Route("/meshes/{mesh}/_graph", GraphHandler(collaborators, fleet).__call__)


def _health(info: InfoHandler) -> Iterator[Route]:
    yield Route("/healthy", info.healthy)
    yield Route("/health", info.healthy)
    yield Route("/ready", info.ready)


def _stored(reader: ResourceReader, writer: ResourceWriter) -> Iterator[Route]:
    """Last, because their paths match what stands above too. A mesh is called before any other resource in it."""
    by_method = {"GET": reader.get, "HEAD": reader.get, "PUT": writer.put, "DELETE": writer.delete}

    async def by_name(request: Request) -> Response:
        return await by_method[request.method](request)

    for path in ("/meshes/{mesh}/{plural}/{name}", "/{plural}/{name}"):
        yield Route(path, by_name, methods=list(by_method))
    yield Route("/meshes/{mesh}/{plural}", reader.listing)
    yield Route("/{plural}", reader.listing)


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


async def _at_the_other_port(request: Request, _error: Exception) -> Response:
    """Whoever asks the diagnostics for something else has probably mistaken the port."""
    own = "this is the port of /ready, /healthy and /metrics"
    detail = f"there is no path {request.url.path}: {own}, and the HTTP API has another one (5681, or 5682 with https)"
    return ApiError(NOT_FOUND, "Not found", detail).response()


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=BAD_REQUEST)  # nobody reads it


_ENDED: Final = (
    "the control plane ended before it had an answer; if it was asked to change something, that may have been done: "
    "look at what is stored before you repeat it"
)


class _Faults:
    """Answers where we are at fault. A handler of Starlette's for `Exception` would raise it again."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began(scope)
        is_answered = False

        async def note(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await self._app(scope, receive, note)
        except asyncio.CancelledError:
            if not is_answered:
                await ApiError(UNAVAILABLE, "The control plane ends", _ENDED).response()(scope, receive, send)
            raise
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

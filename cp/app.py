"""The composition root: opens the store, starts the servers and the loop between them, and ends them together."""

from __future__ import annotations

import asyncio
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import structlog
import uvicorn
from prometheus_client import disable_created_metrics
from starlette.applications import Starlette

from cp import log
from cp.ads.loop import DrainLoop
from cp.api.collaborators import About, Collaborators, ForProxies, Observed, State
from cp.api.http import create_api, create_diagnostics
from cp.defaults import initial_policies
from cp.metrics import together
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.capabilities import missing_parts, warning
from cp.serve import proxies_served, reconciled
from cp.settings import VERSION, Settings, shown
from cp.store.open import open_store
from cp.store.port import ABSENT, Conflict, Put, ReadOnly, Store
from cp.workers.crew import Crew, reserved
from cp.workers.front import Front
from cp.workers.observers import Observers

_ENGINE: Final = "KUMA_DEFAULTS_POLICY_ENGINE"
_DEFAULT_MESH = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})


@dataclass(frozen=True, slots=True)
class Running:
    """A control plane that serves: where it is to be found."""

    ads_port: int
    http_port: int
    diagnostics_port: int


def run(settings: Settings, ready: Callable[[Running], None] = lambda _: None) -> None:
    """Run a control plane until it is told to end."""
    log.configure(settings.log_level, settings.log_format)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double what is served
    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        runner.run(_until_told(settings, ready))


async def _until_told(settings: Settings, ready: Callable[[Running], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with control_plane(settings) as running:
        ready(running)
        await stop.wait()
        structlog.get_logger().info("control_plane.stopping")


@asynccontextmanager
async def control_plane(settings: Settings) -> AsyncIterator[Running]:
    """A control plane that is there for as long as the block lasts."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(settings.store))
        await _first_mesh(store, settings)
        proxies = await stack.enter_async_context(AsyncExitStack())
        serving = await proxies.enter_async_context(_serving(settings, store))
        given = _collaborators(settings, store, serving)
        http_port = await stack.enter_async_context(_http(create_api(given), settings.http_bind, settings.http_port))
        diagnostics = create_diagnostics(given, serving.metrics)
        diagnostics_port = await stack.enter_async_context(_http(diagnostics, settings.bind, settings.diagnostics_port))
        running = Running(serving.port, http_port, diagnostics_port)
        structlog.get_logger().info(
            "control_plane.ready",
            store=settings.store,
            ads=f"{settings.bind}:{running.ads_port}",
            http=f"http://{settings.http_bind}:{running.http_port}",
            diagnostics=f"http://{settings.bind}:{running.diagnostics_port}",
        )
        _tell_of_engine(settings)
        try:
            yield running
        finally:  # first: while streams are drained, the others answer, and say that no more proxies should come
            await proxies.aclose()


def _tell_of_engine(settings: Settings) -> None:
    """A Mesh that names the engine itself says so by itself."""
    for part in missing_parts("Mesh", {"policyEngine": settings.policy_engine}):
        text = str(warning(part, ""))
        structlog.get_logger().warning("setting", code="not-enforced", setting=_ENGINE, reason=text)


@dataclass(frozen=True, slots=True)
class _Serving:
    """What serves proxies, here or in workers."""

    port: int
    state: State
    observed: Observed
    metrics: Callable[[], Awaitable[bytes]]


def _serving(settings: Settings, store: Store) -> AbstractAsyncContextManager[_Serving]:
    return _here(settings, store) if settings.workers == 1 else _in_workers(settings, store)


@asynccontextmanager
async def _here(settings: Settings, store: Store) -> AsyncIterator[_Serving]:
    async with proxies_served(settings, store, settings.ads_port) as serving:

        async def metrics() -> bytes:
            return serving.metrics.text()

        yield _Serving(serving.port, serving.reconciler, serving.observer, metrics)


@asynccontextmanager
async def _in_workers(settings: Settings, store: Store) -> AsyncIterator[_Serving]:
    """This process serves no proxies, but knows the World, to answer what is asked about it."""
    with reserved(settings.bind, settings.ads_port) as port:
        crew = Crew(settings, port)
        async with reconciled(settings, store) as (hub, reconciler), crew.at_work():

            async def metrics() -> bytes:
                answers = await crew.ask("metrics")
                of_all = {"api": hub.metrics.text()} | {str(number): text for number, text in answers.items()}
                return together(of_all)

            yield _Serving(port, Front(reconciler, crew), Observers(crew), metrics)
            reconciler.is_stopping = True


async def _first_mesh(store: Store, settings: Settings) -> None:
    """A new store gets the Mesh `default`, unless somebody else writes it or nobody wants one."""
    if not settings.skip_mesh_creation:
        companions = initial_policies(_DEFAULT_MESH, settings.policy_engine)
        with suppress(Conflict, ReadOnly):
            await store.write(Put(_DEFAULT_MESH, based_on=ABSENT), *map(Put, companions))


def _collaborators(settings: Settings, store: Store, serving: _Serving) -> Collaborators:
    return Collaborators(
        store=store,
        kinds=kinds(discover()),
        state=serving.state,
        observed=serving.observed,
        about=About(socket.gethostname(), VERSION, str(uuid.uuid4())),
        for_proxies=ForProxies(
            port=settings.xds_port or serving.port,
            host=settings.xds_host,
            admin_address=settings.admin_address,
            admin_port=settings.admin_port,
            admin_unix_socket=settings.admin_unix_socket,
        ),
        body_limit=settings.body_limit,
        read_only=settings.read_only,
        config=shown(settings),
        companions=lambda document: initial_policies(document, settings.policy_engine),
    )


class _HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: the control plane ends as a whole."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def _http(app: Starlette, host: str, port: int) -> AsyncIterator[int]:
    """An HTTP server for as long as the block lasts; yields the port that it got."""
    listener = _listener(host, port)
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=5)
    server = _HttpServer(config)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.listen(128)
    return listener

"""The composition root: opens the store, starts the servers and the loop between them, and ends them together."""

from __future__ import annotations

import asyncio
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import structlog
from prometheus_client import disable_created_metrics

from cp import log
from cp.ads.loop import DrainLoop
from cp.api.collaborators import BootstrapDefaults, Collaborators, ControlPlaneIdentity, ServedState
from cp.api.http import create_api, create_diagnostics
from cp.metrics import combined_text
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.capabilities import missing_parts, warning
from cp.resources.initial_policies import initial_policies
from cp.serving import process
from cp.serving.http_server import address, http_served
from cp.serving.observe import Observer
from cp.serving.reconcile import Reconciler
from cp.serving.registrar import Registrar, RegistrarTimes, registrations_kept
from cp.serving.serve import proxies_served, reconciled
from cp.serving.storage import store_of
from cp.serving.workers.crew import Crew, SilentWorkers, reserved
from cp.serving.workers.front import WorkersFront
from cp.serving.workers.observers import CombinedObserver
from cp.settings import Settings, shown
from cp.store.files import FilesStore
from cp.store.port import ABSENT, Conflict, Put, ReadOnly, Store
from cp.version import VERSION
from koguma.v1 import workers_pb2 as pb

_LAST: Final = 5.0
"""Seconds for which the process waits for its threads at the end, after everything is closed."""

_ENGINE: Final = "KUMA_DEFAULTS_POLICY_ENGINE"
_DEFAULT_MESH = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})


@dataclass(frozen=True, slots=True)
class RunningControlPlane:
    """The ports of a control plane that serves."""

    ads_port: int
    http_port: int
    diagnostics_port: int
    reread: Callable[[], None] | None = None
    """Reads the files of the store again at once; None for a store that is no folder."""


def run(settings: Settings, ready: Callable[[RunningControlPlane], None] = lambda _: None) -> None:
    """Run a control plane until it is told to end."""
    log.configure(settings.log_level, settings.log_format)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double what is served
    process.prepare()
    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        runner.run(_until_told(settings, ready))


async def _until_told(settings: Settings, ready: Callable[[RunningControlPlane], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, _hang_up, None)
    async with control_plane(settings) as running:
        loop.add_signal_handler(signal.SIGHUP, _hang_up, running.reread)
        ready(running)
        await stop.wait()
        structlog.get_logger().info("control_plane.stopping")
    process.end_within(_LAST)


def _hang_up(reread: Callable[[], None] | None) -> None:
    """Read the files again. A terminal that is closed sends SIGHUP too, so the process does not end."""
    log_ = structlog.get_logger()
    if reread is None:
        log_.info("control_plane.hangup_ignored", reason="the store is no folder of files that could be read again")
        return
    log_.info("control_plane.rereading")
    reread()


@asynccontextmanager
async def control_plane(settings: Settings) -> AsyncIterator[RunningControlPlane]:
    """Run a control plane for as long as the block lasts."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(store_of(settings))
        await _first_mesh(store, settings)
        proxies = await stack.enter_async_context(AsyncExitStack())
        serving = await proxies.enter_async_context(_serving(settings, store))
        collaborators = _collaborators(settings, store, serving)
        await proxies.enter_async_context(_registrations(settings, collaborators, serving))
        stack.callback(collaborators.works.close)
        http_port = await stack.enter_async_context(
            http_served(create_api(collaborators), settings.http_bind, settings.http_port)
        )
        diagnostics = create_diagnostics(collaborators, serving.metrics)
        diagnostics_port = await stack.enter_async_context(
            http_served(diagnostics, settings.bind, settings.diagnostics_port)
        )
        reread = store.reread if isinstance(store, FilesStore) else None
        running = RunningControlPlane(serving.port, http_port, diagnostics_port, reread)
        structlog.get_logger().info(
            "control_plane.ready",
            store=settings.store,
            ads=address(settings.bind, running.ads_port),
            http=f"http://{address(settings.http_bind, running.http_port)}",
            diagnostics=f"http://{address(settings.bind, running.diagnostics_port)}",
        )
        _warn_about_engine(settings)
        try:
            yield running
        finally:  # before the servers for HTTP: while streams are drained, `/ready` has to answer that we are stopping
            await proxies.aclose()


def _warn_about_engine(settings: Settings) -> None:
    """Warn about the engine of the settings. A Mesh that names one itself is warned about as a resource."""
    for part in missing_parts("Mesh", {"policyEngine": settings.policy_engine}):
        text = str(warning(part, ""))
        structlog.get_logger().warning("setting", code="not-enforced", setting=_ENGINE, reason=text)


@dataclass(frozen=True, slots=True)
class _Serving:
    """What serves proxies, in this process or in workers."""

    port: int
    state: ServedState
    reconciler: Reconciler
    observed: Observer | CombinedObserver
    metrics: Callable[[], Awaitable[bytes]]


def _serving(settings: Settings, store: Store) -> AbstractAsyncContextManager[_Serving]:
    return _here(settings, store) if settings.workers == 1 else _in_workers(settings, store)


@asynccontextmanager
async def _here(settings: Settings, store: Store) -> AsyncIterator[_Serving]:
    async with proxies_served(settings, store, settings.ads_port) as serving:

        async def metrics() -> bytes:
            return serving.metrics.text()

        yield _Serving(serving.port, serving.reconciler, serving.reconciler, serving.observer, metrics)


@asynccontextmanager
async def _in_workers(settings: Settings, store: Store) -> AsyncIterator[_Serving]:
    """This process serves no proxies. It follows the store all the same, to answer the API's questions."""
    with reserved(settings.bind, settings.ads_port) as port:
        crew = Crew(settings, port)
        async with reconciled(settings, store) as (hub, reconciler), crew.at_work():

            async def metrics() -> bytes:
                try:
                    answers = await crew.ask(pb.Request(metrics=pb.Nothing()))
                except SilentWorkers as silent:  # the metrics of the other workers are useful all the same
                    answers = silent.answers
                of_workers = {str(number): answer.metrics for number, answer in answers.items()}
                return combined_text({"api": hub.metrics.text()} | of_workers)

            yield _Serving(port, WorkersFront(reconciler, crew), reconciler, CombinedObserver(crew), metrics)
            reconciler.is_stopping = True


def _registrations(
    settings: Settings, collaborators: Collaborators, serving: _Serving
) -> AbstractAsyncContextManager[None]:
    """Ends before streams are drained: a proxy whose stream we close has not ended."""
    times = RegistrarTimes(settings.deregistration_delay, settings.return_grace)
    registrar = Registrar(
        collaborators.store, serving.reconciler, serving.observed, times, name=collaborators.about.instance
    )
    return registrations_kept(registrar)


async def _first_mesh(store: Store, settings: Settings) -> None:
    """Write the Mesh `default` into a new store, unless the settings forbid it or another process did so."""
    if not settings.skip_mesh_creation:
        companions = initial_policies(_DEFAULT_MESH, settings.policy_engine)
        with suppress(Conflict, ReadOnly):
            await store.write(Put(_DEFAULT_MESH, based_on=ABSENT), *map(Put, companions))


def _hosts(settings: Settings) -> frozenset[str]:
    """The names by which the API and the diagnostics may be called."""
    own = (settings.bind, settings.http_bind, settings.xds_host, socket.gethostname())
    return frozenset(filter(None, map(str.strip, (*own, *settings.api_hosts.split(",")))))


def _collaborators(settings: Settings, store: Store, serving: _Serving) -> Collaborators:
    return Collaborators(
        store=store,
        kinds=kinds(discover()),
        state=serving.state,
        observed=serving.observed,
        about=ControlPlaneIdentity(socket.gethostname(), VERSION, str(uuid.uuid4())),
        for_proxies=BootstrapDefaults(
            port=settings.xds_port or serving.port,
            host=settings.xds_host,
            admin_address=settings.admin_address,
            admin_port=settings.admin_port,
            admin_unix_socket=settings.admin_unix_socket,
        ),
        body_limit=settings.body_limit,
        read_only=settings.read_only,
        hosts=_hosts(settings),
        config=shown(settings),
        companions=lambda document: initial_policies(document, settings.policy_engine),
    )

"""The composition root: opens the store, starts the servers and the loop between them, and ends them together."""

from __future__ import annotations

import asyncio
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import structlog
from prometheus_client import disable_created_metrics
from starlette.types import ASGIApp

from cp import log
from cp.access.keys import KeyRing, OfflineKeys, Purpose
from cp.ads.loop import DrainLoop
from cp.api.authentication import AccessControl
from cp.api.collaborators import BootstrapDefaults, Collaborators, ControlPlaneIdentity
from cp.api.fair_turns import FairTurns
from cp.api.fleet_monitor import FleetMonitor
from cp.api.http import create_api, create_diagnostics
from cp.api.kuma_config import kuma_config
from cp.api.page import PageFiles
from cp.api.work import WorkQueues
from cp.metrics import Metrics
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.engine import with_engine
from cp.resources.initial_policies import initial_policies
from cp.serving import process
from cp.serving.access_keeper import AccessKeeper
from cp.serving.background import in_background
from cp.serving.exposure import exposures
from cp.serving.forgetting import forgetting
from cp.serving.http_server import address, http_served
from cp.serving.instances.members import Members
from cp.serving.own_names import named_hosts
from cp.serving.preflight.availability import unavailability, watched
from cp.serving.preflight.preflight import Preflight
from cp.serving.proxy_service import ProxyService, proxy_service
from cp.serving.public_keys import offline_keys
from cp.serving.registrar import Registrar, RegistrarTimes
from cp.serving.rollouts.counters import EnvoyCounters
from cp.serving.rollouts.keeper import RolloutKeeper
from cp.serving.serve import (
    ProxyDoor,
    certificate_kept,
    doorkeeper_of,
    token_doorkeeper,
)
from cp.serving.server_certificate import ServerCertificate
from cp.serving.signing_keys import SigningKeys
from cp.serving.storage import store_of
from cp.serving.supervisor import Supervisor
from cp.settings import BadSettings, Settings
from cp.store.clock import utc
from cp.store.files import FilesStore
from cp.store.observed import ObservedStore
from cp.store.port import ABSENT, Author, Conflict, Put, ReadOnly, Store
from cp.store.roster import Instance
from cp.version import VERSION

_END: Final = 30.0
"""Seconds in which a control plane that was told to end does so, beyond those over which it drains."""

_LAST: Final = 5.0
"""Seconds for which the process waits for its threads at the end, after everything is closed."""

_FIRST_START: Final = Author("control plane", "first start")
_DEFAULT_MESH = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})


@dataclass(frozen=True, slots=True)
class RunningControlPlane:
    """The ports of a control plane that serves."""

    ads_port: int
    http_port: int
    https_port: int | None
    """None: the API is not served with TLS."""

    diagnostics_port: int
    is_ready: Callable[[], bool] = lambda: True
    """Returns True once the store is read and proxies are served."""

    reread: Callable[[], None] | None = None
    """Reads the files of the store and the one with rights again at once; None where there are none."""


def run(settings: Settings, ready: Callable[[RunningControlPlane], None] = lambda _: None) -> None:
    """Run a control plane until it is told to end."""
    _configure_log(settings)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double what is served
    process.prepare()
    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        runner.run(_until_told(settings, ready))


def _configure_log(settings: Settings) -> None:
    try:
        log.configure(settings.log_level, settings.log_format, file=settings.log_file)
    except OSError as error:
        fault = f"{settings.place('log_file')}={settings.log_file}: cannot be written: {error.strerror}"
        raise BadSettings((fault,)) from None


async def _until_told(settings: Settings, ready: Callable[[RunningControlPlane], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(settings.notify_socket, settings.watchdog_usec / 1_000_000)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, _hang_up, None)
    async with control_plane(settings) as running:
        loop.add_signal_handler(signal.SIGHUP, _hang_up, running.reread)
        ready(running)
        async with in_background(supervisor.report_ready(running.is_ready)), in_background(supervisor.keep_alive()):
            await stop.wait()
        supervisor.report_stopping(settings.drain + _END)
        structlog.get_logger().info("control_plane.stopping")
    process.end_within(_LAST)


def _hang_up(reread: Callable[[], None] | None) -> None:
    """Read the files again. A terminal that is closed sends SIGHUP too, so the process does not end."""
    log_ = structlog.get_logger()
    if reread is None:
        log_.info("control_plane.hangup_ignored", reason="there is no folder or file that could be read again")
        return
    log_.info("control_plane.rereading")
    reread()


@asynccontextmanager
async def control_plane(settings: Settings) -> AsyncIterator[RunningControlPlane]:
    """Run a control plane for as long as the block lasts."""
    token_keys = offline_keys(settings)
    keeper = AccessKeeper(settings, kinds(discover()), token_keys)
    about = ControlPlaneIdentity(socket.gethostname(), VERSION, str(uuid.uuid4()))
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(store_of(settings))
        await stack.enter_async_context(forgetting(settings, store))
        members = Members(store.roster, about.instance)
        await _first_mesh(store, settings)
        certificate = await stack.enter_async_context(certificate_kept(settings, is_owner=True))
        if settings.stores_admin_token:
            await SigningKeys(store, kinds(discover())).make_admin_token()
        proxies = await stack.enter_async_context(AsyncExitStack())
        door = ProxyDoor(certificate if settings.serves_proxies_over_tls else None, token_keys)
        service = await proxies.enter_async_context(proxy_service(settings, store, door, members))
        await stack.enter_async_context(in_background(keeper.keep()))
        collaborators = _collaborators(settings, store, service, door, keeper, about, members)
        # Registrations end before streams are drained: a proxy whose stream we close has not ended.
        registrar = _registrar(settings, collaborators, service, members)
        await proxies.enter_async_context(in_background(registrar.run()))
        await proxies.enter_async_context(in_background(service.trust.run()))
        monitor = FleetMonitor(collaborators, lambda: members.leads, settings.findings_every)
        await proxies.enter_async_context(in_background(monitor.watch()))
        await proxies.enter_async_context(in_background(_rollouts(store, service, members).run()))
        await proxies.enter_async_context(
            in_background(watched(collaborators.preflight, rejects_writes=settings.preflights_writes))
        )
        stack.callback(collaborators.works.close)
        await proxies.enter_async_context(service.together.envoys.own.kept())
        api = create_api(collaborators, service.metrics)
        http_port = await stack.enter_async_context(http_served(api, settings.http_bind, settings.http_port))
        https_port = await stack.enter_async_context(_https_served(api, settings, certificate))
        url = _instance_address(settings, http_port, https_port)
        own = Instance(about.instance, about.hostname, url, "", VERSION, utc(), 0)
        await stack.enter_async_context(_member(members, own, service, certificate))
        diagnostics = create_diagnostics(collaborators, service.metrics)
        diagnostics_port = await stack.enter_async_context(
            http_served(diagnostics, settings.bind, settings.diagnostics_port)
        )
        reread = _rereading(store, settings, keeper)
        running = RunningControlPlane(
            service.port, http_port, https_port, diagnostics_port, lambda: service.state.is_ready, reread
        )
        _log_ready(settings, running)
        _warn_about_open_doors(settings)
        keeper.warn()
        try:
            yield running
        finally:  # before the servers for HTTP: while streams are drained, `/ready` has to answer that we are stopping
            await proxies.aclose()


def _log_ready(settings: Settings, running: RunningControlPlane) -> None:
    https_port = running.https_port
    structlog.get_logger().info(
        "control_plane.ready",
        store=settings.store,
        ads=address(settings.bind, running.ads_port),
        http=f"http://{address(settings.http_bind, running.http_port)}",
        https="" if https_port is None else f"https://{address(settings.https_bind, https_port)}",
        diagnostics=f"http://{address(settings.bind, running.diagnostics_port)}",
    )


@asynccontextmanager
async def _https_served(
    api: ASGIApp, settings: Settings, certificate: ServerCertificate | None
) -> AsyncIterator[int | None]:
    """The same API with TLS, if it is wanted; yields the port that it got."""
    if certificate is None or not settings.serves_https:
        yield None
        return
    async with http_served(api, settings.https_bind, settings.https_port, tls=lambda: certificate.context) as port:
        yield port


def _rereading(store: Store, settings: Settings, keeper: AccessKeeper) -> Callable[[], None] | None:
    """What SIGHUP asks for."""
    rereads = [store.reread] if isinstance(store, FilesStore) else []
    rereads += [keeper.reread] if settings.access_file is not None else []

    def reread() -> None:
        for reread_file in rereads:
            reread_file()

    return reread if rereads else None


def _warn_about_open_doors(settings: Settings) -> None:
    for finding in exposures(settings):
        structlog.get_logger().warning("setting", code=finding.code, reason=str(finding))


def _registrar(settings: Settings, collaborators: Collaborators, service: ProxyService, members: Members) -> Registrar:
    return Registrar(
        collaborators.store,
        service.reconciler,
        service.together.for_chores,
        RegistrarTimes(settings.deregistration_delay, settings.return_grace),
        name=collaborators.about.instance,
        leadership=members,
    )


def _rollouts(store: Store, service: ProxyService, members: Members) -> RolloutKeeper:
    together = service.together
    return RolloutKeeper(
        together.store_for_chores(store),
        service.reconciler,
        together.observed,
        EnvoyCounters(together.envoys),
        discover(),
        leads=lambda: members.leads,
        control_planes=lambda: members.present_processes,
    )


async def _first_mesh(store: Store, settings: Settings) -> None:
    """Write the Mesh `default` into a new store, unless the settings forbid it or another process did so."""
    if not settings.skip_mesh_creation:
        mesh = with_engine(_DEFAULT_MESH, None, settings.policy_engine)
        with suppress(Conflict, ReadOnly):
            await store.write(*map(Put, initial_policies(mesh)), Put(mesh, based_on=ABSENT), author=_FIRST_START)


def _instance_address(settings: Settings, http_port: int, https_port: int | None) -> str:
    """At which URL others on the store reach our API."""
    if settings.instance_address:
        return settings.instance_address
    if https_port is None:
        return f"http://{address(_reachable(settings.http_bind), http_port)}"
    return f"https://{address(_reachable(settings.https_bind), https_port)}"


def _reachable(host: str) -> str:
    return socket.gethostname() if host in {"0.0.0.0", "::"} else host  # noqa: S104  # compared with, not bound to


@asynccontextmanager
async def _member(
    members: Members, own: Instance, service: ProxyService, certificate: ServerCertificate | None
) -> AsyncIterator[None]:
    """One of those that share the store, for as long as the block lasts."""

    def described() -> Instance:
        is_tls = certificate is not None and own.address.startswith("https:")
        authority = certificate.current.trusted if certificate is not None and is_tls else ""
        return replace(own, authority=authority, revision=service.reconciler.world.revision)

    async with members.joined(described), in_background(service.together.peers.watch()):
        yield


def _issued_tokens(settings: Settings) -> frozenset[Purpose]:
    issues: dict[Purpose, bool] = {
        "dataplane": settings.issues_dataplane_tokens,
        "user": settings.issues_user_tokens,
        "zone": settings.issues_zone_tokens,
    }
    return frozenset(purpose for purpose, is_issued in issues.items() if is_issued)


def _bootstrap_defaults(
    settings: Settings, service: ProxyService, certificate: ServerCertificate | None, token_keys: OfflineKeys
) -> BootstrapDefaults:
    return BootstrapDefaults(
        port=settings.xds_port or service.port,
        hosts=settings.xds_hosts,
        admin_address=settings.admin_address,
        admin_port=settings.admin_port,
        admin_unix_socket=settings.admin_unix_socket,
        certificate=None if certificate is None else lambda: certificate.current,
        doorkeeper=doorkeeper_of(settings, service.reconciler, token_keys, waits_for_writes=True),
        optional_doorkeeper=token_doorkeeper(settings, service.reconciler, token_keys, waits_for_writes=True),
    )


def _preflight(settings: Settings, metrics: Metrics, turns: FairTurns) -> Preflight | None:
    """The Envoy that is shown writes before they are made; None if the settings name none."""
    if settings.preflight_envoy is None:
        return None
    preflight = Preflight(settings.preflight_envoy, settings.preflight_timeout)
    text = "1 while changes can be shown to an Envoy, else 0"
    metrics.register("preflight_available", text, lambda: not preflight.unavailable)
    metrics.register("preflights_waiting", "Preflights that wait for their turn", lambda: turns.waiting)
    return preflight


def _collaborators(  # noqa: PLR0913, PLR0917  # what the API is put together of
    settings: Settings,
    store: Store,
    service: ProxyService,
    proxy_door: ProxyDoor,
    keeper: AccessKeeper,
    about: ControlPlaneIdentity,
    members: Members,
) -> Collaborators:
    token_keys = proxy_door.offline_keys or OfflineKeys()
    works = WorkQueues.beside(service.reconciler.precedence)
    preflight = _preflight(settings, service.own_metrics, works.turns)
    return Collaborators(
        store=ObservedStore(store, service.own_metrics, service.traces),
        metrics=service.own_metrics,
        works=works,
        traces=service.traces,
        kinds=kinds(
            discover(),
            settings.policy_engine,
            derives_reachability=settings.auto_reachable_services,
            budget=settings.budget,
        ),
        state=service.state,
        observed=service.together.observed,
        alike_since=lambda: members.alike_since,
        about=about,
        circle=service.together.circle,
        envoys=service.together.envoys,
        for_proxies=_bootstrap_defaults(settings, service, proxy_door.certificate, token_keys),
        body_limit=settings.body_limit,
        access=AccessControl(
            lambda: keeper.rights,
            keys=lambda world: KeyRing.of(world, token_keys),
            is_on=settings.authentication != "none",
            localhost_is_admin=settings.localhost_is_admin,
            note_user=keeper.note_user,
        ),
        trusts_proxies=settings.proxy_authentication == "none",
        own_findings=lambda: (
            *keeper.findings,
            *service.trust.faults.values(),
            *service.together.peers.findings(),
            *exposures(settings),
            *unavailability(preflight, rejects_writes=settings.preflights_writes),
        ),
        moves_of=service.trust.moves,
        read_only=settings.read_only,
        preflight=preflight,
        preflights_writes=settings.preflights_writes,
        hosts=named_hosts(settings),
        issued_tokens=_issued_tokens(settings),
        offline_keys=token_keys,
        config=kuma_config(settings),
        page=PageFiles.read(is_on=settings.serves_page),
        engine=settings.policy_engine,
        companions=initial_policies,
    )

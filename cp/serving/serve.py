"""Serving proxies: the hub, the loop that fills it from the store, and the ADS server, started and ended together."""

from __future__ import annotations

import gc
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from operator import itemgetter

import grpc

from cp.access.keys import OfflineKeys
from cp.ads.admission import Doorkeeper
from cp.ads.hub import Hub
from cp.ads.server import AdsServer, ServerOptions, serving
from cp.files import read_file
from cp.identity.rotation import TrustTimes
from cp.metrics import Metrics
from cp.policies import discover
from cp.resources.assignment import rollouts_by_state
from cp.serving.background import in_background
from cp.serving.change_traces import ChangeTracer
from cp.serving.identities import Identities
from cp.serving.lag import Lag
from cp.serving.local_trust import LocalTrust
from cp.serving.observe import Observer
from cp.serving.own_names import own_names
from cp.serving.reconcile import Pace, Reconciler
from cp.serving.server_certificate import (
    ServedCertificate,
    ServerCertificate,
    UnusableCertificate,
    certificate_files,
)
from cp.serving.trust_keeper import TrustKeeper, TrustSources
from cp.serving.trust_proxies import ProxyPresences
from cp.serving.trust_records import TrustStore
from cp.settings import Settings, variable
from cp.store.files import FilesStore
from cp.store.observed import ObservedStore
from cp.store.port import Store
from cp.tracing.exporter import exported
from cp.tracing.spans import Attribute
from cp.tracing.writes import WriteTraces
from cp.version import VERSION

_COLLECTS_AFTER = (1_000, 2, 40_000)
"""Every thread waits while the garbage collector looks at the newest objects, and at all that each of them names: for
some a thousand names. So there are few of them at once, 1,000 and now and then 3,000. All objects are looked at seldom:
with Python's own thresholds a push to a thousand proxies, which makes some hundred thousand objects that live until it
is answered, looks like growth."""


_MOST_LATE_NAMED = 20


@dataclass(frozen=True, slots=True)
class ProxyServing:
    """The parts that serve proxies in this process, and the port."""

    reconciler: Reconciler
    observer: Observer
    metrics: Metrics
    port: int
    traces: WriteTraces | None
    """None: changes are not traced."""


def _as_is(store: Store) -> TrustStore:
    return store


@asynccontextmanager
async def reconciled(settings: Settings, store: Store) -> AsyncIterator[tuple[Hub, Reconciler]]:
    """A hub that is kept up to date for as long as the block lasts."""
    gc.set_threshold(*_COLLECTS_AFTER)
    metrics = Metrics()
    hub = Hub(metrics=metrics, drain_time=settings.listener_drain_time)
    pace = Pace(settings.quiet, settings.at_most)
    identities = Identities(metrics, time.time, random.random)
    reconciler = Reconciler(
        ObservedStore(store, metrics),
        hub,
        discover(),
        pace,
        identities=identities,
        checks_itself=settings.checks_itself,
        engine=settings.policy_engine,
        derives_reachability=settings.auto_reachable_services,
        budget=settings.budget,
    )
    _register(metrics, hub, reconciler)
    expiry = "Seconds until the first certificate of a connected proxy expires"
    metrics.register("certificates_remaining_seconds", expiry, identities.remaining, "mesh")
    part = "The part of its life that is left to the certificate of a connected proxy of which least is left"
    metrics.register("certificates_remaining_ratio", part, identities.remaining_ratio, "mesh")
    async with AsyncExitStack() as stack:
        for running in (reconciler.run(), hub.publisher.end_drains(), Lag(metrics).watch()):
            await stack.enter_async_context(in_background(running))
        yield hub, reconciler


def trust_keeper(
    settings: Settings,
    store: Store,
    reconciler: Reconciler,
    proxies: ProxyPresences,
    among: Callable[[Store], TrustStore] = _as_is,
) -> TrustKeeper:
    """Beside a folder, which takes no records, each process that serves proxies has records of its own.

    `among` is what stands before a store that is shared.
    """
    times, is_folder = TrustTimes(settings.trust_propagation, settings.trust_patience), isinstance(store, FilesStore)
    records: TrustStore = LocalTrust(reconciler.put_locally) if is_folder else among(store)
    return TrustKeeper(records, reconciler, proxies, TrustSources(read_file, times=times, forgets=is_folder))


def worker_trust(settings: Settings, store: Store, serving_: ProxyServing) -> AbstractAsyncContextManager[None]:
    """Keeps the records of a worker, unless the process that started it keeps those of all."""
    if not isinstance(store, FilesStore):
        return nullcontext()
    return in_background(trust_keeper(settings, store, serving_.reconciler, serving_.observer).run())


@dataclass(frozen=True, slots=True)
class ProxyDoor:
    """How proxies get in: what they are shown, and what they have to show."""

    certificate: ServerCertificate | None = None
    """None: they are served in plain text."""

    offline_keys: OfflineKeys | None = None


@asynccontextmanager
async def changes_traced(
    settings: Settings,
    hub: Hub,
    reconciler: Reconciler,
    observer: Observer | None = None,
    is_shared: Callable[[], bool] = lambda: False,
) -> AsyncIterator[WriteTraces | None]:
    """Sends a trace of each change for as long as the block lasts; None where nobody wants them."""
    with exported(settings.trace_collector, _about_process(settings.otel_service_name), hub.metrics) as sink:
        if sink is None:
            yield None
            return
        traces = WriteTraces(sink)
        tracer = ChangeTracer(hub.observer, traces, hub.publisher.now, is_shared=is_shared)
        reconciler.turned = tracer.turned
        async with in_background(tracer.run(observer)):
            yield traces


def _about_process(service: str) -> dict[str, Attribute]:
    host, process = socket.gethostname(), os.getpid()
    instance = {"service.instance.id": f"{host}:{process}", "host.name": host}
    return {"service.name": service, "service.version": VERSION, **instance, "process.pid": process}


@asynccontextmanager
async def proxies_served(  # noqa: PLR0913  # how proxies are served
    settings: Settings,
    store: Store,
    port: int,
    *,
    door: ProxyDoor = ProxyDoor(),
    shares_port: bool = False,
    is_shared: Callable[[], bool] = lambda: False,
) -> AsyncIterator[ProxyServing]:
    """An ADS server for as long as the block lasts, and while it drains.

    `is_shared`: whether other control planes serve what is in the store, too.
    """
    async with AsyncExitStack() as stack:
        hub, reconciler = await stack.enter_async_context(reconciled(settings, store))
        observer = Observer(hub, reconciler)
        await stack.enter_async_context(in_background(observer.log_nacks()))
        await stack.enter_async_context(in_background(observer.follow_changes()))
        traces = await stack.enter_async_context(changes_traced(settings, hub, reconciler, observer, is_shared))
        options = ServerOptions(
            host=settings.bind,
            port=port,
            credentials=None if door.certificate is None else _credentials(door.certificate),
            shares_port=shares_port,
            max_age=settings.stream_age or None,
            drain=settings.drain,
            most_streams=settings.most_streams or None,
            most_streams_of_address=settings.most_streams_of_address or None,
            most_streams_of_proxy=settings.most_streams_of_proxy or None,
            most_bytes_of_proxy=settings.most_bytes_of_proxy,
            most_unknown=settings.most_unknown,
            request_limit=settings.request_limit,
            doorkeeper=doorkeeper_of(settings, reconciler, door.offline_keys),
        )
        ads = await stack.enter_async_context(serving(hub, options, random.random, reconciler.knows))
        if options.doorkeeper is not None:
            await stack.enter_async_context(in_background(_keep_judging(ads, reconciler)))
        yield ProxyServing(reconciler, observer, hub.metrics, ads.port, traces)
        reconciler.is_stopping = True


@asynccontextmanager
async def certificate_kept(settings: Settings, *, is_owner: bool) -> AsyncIterator[ServerCertificate | None]:
    """The certificate of the servers while the block lasts; None where it is not needed.

    One process makes and renews it (`is_owner`), and others read what it made.
    """
    is_for_api = is_owner and settings.serves_https
    if not settings.serves_proxies_over_tls and not is_for_api:
        yield None
        return
    names = own_names(settings) if is_owner else frozenset[str]()
    files = certificate_files(settings)
    certificate = ServerCertificate.begun(files, names)
    hosts = [host for host, _ in settings.xds_hosts]  # of which others may have certificates of their own
    if settings.serves_proxies_over_tls and hosts and not any(map(certificate.current.is_for, hosts)):
        where = f"at which proxies are told to call ({variable('xds_host')})"
        raise UnusableCertificate(f"{files.certificate} is not for {settings.xds_host}, {where}")
    async with in_background(certificate.keep()):
        yield certificate


def _credentials(certificate: ServerCertificate) -> grpc.ServerCredentials:
    """TLS for proxies. gRPC asks at each connection whether there is another certificate."""
    given = certificate.current

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        if certificate.current is given:
            return None
        given = certificate.current
        return _configuration(given)

    return grpc.dynamic_ssl_server_credentials(_configuration(given), fetch)  # type: ignore[arg-type]  # it may be None


def _configuration(served: ServedCertificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(served.key, served.chain)])


def doorkeeper_of(
    settings: Settings,
    reconciler: Reconciler,
    offline_keys: OfflineKeys | None = None,
    *,
    waits_for_writes: bool = False,
) -> Doorkeeper | None:
    """Who may be served; None if everybody may. `waits_for_writes`: a key counts as soon as its write was answered."""
    if not settings.asks_proxies_for_tokens:
        return None
    return token_doorkeeper(settings, reconciler, offline_keys, waits_for_writes=waits_for_writes)


def token_doorkeeper(
    settings: Settings, reconciler: Reconciler, offline_keys: OfflineKeys | None = None, *, waits_for_writes: bool
) -> Doorkeeper:
    """Return a judge of tokens, whether proxies have to show them or not."""
    loaded = reconciler.current if waits_for_writes else reconciler.loaded
    tolerates = settings.tolerates_unnamed_rights
    return Doorkeeper(lambda: reconciler.world, loaded, time.time, offline_keys, tolerates_unnamed=tolerates)


async def _keep_judging(server: AdsServer, reconciler: Reconciler) -> None:
    """Judge streams again after each change, until cancelled."""
    await reconciler.loaded()
    while True:
        world = reconciler.world
        await server.judge()
        await reconciler.changed(world)


def _register(metrics: Metrics, hub: Hub, reconciler: Reconciler) -> None:
    """Metrics that are read from the hub and the reconciler when they are collected."""
    proxies = "Connected proxies: those in sync, those behind and those that refuse something"
    metrics.register("ads_streams", "Streams that are open", hub.observer.stream_counts, "stream")
    metrics.register("proxies", proxies, hub.observer.standings, "state")
    draining = "Resources that proxies keep only until the listeners that used them have drained"
    metrics.register("draining_resources", draining, hub.observer.draining_counts, "type")
    dropped = "Resources that were removed before the end of a drain time, to stay within the limits"
    metrics.register("draining_resources_dropped", dropped, hub.observer.dropped_early, grows=True)
    classes = "Classes of proxies that share their outbounds"
    metrics.register("classes", classes, lambda: sum(compiler.class_count for compiler in reconciler.compilers))

    fragments = "Fragments that some proxy has"
    metrics.register("fragments", fragments, lambda: sum(len(compiler.fragments) for compiler in reconciler.compilers))
    metrics.register("fragments_built", "Fragments built", lambda: reconciler.fragment_counts()[0], grows=True)
    reused = "Fragments that were there"
    metrics.register("fragments_reused", reused, lambda: reconciler.fragment_counts()[1], grows=True)
    taken = "Bytes that the destinations of a mesh take of its budget, of the meshes with the most"
    metrics.register("mesh_bytes", taken, lambda: _largest(reconciler.taken), "mesh")
    late = "Seconds for which the proxies of a mesh have waited for a change, where it takes too long"
    metrics.register("mesh_late_seconds", late, lambda: _longest(reconciler.late_meshes), "mesh")
    metrics.register("meshes_late", "Meshes of which this is so", lambda: len(reconciler.late_meshes))
    metrics.register("world_revision", "The revision of the store that is served", lambda: reconciler.world.revision)
    metrics.register("store_follows", "1 while the store can be read, else 0", lambda: int(reconciler.follows))
    metrics.register("rollouts", "Rollouts under way", lambda: reconciler.world.derived(rollouts_by_state), "state")
    metrics.register("world_resources", "Resources in force", lambda: reconciler.world.counts, "kind")


def _largest(taken: Mapping[str, int]) -> Mapping[str, int]:
    """Those of the meshes that take the most, so that the metric has a bounded number of labels."""
    return dict(nlargest(_MOST_LATE_NAMED, taken.items(), key=itemgetter(1)))


def _longest(seconds: Mapping[str, float]) -> Mapping[str, float]:
    """Those of the meshes that have waited longest, so that the metric has a bounded number of labels."""
    return dict(islice(seconds.items(), _MOST_LATE_NAMED))

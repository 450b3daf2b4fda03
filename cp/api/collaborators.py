"""What the HTTP API needs of the rest of the control plane, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import ref

from starlette.requests import Request

from cp.access.keys import OfflineKeys, Purpose
from cp.ads.admission import Doorkeeper
from cp.api.authentication import AccessControl
from cp.api.caller import ApiCaller
from cp.api.page import NO_PAGE, PageFiles
from cp.api.proxy_rates import ProxyRates
from cp.api.requirements import BOOTSTRAP
from cp.api.work import WorkQueues
from cp.metrics import Metrics
from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import Finding
from cp.resources.engine import DEFAULT_ENGINE, Engine
from cp.resources.kinds import Kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.agent_links import AgentLinks
from cp.serving.delivery import ChangeProgress, ChangeReach, Delivery, NackReport, Presence
from cp.serving.instances.circle import InstanceCircle
from cp.serving.instances.envoy_links import EnvoyLinks
from cp.serving.instances.observers import FleetRound
from cp.serving.preflight.preflight import Preflight
from cp.serving.server_certificate import ServedCertificate
from cp.serving.trust_moves import TrustMove
from cp.store.port import Contents, Store
from cp.tracing.writes import WriteTraces
from cp.translate.snapshot import Snapshot


class ServedState(Protocol):
    """What is in force right now."""

    async def current(self) -> World:
        """The World, with all in it that was written until now."""
        ...

    @property
    def loaded_world(self) -> World | None:
        """The World in force, without waiting for anything; None until the store has been read."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether the first World is there, and proxies are served."""
        ...

    @property
    def follows(self) -> bool:
        """Whether what is written now would be noticed, and nothing that was written in an outage is still missing."""
        ...

    @property
    def late_meshes(self) -> Mapping[str, float]:
        """The meshes whose proxies have waited too long for a change, and for how many seconds."""
        ...

    @property
    def is_stuck(self) -> bool:
        """True if no mesh gets any change."""
        ...

    @property
    def is_stopping(self) -> bool:
        """Whether proxies are being sent elsewhere, because this is the end."""
        ...

    async def snapshot(self, dataplane: Resource, *, is_certified_client: bool) -> Snapshot:
        """What a proxy is served now or, while it is not connected, would be served.

        `is_certified_client`: it is a gRPC client without a proxy whose library finds certificates.
        """
        ...


class ProxyObservations(Protocol):
    """What proxies make of what they are served."""

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        """Whether proxies are connected, and have all that they should have."""
        ...

    async def delivery(self, dataplane: Key) -> Delivery:
        """Where a proxy stands, type by type."""
        ...

    async def nack_reports(self) -> Iterable[NackReport]:
        """What proxies refuse."""
        ...

    async def reaches(self, revisions: Collection[int]) -> Sequence[Sequence[ChangeReach]]:
        """Whom some revisions reached, process by process."""
        ...

    async def fleets(self, versions: Mapping[str, int]) -> FleetRound:
        """How all proxies are, or those of which something has changed."""
        ...

    def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        """How far changes have come, until every proxy that they concern has answered."""
        ...


@dataclass(frozen=True, slots=True)
class ControlPlaneIdentity:
    """Which control plane this is."""

    hostname: str
    version: str
    instance: str
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class BootstrapDefaults:
    """What bootstrap configurations say of this control plane."""

    port: int
    hosts: Sequence[tuple[str, int]]
    """Where proxies find it and others on its store, each with its port; empty: where it was asked."""

    admin_address: str
    admin_port: int
    admin_unix_socket: bool
    certificate: Callable[[], ServedCertificate] | None = None
    """What the port for proxies shows now; None where it speaks plain text."""

    doorkeeper: Doorkeeper | None = None
    """Who has to show a token; None where nobody has to."""

    optional_doorkeeper: Doorkeeper | None = None
    """Verifies the token of a proxy that shows one though it need not: it opens its own Dataplane all the same."""


def _nothing(_document: Document) -> Iterable[Document]:
    return ()


async def _unmoved(_world: World, _mesh: str) -> Iterable[TrustMove]:
    return ()


class LastRead:
    """What was read last of a store, for as long as a request uses it: many that wait would else have a copy each."""

    def __init__(self) -> None:
        self._contents: ref[Contents] | None = None

    @property
    def contents(self) -> Contents | None:
        return None if self._contents is None else self._contents()

    def note(self, contents: Contents) -> None:
        self._contents = ref(contents)


@dataclass(frozen=True, slots=True)
class Collaborators:
    """Everything that the API is given."""

    store: Store
    kinds: Kinds
    state: ServedState
    observed: ProxyObservations
    about: ControlPlaneIdentity
    for_proxies: BootstrapDefaults
    body_limit: int
    access: AccessControl
    trusts_proxies: bool = False
    """Whether proxies from anywhere need no token, because the operator says so."""

    read_only: bool = False
    hosts: Collection[str] = ()
    """The names by which it may be called, beside addresses and `localhost`."""

    config: Mapping[str, Any] = field(default_factory=dict)
    issued_tokens: Collection[Purpose] = ("dataplane", "user", "zone")
    """Whom tokens are issued for."""

    offline_keys: OfflineKeys = field(default_factory=OfflineKeys)
    """The keys of the settings, for those who verify tokens."""

    metrics: Metrics = field(default_factory=Metrics)
    """Where it counts what it is asked."""

    traces: WriteTraces | None = None
    """Where it notes what it writes; None: nobody wants traces."""

    works: WorkQueues = field(default_factory=WorkQueues)
    proxy_rates: ProxyRates = field(default_factory=ProxyRates)
    """How often proxies send requests."""

    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    last_read: LastRead = field(default_factory=LastRead)

    circle: InstanceCircle | None = None
    """The control planes on one store; None where nobody asks for them."""

    envoys: EnvoyLinks = field(default_factory=lambda: EnvoyLinks(AgentLinks()))
    """Questions to Envoys, by way of their agents."""

    alike_since: Callable[[], float] = float
    """Since when this control plane is there and neither another one nor a worker has gone, in seconds since 1970."""

    own_findings: Callable[[], Iterable[Finding]] = tuple
    """What an operator should know about the control plane itself, such as a door that is open."""

    moves_of: Callable[[World, str], Awaitable[Iterable[TrustMove]]] = _unmoved
    """What goes on with mTLS in a mesh, and whom that waits for."""

    page: PageFiles = NO_PAGE
    """The page for browsers."""

    preflight: Preflight | None = None
    """The Envoy that can be shown what a write comes to; None where there is none."""

    preflights_writes: bool = False
    """Whether every write of people is shown to it first."""

    engine: Engine = DEFAULT_ENGINE
    """The policy engine of a new Mesh that names none."""

    companions: Callable[[Document], Iterable[Document]] = _nothing
    """What is stored together with a document that is new, such as the default policies of a Mesh."""

    @property
    def paths_of_proxies(self) -> Collection[str]:
        """The paths whose handlers ask for tokens of proxies, or which are for everybody who says to be a proxy."""
        return (BOOTSTRAP,) if self.for_proxies.doorkeeper is not None or self.trusts_proxies else ()

    @property
    def paths_judged_by_handlers(self) -> Collection[str]:
        """The paths whose handlers decide who may ask: also where proxies need no token, one may show one."""
        return self.paths_of_proxies if self.for_proxies.optional_doorkeeper is None else (BOOTSTRAP,)

    def is_of_proxy(self, caller: ApiCaller) -> bool:
        """Whether somebody who says to be a run of a proxy can be one: where proxies show tokens, who shows one."""
        return caller.proxy is not None or self.for_proxies.doorkeeper is None

    @property
    def follows(self) -> bool:
        """Whether the store can be read, and what is served is what is stored but for what was written just now."""
        return not self.store.outage and self.state.follows

    async def moves(self, world: World, meshes: Iterable[str]) -> list[TrustMove]:
        """What goes on with mTLS in some meshes."""
        return [move for mesh in meshes for move in await self.moves_of(world, mesh)]

    async def contents(self, request: Request) -> Contents:
        """Everything that is stored, read for one request after the other: what reads one document is between them.

        Who waits for it counts among those who ask for resources, as it takes long where many are stored.
        """
        return await self.works.resources.wait(request, self._read)

    async def _read(self) -> Contents:
        async with self.reading:
            known = self.last_read.contents
            if known is not None and known.revision == await self.store.revision():
                return known
            contents = await self.store.read()
            self.last_read.note(contents)
            return contents

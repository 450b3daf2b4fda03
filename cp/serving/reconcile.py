"""`Reconciler`: the one loop that follows the store and the hub, and has a turn computed and published after changes.

Changes that come close together are one turn. Turns are computed in a thread (`cp.serving.turn`), one after the other,
so that streams and requests go on meanwhile; what they computed is handed to the hub on the event loop
(`cp.serving.publisher`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

import structlog

from cp.ads.hub import Hub
from cp.identity.leaf import Certificate
from cp.identity.trust import trust_of
from cp.model.document import Document
from cp.model.failure import Failure
from cp.model.names import Key, dataplane_key
from cp.model.secret_names import trust_key
from cp.policies import Policies, kinds
from cp.resources.engine import DEFAULT_ENGINE, Engine
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.finding_log import log_findings_of_all, log_findings_of_changes
from cp.serving.identities import Identities
from cp.serving.publications import Publication, PublicationLog
from cp.serving.publisher import Publisher
from cp.serving.turn import PendingChanges, TurnCompiler, TurnRecord
from cp.store.port import Change, ChangeBatch, Closed, Contents, Outdated, Store, Unusable
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.snapshot import Snapshot

T = TypeVar("T")

_NEVER: Final = datetime.fromtimestamp(0, UTC)

_PAUSE: Final = 0.2
"""Seconds until the store is asked again that is away when everything has to be read anew."""

_CERTIFICATES_EVERY: Final = 0.5
"""Seconds after which it is looked again which certificates are due."""

PATIENCE: Final = 2.0
"""Seconds for which a reader waits until what was written before is in the World."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long changes wait for others to be served together with them, in seconds."""

    quiet: float = 0.005
    """Until no further change comes."""

    at_most: float = 0.1


class Reconciler:
    """Keeps the World that the store describes, and the newest snapshot of every connected proxy in the hub."""

    def __init__(  # noqa: PLR0913  # what it connects
        self,
        store: Store,
        hub: Hub,
        policies: Policies,
        pace: Pace = Pace(),
        *,
        identities: Identities | None = None,
        checks_itself: bool = False,
        engine: Engine = DEFAULT_ENGINE,
        derives_reachability: bool = False,
    ) -> None:
        """Without `identities` no proxy gets a certificate. `engine` is that of a Mesh that names none.

        `derives_reachability`: as in `Kinds`.
        """
        self._store = store
        self._hub = hub.publisher
        self._kinds = kinds(policies, engine, derives_reachability=derives_reachability)
        self._identities = identities
        self._turn_compiler = TurnCompiler(policies, hub.metrics, identities, checks_itself=checks_itself)
        self._publisher = Publisher(hub)
        self._pace = pace
        self._pending = PendingChanges()
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="koguma-reconcile")
        self._computing = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._log = structlog.get_logger()
        self._world: World | None = None
        self._empty_world = World.of((), self._kinds)
        self._local: dict[Key, Document] = {}
        """What is in the World and in no store."""

        self._next_world = asyncio.Event()
        self._followed = 0
        self._overdue: PendingChanges | None = None
        """What was written while the store could not be followed, until it is served."""

        self._next_batch = asyncio.Event()
        self.publications = PublicationLog()
        self.turned: Callable[[TurnRecord], None] | None = None
        """Told of each turn that changes the World, when all of it is handed over."""

        self.is_stopping = False

    @property
    def world(self) -> World:
        return self._empty_world if self._world is None else self._world

    @property
    def loaded_world(self) -> World | None:
        """The World in force; None until the store has been read."""
        return self._world

    @property
    def follows(self) -> bool:
        """Whether what is written now would be noticed, and what was written while it would not have been is served."""
        return self._world is not None and not self._store.outage and self._overdue is None

    @property
    def is_ready(self) -> bool:
        return self._world is not None and not self.is_stopping

    def knows(self, proxy: str) -> bool:
        """Whether a proxy has a Dataplane; of every proxy until the store has been read for the first time."""
        return self._world is None or self._world.get(dataplane_key(proxy)) is not None

    @property
    def compiler(self) -> Compiler:
        return self._turn_compiler.compiler

    @property
    def failures(self) -> Mapping[str, tuple[Failure, ...]]:
        """What cannot be made for connected proxies, by faults of ours; proxies without a failure are left out."""
        return self._publisher.failures

    def certificate(self, proxy: str) -> Certificate | None:
        """What a connected proxy shows to others of its mesh, without its key."""
        certificate = None if self._identities is None else self._identities.certificate(proxy)
        if certificate is None:
            return None
        record = trust_of(self.world.get(trust_key(certificate.mesh)))
        return replace(certificate, trusted=tuple(dict.fromkeys(root.backend for root in record.roots)))

    async def current(self) -> World:
        """The World, with all in it that was written until now, unless that takes too long."""
        with suppress(Unusable, Closed):  # what is in force can be asked for all the same
            await self.wait_for_revision(await self._store.revision(), PATIENCE)
        return self.world

    async def wait_for_change(self, world: World, within: float) -> None:
        """Wait for another World than this, or until so many seconds have passed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self.world is world:
                    await self._next_world.wait()

    async def loaded(self) -> None:
        """Wait until the store has been read for the first time."""
        while self._world is None:
            await self._next_world.wait()

    async def changed(self, world: World) -> None:
        """Wait until there is another World than this one."""
        while self.world is world:
            await self._next_world.wait()

    async def wait_for_revision(self, revision: int, within: float) -> bool:
        """Whether, within so many seconds, a World has what was written up to this revision and is published."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._world is None or self._world.revision < revision:
                    await self._next_world.wait()
        return self._world is not None and self._world.revision >= revision

    def put_locally(self, key: Key, document: Document | None) -> None:
        """Have a document in the World of this process that is in no store, until the process ends."""
        change = Change(self._followed, key, self._local.pop(key, None), document, _NEVER)
        if document is not None:
            self._local[key] = document
        findings = self._pending.batches[-1].findings if self._pending.batches else tuple(self.world.store_findings)
        self._pending.batches.append(ChangeBatch(self._followed, (change,), findings))
        self._wake.set()

    async def snapshot(self, dataplane: Resource, *, is_certified_client: bool = False) -> Snapshot:
        """What a proxy is served or, while it is not connected, would be."""
        async with self._between_turns():
            certified = self._publisher.certified_clients - {dataplane.key}
            # Another process may serve it, so what this one knows of connections is not enough.
            certified |= {dataplane.key} if is_certified_client else set()
            return await self._in_thread(self._turn_compiler.snapshot, self.world, dataplane, certified)

    async def compiled(self, proxies: Iterable[str]) -> tuple[World, Mapping[str, CompiledProxy]]:
        """What some proxies are served and why, and the World in force: a rollout may have assigned them another."""
        async with self._between_turns():
            return self.world, await self._in_thread(self._turn_compiler.compiled, self.world, tuple(proxies))

    @asynccontextmanager
    async def _between_turns(self) -> AsyncIterator[None]:
        """Use the compiler while no turn does. However many ask, a turn waits for one of them at the most."""
        # A lock is given to those that wait in their order. Only the first of those that ask waits for `_computing`,
        # so the next turn stands right behind it, and not behind all others that ask.
        async with self._asking, self._computing:
            yield

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in a thread that is for nothing else, so that no request to the API delays it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(function, *arguments))

    async def run(self) -> None:
        """Follow the store and the hub until cancelled."""
        try:
            contents = await self._store.read()
            self._follow_to(contents.revision)
            self._enter(await self._read(contents))
            async with asyncio.TaskGroup() as running:
                running.create_task(self._follow_store(contents.revision))
                running.create_task(self._follow_hub())
                running.create_task(self._follow_certificates())
                running.create_task(self._turns())
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _read(self, contents: Contents) -> World:
        documents = [*self._local.values(), *(stored.document for stored in contents.stored)]
        world = await self._in_thread(World.of, documents, self._kinds, contents.revision, contents.findings)
        log_findings_of_all(world)
        self._log.info("world.loaded", revision=contents.revision, resources=len(documents))
        return world

    async def _follow_store(self, since: int) -> None:
        while True:
            try:
                async for batch in self._store.follow(since):
                    self._pending.batches.append(batch)
                    self._overdue = self._pending if self._store.outage else self._overdue
                    self._pending.noticed_at = self._pending.noticed_at or monotonic()
                    self._follow_to(batch.revision)
                    self._wake.set()
            except Outdated:  # the store no longer keeps the changes since then: read everything again
                self._overdue = PendingChanges()  # which nobody serves
                contents = await self._read_anew()
                since = contents.revision
                self._pending = PendingChanges(contents, [], self._pending.arrived, self._pending.renewals, monotonic())
                self._overdue = self._pending
                self._follow_to(since)
                self._wake.set()

    async def _read_anew(self) -> Contents:
        while True:
            try:
                return await self._store.read()
            except Unusable:  # away, as it may well be in the time of a failover: what was read before stays in force
                await asyncio.sleep(_PAUSE)

    def _follow_to(self, revision: int) -> None:
        """Note that everything written up to a revision is in the World or in `_pending`."""
        self._followed = revision
        self._next_batch.set()
        self._next_batch = asyncio.Event()

    async def _wait_for_store(self) -> None:
        """Wait until everything written until now is in `_pending`, unless that takes too long."""
        with suppress(Unusable, Closed, TimeoutError):
            revision = await self._store.revision()
            async with asyncio.timeout(PATIENCE):
                while self._followed < revision:
                    await self._next_batch.wait()

    async def _follow_hub(self) -> None:
        while True:
            arrived = await self._hub.arrivals()  # first, because what is pending is another object after a turn
            self._pending.arrived |= dict.fromkeys(arrived)
            self._wake.set()

    async def _follow_certificates(self) -> None:
        while self._identities is not None:
            await asyncio.sleep(_CERTIFICATES_EVERY)
            due = self._identities.due()
            if due:
                self._pending.renewals |= due
                self._wake.set()

    async def _turns(self) -> None:
        while True:
            await self._wake.wait()
            await self._until_quiet()
            if self._pending.arrived:
                # A proxy that comes back is sent what this turn computes. Without the wait that could be from before a
                # write of which `--wait` has said already that every connected proxy has it.
                await self._wait_for_store()
            self._wake.clear()
            pending, self._pending = self._pending, PendingChanges()
            async with self._computing:
                await self._turn(pending)

    async def _until_quiet(self) -> None:
        """Wait for changes that belong together, such as those of one file that is being applied."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._pace.at_most
        batches_before = -1
        while batches_before != len(self._pending.batches) and loop.time() < deadline:
            batches_before = len(self._pending.batches)
            await asyncio.sleep(self._pace.quiet)

    async def _turn(self, pending: PendingChanges) -> None:
        # Everything behind the computation happens without an await: whoever waits for the new World finds the hub, the
        # publications and the failures in the state that belongs to it.
        began = monotonic()
        world_before = self.world
        departed = self._publisher.update_connected(pending.arrived)
        if pending.contents is not None:
            world_before = await self._read(pending.contents)
        connected = self._publisher.connected
        concerned = connected if pending.concern_everybody else pending.arrived.keys() | pending.renewals
        proxies = tuple(proxy for proxy in connected if proxy in concerned)
        certified = self._publisher.certified_clients
        result = await self._in_thread(self._turn_compiler.compute, world_before, pending.batches, proxies, certified)
        computed = monotonic()
        self._hub.metrics.turn.observe(computed - began)
        publication, published = self._publisher.publish(
            pending, result, self.world, arrived_meanwhile=self._pending.arrived
        )
        if pending.concern_everybody or departed:
            self._turn_compiler.keep_only(result.world, map(dataplane_key, connected))
        if self._identities is not None:
            self._publisher.withdraw(self._identities.forget(departed))
            self._identities.forget_signers(result.world)
        self._publisher.keep_failures(result.failures, departed)
        self._enter(result.world, publication)
        if self._overdue is pending:
            self._overdue = None
        self._publisher.forget_gone(self.world, departed, publication.changed)
        if self.turned is not None and publication.revision > publication.previous_revision:
            self.turned(_record(pending, publication, self._hub.now(), (began, computed)))
        if pending.batches:
            log_findings_of_changes(world_before, result.world, pending.batches)
            elapsed = round((monotonic() - began) * 1000, 1)
            self._log.info(
                "world.changed",
                revision=result.world.revision,
                resources=list(pending.resources),
                changed=len(publication.changed),
                users=list(pending.authors),
                proxies=published,
                milliseconds=elapsed,
            )

    def _enter(self, world: World, publication: Publication | None = None) -> None:
        self._world = world
        if publication is not None and publication.revision > publication.previous_revision:
            self.publications.add(publication)
        self._next_world.set()
        self._next_world = asyncio.Event()


def _record(pending: PendingChanges, publication: Publication, now: float, moments: tuple[float, float]) -> TurnRecord:
    """`moments` are when the turn began and had computed, of `monotonic`; `now` is on the clock of the hub."""
    offset, (began, computed) = now - monotonic(), moments
    return TurnRecord(
        publication=publication,
        noticed=offset + (pending.noticed_at or began),
        began=offset + began,
        computed=offset + computed,
        published=now,
        written_at=pending.written_at,
        resources=pending.resources,
        authors=pending.authors,
    )

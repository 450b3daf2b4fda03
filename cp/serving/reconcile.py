"""`Reconciler`: the one loop that follows the store and the hub, and has a turn computed and published after changes.

Changes that come close together are one turn. A turn makes the next World and computes the proxies of each mesh that
they concern, one mesh after the other, in threads, so that streams and requests go on meanwhile. The results are handed
to the hub on the event loop (`cp.serving.publisher`).

A mesh that takes long while another one waits is set aside: its computation goes on, the turn ends without it, and its
proxies are given the result when there is one. Nothing of a mesh is published before all of it is (record 0095).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
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
from cp.resources.limits import DEFAULT_BUDGET, Budget
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.finding_log import log_findings_of_all, log_findings_of_changes
from cp.serving.identities import Identities
from cp.serving.mesh_lanes import LaneWork, MeshLane
from cp.serving.publications import Publication, PublicationLog
from cp.serving.publisher import Publisher
from cp.serving.turn import PendingChanges, TurnCompiler, TurnRecord, TurnResult, advanced, combined
from cp.store.port import Change, ChangeBatch, Closed, Contents, Outdated, Store, Unusable
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.snapshot import Snapshot

T = TypeVar("T")

_NEVER: Final = datetime.fromtimestamp(0, UTC)

_PAUSE: Final = 0.2
"""Seconds until the store is asked again that is away when everything has to be read anew."""

_CERTIFICATES_EVERY: Final = 0.5
"""Seconds after which it is looked again which certificates are due."""

GRACE: Final = 0.25
"""Seconds that a turn waits for the proxies of one mesh while those of another mesh wait."""

_SHORT_GRACE: Final = 0.05
"""The same, once a mesh of that turn has been set aside."""

_LOOKS_EVERY: Final = 0.02
"""Seconds after which a turn that waits for a mesh checks whether another one waits."""

_REPORTS_EVERY: Final = 1.0
LATE_AFTER: Final = 5.0
"""Seconds after which changes that a mesh has not been given are reported."""

STUCK_AFTER: Final = 60.0
"""Seconds after which a World that is not finished is: no mesh gets any change meanwhile."""

_MOST_THREADS: Final = 1024
"""More than there are ever at work: one for each mesh that is set aside, for each question, and for a turn."""

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
        budget: Budget = DEFAULT_BUDGET,
    ) -> None:
        """Without `identities` no proxy gets a certificate. `engine` is that of a Mesh that names none.

        `derives_reachability` and `budget`: as in `Kinds`.
        """
        self._store = store
        self._hub = hub.publisher
        self.precedence = hub.precedence
        self._kinds = kinds(policies, engine, derives_reachability=derives_reachability, budget=budget)
        self._identities = identities
        self._turn_compiler = partial(TurnCompiler, policies, hub.metrics, identities, checks_itself=checks_itself)
        self._lanes: dict[str, MeshLane] = {}
        self._forgotten_counts = (0, 0)
        self._publisher = Publisher(hub)
        self._pace = pace
        self._pending = PendingChanges()
        self._in_turn: PendingChanges | None = None
        """The changes of the turn that makes its World, before the lanes have them."""

        self._wake = asyncio.Event()
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="koguma-reconcile")
        self._computing = asyncio.Lock()
        """Held during a turn."""

        self._running = asyncio.TaskGroup()
        self._advancing_since: float | None = None
        self._readers = 0
        """How many wait for a World."""

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
    def compilers(self) -> tuple[Compiler, ...]:
        """Those of all meshes with connected proxies."""
        return tuple(lane.turns.compiler for lane in self._lanes.values())

    @property
    def taken(self) -> Mapping[str, int]:
        """The bytes that the destinations of meshes with connected proxies take of their budgets."""
        return {mesh: lane.turns.compiler.taken.get(mesh, 0) for mesh, lane in self._lanes.items()}

    def fragment_counts(self) -> tuple[int, int]:
        """How many fragments were built, and how many were there already."""
        caches = [compiler.fragments for compiler in self.compilers]
        built, reused = self._forgotten_counts
        return built + sum(cache.built for cache in caches), reused + sum(cache.reused for cache in caches)

    def lane(self, mesh: str) -> MeshLane:
        """The lane of a mesh. One that is new is kept until a change concerns a mesh without connected proxies."""
        if mesh not in self._lanes:
            self._lanes[mesh] = MeshLane(mesh, self._turn_compiler(), self.precedence)
        return self._lanes[mesh]

    @property
    def late_meshes(self) -> Mapping[str, float]:
        """The meshes that have waited too long for a change, and for how many seconds: the longest first."""
        now = monotonic()
        waiting = {lane.mesh: now - lane.since for lane in self._lanes.values() if lane.since is not None}
        late = {mesh: seconds for mesh, seconds in waiting.items() if seconds >= LATE_AFTER}
        return dict(sorted(late.items(), key=lambda item: (-item[1], item[0])))

    @property
    def is_stuck(self) -> bool:
        """True if no mesh gets any change, as the next World has taken too long already."""
        return self._advancing_since is not None and monotonic() - self._advancing_since > STUCK_AFTER

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
        """Whether, within so many seconds, a World has what was written up to this revision.

        It is published then, except in meshes that are set aside.
        """
        self._readers += 1
        try:
            return await self._wait_until(lambda: self._world is not None and self._world.revision >= revision, within)
        finally:
            self._readers -= 1

    async def wait_for_publication(
        self, revisions: Collection[int], meshes: Collection[str], within: float
    ) -> tuple[bool, int]:
        """Wait until some revisions are published in some meshes or, without any, in all meshes that they concern.

        Without revisions: all that is written now. Returns also up to which revision it is published there.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        if not await self.wait_for_revision(max(revisions, default=0), within):
            return False, self.world.revision
        asked, newest = frozenset(revisions), self.world.revision

        def missing() -> list[int]:
            lanes = [lane for lane in self._lanes.values() if not meshes or lane.mesh in meshes]
            return [revision for lane in lanes for revision in lane.unpublished(asked, newest)]

        is_published = await self._wait_until(lambda: not missing(), deadline - loop.time())
        return is_published, min(missing(), default=self.world.revision + 1) - 1

    async def _wait_until(self, is_met: Callable[[], bool], within: float) -> bool:
        """Whether something is met within so many seconds that only a publication can bring about."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while not is_met():
                    await self._next_world.wait()
        return is_met()

    def put_locally(self, key: Key, document: Document | None) -> None:
        """Have a document in the World of this process that is in no store, until the process ends."""
        change = Change(self._followed, key, self._local.pop(key, None), document, _NEVER)
        if document is not None:
            self._local[key] = document
        findings = self._pending.batches[-1].findings if self._pending.batches else tuple(self.world.store_findings)
        self._pending.batches.append(ChangeBatch(self._followed, (change,), findings))
        self._wake.set()

    async def snapshot(self, dataplane: Resource, *, is_certified_client: bool) -> Snapshot:
        """What a proxy is served or, while it is not connected, would be."""
        lane = self.lane(dataplane.mesh)
        certified = self._publisher.certified_clients - {dataplane.key}
        # Another process may serve it, so what this one knows of connections is not enough.
        certified |= {dataplane.key} if is_certified_client else set()
        return await self._ask(lane, lane.snapshot, dataplane, certified)

    async def compiled(self, proxies: Iterable[str]) -> Mapping[str, tuple[World, CompiledProxy]]:
        """What some proxies are served, each with the World from which it is: a rollout may have assigned another.

        Proxies of a mesh that is set aside are left out.
        """
        by_mesh: dict[str, list[str]] = {}
        for proxy in proxies:
            by_mesh.setdefault(dataplane_key(proxy).mesh, []).append(proxy)
        compiled: dict[str, tuple[World, CompiledProxy]] = {}
        for mesh, of_mesh in by_mesh.items():
            compiled |= await self._unless_set_aside(self.lane(mesh), of_mesh)
        return compiled

    async def _unless_set_aside(
        self, lane: MeshLane, proxies: Collection[str]
    ) -> Mapping[str, tuple[World, CompiledProxy]]:
        """Some proxies of a mesh; none as soon as the mesh is set aside."""
        asking = asyncio.get_running_loop().create_task(self._ask(lane, lane.compiled, proxies))
        try:
            while not lane.is_set_aside and not asking.done():
                await asyncio.wait({asking}, timeout=_LOOKS_EVERY)
            return asking.result() if asking.done() else {}
        finally:
            asking.cancel()

    async def _ask(self, lane: MeshLane, function: Callable[..., T], *arguments: Any) -> T:
        """Ask the compiler of a mesh. However many ask, a turn waits for one of them at the most."""
        await lane.asking.acquire()
        # In the context of the caller, which has its checkpoint.
        answer = self._in_thread(copy_context().run, function, self.world, *arguments)
        # A question goes on in its thread when no caller waits for it any more. Until then, no other one is begun.
        answer.add_done_callback(lambda _: lane.asking.release())
        return await asyncio.shield(answer)

    def _in_thread(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Call a function in a thread that no request to the API can keep busy."""
        return asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *arguments))

    async def run(self) -> None:
        """Follow the store and the hub until cancelled."""
        try:
            contents = await self._store.read()
            self._follow_to(contents.revision)
            self._world = await self._read(contents)
            self._next_world.set()
            self._next_world = asyncio.Event()
            async with self._running as running:
                running.create_task(self._follow_store(contents.revision))
                running.create_task(self._follow_hub())
                running.create_task(self._follow_certificates())
                running.create_task(self._turns())
                running.create_task(self._report_late())
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

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
            self._in_turn = pending
            async with self._computing:
                with self.precedence.claimed():
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
        departed = self._publisher.update_connected(pending.arrived)
        world = await self._next(pending)
        results = await self._computed(pending, departed, world)
        computed = monotonic()
        self._hub.metrics.turn.observe(computed - began)
        late = frozenset(lane.mesh for lane in self._lanes.values() if lane.is_set_aside)
        part, world_before = pending.without(late), self.world
        publication = self._publish(part, combined(world, results), world_before, departed)
        if self._identities is not None:
            self._identities.forget_signers(world)
        self._forget_lanes(pending, departed)
        self._world = world
        if self._overdue is pending:
            self._overdue = None
        self._announce(part, publication, (began, computed))
        if pending.batches:
            log_findings_of_changes(world_before, world, pending.batches)

    async def _next(self, pending: PendingChanges) -> World:
        """The World with all changes."""
        self._advancing_since = monotonic()
        try:
            world = self.world if pending.contents is None else await self._read(pending.contents)
            return await self._in_thread(advanced, world, pending.batches)
        finally:
            self._advancing_since = None

    async def _computed(self, pending: PendingChanges, departed: Iterable[str], world: World) -> list[TurnResult]:
        """The results for each mesh that is concerned, the quickest first, but for those that are set aside."""
        concerned = dict(self._concerned(pending, departed, world))
        self._in_turn = None
        waiting = sorted(concerned, key=lambda lane: (lane.seconds, lane.mesh))
        results: list[TurnResult] = []
        grace = GRACE
        for number, lane in enumerate(waiting, 1):
            computation = self._computation(lane, concerned[lane])
            is_alone = number == len(waiting) and not results
            if await self._is_in_time(lane, computation, grace, is_alone=is_alone):
                results.append(computation.result())
                self._report_caught_up(lane)
                lane.finish()
            else:
                lane.is_set_aside, grace = True, _SHORT_GRACE
                self._hub.note_late(lane.mesh)
                self._running.create_task(self._finish(lane, computation))
        return results

    def _concerned(
        self, pending: PendingChanges, departed: Iterable[str], world: World
    ) -> Iterator[tuple[MeshLane, LaneWork]]:
        """The lanes of the meshes that changes concern. Those that are set aside take the changes, and go on."""
        left = {dataplane_key(proxy).mesh for proxy in departed}
        set_aside = [mesh for mesh, lane in self._lanes.items() if lane.is_set_aside]  # also without proxies by now
        for mesh in dict.fromkeys((*self._publisher.meshes, *set_aside)):
            if pending.concern(mesh) or mesh in left:
                lane = self.lane(mesh)
                work = lane.add(pending, self.world, world)
                if not lane.is_set_aside:
                    yield lane, work

    def _computation(self, lane: MeshLane, work: LaneWork) -> asyncio.Future[TurnResult]:
        connected = tuple(self._publisher.connected(lane.mesh))
        return self._in_thread(lane.compute, work, connected, self._publisher.certified_clients)

    async def _is_in_time(
        self, lane: MeshLane, computation: asyncio.Future[TurnResult], grace: float, *, is_alone: bool
    ) -> bool:
        """Wait for the computation of a mesh. Returns False if it takes long and another mesh waits."""
        await asyncio.wait({computation}, timeout=grace)
        while not computation.done() and is_alone and not self._another_waits(lane.mesh):
            await asyncio.wait({computation}, timeout=_LOOKS_EVERY)
        return computation.done()

    def _another_waits(self, mesh: str) -> bool:
        """True if what has happened since the turn began concerns another mesh, or a reader waits who may."""
        other_meshes, pending = self._lanes.keys() - {mesh}, self._pending
        return (
            any(key.mesh not in {"", mesh} for key in pending.changed_keys)
            or any(dataplane_key(proxy).mesh != mesh for proxy in (*pending.arrived, *pending.renewals))
            or any(map(pending.concern, other_meshes))
            or (self._readers > 0 and len(other_meshes) > 0)
        )

    async def _finish(self, lane: MeshLane, computation: asyncio.Future[TurnResult]) -> None:
        """Publish what the proxies of a mesh that is set aside wait for, until they have been given everything."""
        while (work := lane.current) is not None:
            result, computed, began = await computation, monotonic(), lane.since or monotonic()
            self._hub.metrics.turn.observe(computed - began)
            departed = frozenset(proxy for proxy in result.failures if not self._hub.is_connected(proxy))
            publication = self._publish(work.pending, result, work.before, departed, mesh=lane.mesh)
            self._report_caught_up(lane)
            lane.finish()
            if not lane.is_set_aside:
                self._hub.note_caught_up(lane.mesh)
            self._announce(work.pending, publication, (began, computed))
            if lane.current is not None:
                computation = self._computation(lane, lane.current)
        if lane.mesh not in self._publisher.meshes:  # nothing would tell it of changes
            self._forget(lane.mesh)

    def _publish(
        self,
        pending: PendingChanges,
        result: TurnResult,
        world_before: World,
        departed: frozenset[str],
        *,
        mesh: str = "",
    ) -> Publication:
        """Hand a result to the hub. `mesh` is the only one that it is about, of those that were set aside."""
        later = (work.pending.arrived for lane in self._lanes.values() if (work := lane.next) is not None)
        in_turn = () if self._in_turn is None else self._in_turn.arrived
        meanwhile = {*self._pending.arrived, *in_turn, *chain.from_iterable(later)}
        publication = self._publisher.publish(pending, result, world_before, arrived_meanwhile=meanwhile, mesh=mesh)
        if self._identities is not None:
            self._publisher.withdraw(self._identities.forget(departed))
        self._publisher.keep_failures(result.failures, departed)
        self._publisher.forget_gone(result.world, departed, publication.changed)
        return publication

    def _forget_lanes(self, pending: PendingChanges, departed: Iterable[str]) -> None:
        """Forget the compilers of meshes without connected proxies: nothing tells them of changes."""
        left = {dataplane_key(proxy).mesh for proxy in departed}
        for mesh in self._lanes.keys() - self._publisher.meshes:
            if not self._lanes[mesh].is_set_aside and (mesh in left or pending.concern(mesh)):
                self._forget(mesh)

    def _forget(self, mesh: str) -> None:
        fragments = self._lanes.pop(mesh).turns.compiler.fragments
        built, reused = self._forgotten_counts
        self._forgotten_counts = built + fragments.built, reused + fragments.reused

    def _announce(self, pending: PendingChanges, publication: Publication, moments: tuple[float, float]) -> None:
        """Tell everyone who waits for a publication, and the log. `moments`: as in `_record`."""
        if publication.revision > publication.previous_revision:
            self.publications.add(publication)
            if self.turned is not None:
                self.turned(_record(pending, publication, self._hub.now(), moments))
        self._next_world.set()
        self._next_world = asyncio.Event()
        if pending.batches:
            self._log.info(
                "world.changed",
                revision=publication.revision,
                mesh=publication.mesh or None,
                resources=list(pending.resources),
                changed=len(publication.changed),
                users=list(pending.authors),
                proxies=len(publication.proxies) + len(publication.newcomers),
                milliseconds=round((monotonic() - moments[0]) * 1000, 1),
            )

    async def _report_late(self) -> None:
        """Log each mesh whose proxies have not been given a change for too long, once."""
        while True:
            await asyncio.sleep(_REPORTS_EVERY)
            for mesh, seconds in self.late_meshes.items():
                lane = self._lanes[mesh]
                if not lane.is_reported and lane.current is not None:
                    lane.is_reported = True
                    pending = lane.current.pending
                    changed = {"resources": list(pending.resources)} if pending.resources else {}
                    self._log.warning("mesh.late", mesh=mesh, seconds=round(seconds, 1), cause=pending.cause, **changed)

    def _report_caught_up(self, lane: MeshLane) -> None:
        if lane.is_reported and lane.since is not None:
            lane.is_reported = False
            self._log.info("mesh.caught_up", mesh=lane.mesh, seconds=round(monotonic() - lane.since, 1))


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

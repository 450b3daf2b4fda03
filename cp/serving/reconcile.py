"""The one loop: what changed in the store, or who connected, becomes the next World and newer snapshots in the hub.

Changes that come close together are one turn. Turns are computed in a thread, one after the other, so that streams and
requests go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

import structlog

from cp.ads.hub import Hub
from cp.model.document import Document
from cp.model.failure import Failure, failure
from cp.model.names import Key
from cp.model.violation import Finding
from cp.policies import Policies, kinds
from cp.resources.initial_policies import is_initial
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.publications import Publication, PublicationLog
from cp.store.port import ChangeBatch, Closed, Contents, Outdated, Store, Unusable
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.packing import TYPES
from cp.translate.snapshot import Snapshot

T = TypeVar("T")

PATIENCE: Final = 2.0
"""Seconds for which whoever reads waits for what was written before."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to wait for more, in seconds: until nothing comes any more, and at the most."""

    quiet: float = 0.005
    at_most: float = 0.1


@dataclass(frozen=True, slots=True)
class _Computed:
    """What a turn came to."""

    world: World
    snapshots: Mapping[str, Snapshot]
    failures: Mapping[str, tuple[Failure, ...]]
    """What could not be made, of each of the proxies that were looked at; of most nothing."""


@dataclass(slots=True)
class _Pending:
    """What happened since the last turn."""

    contents: Contents | None = None
    """Everything, where the changes alone would not tell; what follows comes after it."""

    batches: list[ChangeBatch] = field(default_factory=list)
    arrived: dict[str, None] = field(default_factory=dict)
    since: float | None = None
    """When the first of the changes was noticed."""


class Reconciler:
    """Keeps the World that the store describes, and the newest snapshot of every connected proxy in the hub."""

    def __init__(
        self, store: Store, hub: Hub, policies: Policies, pace: Pace = Pace(), *, checks_itself: bool = False
    ) -> None:
        self._store = store
        self._hub = hub
        self._policies = policies
        self._kinds = kinds(policies)
        self._compiler = Compiler(policies)
        self._checks_itself = checks_itself
        self._pace = pace
        self._pending = _Pending()
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="koguma-reconcile")
        self._computing = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._connected: dict[str, None] = {}
        self._log = structlog.get_logger()
        self._world: World | None = None
        self._next_world = asyncio.Event()
        self._failures: dict[str, tuple[Failure, ...]] = {}
        self._followed = 0
        self._next_batch = asyncio.Event()
        self.editions = PublicationLog()
        self.is_stopping = False

    @property
    def world(self) -> World:
        return self._world if self._world is not None else World.of((), self._kinds)

    @property
    def is_ready(self) -> bool:
        return self._world is not None and not self.is_stopping

    def knows(self, proxy: str) -> bool:
        """Whether a proxy has a Dataplane; before anything was read, each is given the benefit of the doubt."""
        return self._world is None or dataplane_of(self._world, proxy) is not None

    @property
    def compiler(self) -> Compiler:
        return self._compiler

    @property
    def failures(self) -> Mapping[str, tuple[Failure, ...]]:
        """The connected proxies of which something cannot be made, by faults of ours, and what."""
        return self._failures

    async def current(self) -> World:
        """The World, with all in it that was written until now, unless that takes too long."""
        with suppress(Unusable, Closed):  # what is in force can be asked for all the same
            await self.reached(await self._store.revision(), PATIENCE)
        return self.world

    async def reached(self, revision: int, within: float) -> bool:
        """Whether, before long, there is a World in which this revision is, and its proxies were served."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._world is None or self._world.revision < revision:
                    await self._next_world.wait()
        return self._world is not None and self._world.revision >= revision

    async def snapshot(self, dataplane: Resource) -> Snapshot:
        """What a proxy is served or, while it is not connected, would be."""
        async with self._between_turns():
            return await self._beside(self._compiler.snapshot, self.world, dataplane)

    async def proxies(self, names: Iterable[str]) -> tuple[World, Mapping[str, CompiledProxy]]:
        """What some proxies are served and why, in the World that it follows from."""
        async with self._between_turns():
            return self.world, await self._beside(self._compiled, self.world, tuple(names))

    @asynccontextmanager
    async def _between_turns(self) -> AsyncIterator[None]:
        """However many ask, a turn waits for one of them at the most."""
        async with self._asking, self._computing:
            yield

    async def _beside(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in a thread that is for nothing else, so that nobody who asks the API delays it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(function, *arguments))

    def _compiled(self, world: World, names: Iterable[str]) -> Mapping[str, CompiledProxy]:
        dataplanes = ((name, dataplane_of(world, name)) for name in names)
        found = ((name, self._proxy(world, dataplane)) for name, dataplane in dataplanes if dataplane is not None)
        return {name: proxy for name, proxy in found if isinstance(proxy, CompiledProxy)}

    async def run(self) -> None:
        """Follow the store and the hub until cancelled."""
        try:
            contents = await self._store.read()
            self._follow_to(contents.revision)
            self._enter(await self._read(contents))
            async with asyncio.TaskGroup() as running:
                running.create_task(self._follow_store(contents.revision))
                running.create_task(self._follow_hub())
                running.create_task(self._turns())
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _read(self, contents: Contents) -> World:
        documents = [stored.document for stored in contents.stored]
        world = await self._beside(World.of, documents, self._kinds, contents.revision, contents.findings)
        self._tell(finding for finding in world.findings if not _is_of_initial(world, finding))
        self._log.info("world.loaded", revision=contents.revision, resources=len(documents))
        return world

    async def _follow_store(self, since: int) -> None:
        while True:
            try:
                async for batch in self._store.follow(since):
                    self._pending.batches.append(batch)
                    self._pending.since = self._pending.since or monotonic()
                    self._follow_to(batch.revision)
                    self._wake.set()
            except Outdated:  # the changes since then are no longer kept: begin anew
                contents = await self._store.read()
                since = contents.revision
                self._pending = _Pending(contents, [], self._pending.arrived, monotonic())
                self._follow_to(since)
                self._wake.set()

    def _follow_to(self, revision: int) -> None:
        """All that was written up to a revision is in the World, or waits for the next turn."""
        self._followed = revision
        self._next_batch.set()
        self._next_batch = asyncio.Event()

    async def _all_followed(self) -> None:
        """Until all that was written until now waits for the next turn, unless that takes too long."""
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

    async def _turns(self) -> None:
        while True:
            await self._wake.wait()
            await self._until_quiet()
            if self._pending.arrived:
                await self._all_followed()
            self._wake.clear()
            pending, self._pending = self._pending, _Pending()
            async with self._computing:
                await self._turn(pending)

    async def _until_quiet(self) -> None:
        """Wait for changes that belong together, such as those of one file that is being applied."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._pace.at_most
        seen = -1
        while seen != len(self._pending.batches) and loop.time() < deadline:
            seen = len(self._pending.batches)
            await asyncio.sleep(self._pace.quiet)

    async def _turn(self, pending: _Pending) -> None:
        began = monotonic()
        before = self.world
        left = self._look_who_is_here(pending.arrived)
        if pending.contents is not None:
            before = await self._read(pending.contents)
        is_of_all = pending.contents is not None or len(pending.batches) > 0
        concerned = tuple(self._connected if is_of_all else self._connected.keys() & pending.arrived)
        computed = await self._beside(self._compute, before, pending.batches, concerned)
        self._hub.metrics.turn.observe(monotonic() - began)
        world, at = computed.world, self._hub.now()
        new = {proxy for proxy in pending.arrived if not self._hub.knows(proxy)}
        published = self._publish(computed.snapshots, pending)
        if is_of_all or left:
            self._compiler.keep_only(key_of(proxy) for proxy in self._connected)
        changed = frozenset(_changed(pending.batches))
        edition = Publication(
            since=self.world.revision,
            revision=world.revision,
            at=at,
            proxies=frozenset(published) - new,  # who has just come is given everything, whatever was changed
            changed=changed,
            failed=frozenset(self._failed(computed.failures, pending.arrived, changed)),
            is_whole=pending.contents is None,
        )
        self._note(computed.failures, left)
        self._enter(world, edition)
        self._forget((*left, *(proxy_of(key) for key in edition.changed if key.type == "Dataplane")))
        if pending.batches:
            self._tell(_findings(before, world, pending.batches))
            elapsed = round((monotonic() - began) * 1000, 1)
            self._log.info("world.changed", revision=world.revision, proxies=len(published), milliseconds=elapsed)

    def _publish(self, snapshots: Mapping[str, Snapshot], pending: _Pending) -> list[str]:
        """Hand over what a turn came to; answers with the proxies for which it is something new.

        Who came back while it was computed may have come after a later write. They are answered in the next turn,
        and until then count as proxies that do not have it.
        """
        returned = self._hub.arriving.union(self._pending.arrived)
        changed = [
            proxy
            for proxy, snapshot in snapshots.items()
            if proxy in returned or self._hub.publish(proxy, snapshot, pending.since)
        ]
        for proxy in pending.arrived.keys() - snapshots.keys() - returned:
            self._hub.confirm(proxy)  # its Dataplane is gone, or a fault of ours: it keeps what it has
        return changed

    def _look_who_is_here(self, arrived: Iterable[str]) -> frozenset[str]:
        """Take up who came since the last turn; answers with those who left."""
        came_or_went = self._hub.departures().union(arrived)
        left = frozenset(proxy for proxy in came_or_went if not self._hub.of(proxy))
        self._connected |= dict.fromkeys(came_or_went - left)
        for proxy in left:
            self._connected.pop(proxy, None)
        return left

    def _failed(
        self, failures: Mapping[str, tuple[Failure, ...]], arrived: Container[str], changed: frozenset[Key]
    ) -> Iterator[str]:
        """The proxies with a failure that a change has brought, or that is about what was changed.

        Of who has just come it is not known what failed before.
        """
        for proxy, found in failures.items():
            known = found if proxy in arrived else self._failures.get(proxy, ())
            if any(one not in known or not changed.isdisjoint(one.policies) for one in found):
                yield proxy

    def _note(self, failures: Mapping[str, tuple[Failure, ...]], left: Iterable[str]) -> None:
        """A failure stands for as long as it is met, and is told to the log once."""
        for proxy, found in failures.items():
            for new in set(found).difference(self._failures.get(proxy, ())):
                self._log.error("proxy.failed", proxy=proxy, reason=str(new), policies=list(map(str, new.policies)))
        known = {**self._failures, **failures}
        self._failures = {proxy: found for proxy, found in known.items() if found and proxy not in frozenset(left)}

    def _forget(self, proxies: Iterable[str]) -> None:
        """Of proxies that are gone for good, as their Dataplanes are, nothing is kept."""
        for proxy in proxies:
            if dataplane_of(self.world, proxy) is None and not self._hub.of(proxy):
                self._hub.forget(proxy)

    def _enter(self, world: World, edition: Publication | None = None) -> None:
        self._world = world
        if edition is not None and edition.revision > edition.since:
            self.editions.add(edition)
        self._next_world.set()
        self._next_world = asyncio.Event()

    def _compute(self, world: World, batches: Iterable[ChangeBatch], proxies: tuple[str, ...]) -> _Computed:
        for batch in batches:
            changes: dict[Key, Document | None] = {change.key: change.after for change in batch.changes}
            world = world.next(changes, batch.revision, batch.findings)
        there = {proxy: dataplane for proxy in proxies if (dataplane := dataplane_of(world, proxy)) is not None}
        found = {proxy: self._proxy(world, dataplane) for proxy, dataplane in there.items()}
        snapshots = {name: proxy.snapshot for name, proxy in found.items() if isinstance(proxy, CompiledProxy)}
        failures = {
            name: proxy.failures if isinstance(proxy, CompiledProxy) else (proxy,) for name, proxy in found.items()
        }
        if self._checks_itself:  # what could not be made is another thing when it is made afresh
            whole = {name: snapshot for name, snapshot in snapshots.items() if not failures[name]}
            snapshots |= self._corrections(world, whole)
        return _Computed(world, snapshots, failures)

    def _corrections(self, world: World, snapshots: Mapping[str, Snapshot]) -> Mapping[str, Snapshot]:
        """What differs from a full computation: none, unless we forgot something that a change reaches."""
        afresh, full = world.afresh(), Compiler(self._policies)
        corrections = {}
        for proxy, snapshot in snapshots.items():
            dataplane = dataplane_of(afresh, proxy)
            if dataplane is not None and (expected := full.snapshot(afresh, dataplane)) != snapshot:
                corrections[proxy] = expected
                names = [packed.name for url in TYPES for packed in expected.since(snapshot, url).updated]
                self._log.error("self_check.failed", proxy=proxy, revision=world.revision, resources=names)
        checks = self._hub.metrics.self_checks
        checks.labels("same").inc(len(snapshots) - len(corrections))
        checks.labels("different").inc(len(corrections))
        if corrections:
            self._compiler = full
        return corrections

    def _proxy(self, world: World, dataplane: Resource) -> CompiledProxy | Failure:
        """A fault of ours that is in no single part of a proxy leaves it what it has, and everybody else theirs."""
        try:
            return self._compiler.proxy(world, dataplane)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is one proxy's
            return failure(error, "all that it gets").keeping()

    def _tell(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            place, resource = finding.place or None, str(finding.resource) if finding.resource else None
            self._log.warning("finding", code=finding.code, resource=resource, place=place, reason=str(finding))


def dataplane_of(world: World, proxy: str) -> Resource | None:
    return world.get(key_of(proxy))


def key_of(proxy: str) -> Key:
    """The Dataplane of a proxy, which calls itself `mesh.name`."""
    mesh, _, name = proxy.partition(".")
    return Key("Dataplane", mesh, name)


def proxy_of(dataplane: Key) -> str:
    return f"{dataplane.mesh}.{dataplane.name}"


def _changed(batches: Iterable[ChangeBatch]) -> Iterator[Key]:
    return (change.key for batch in batches for change in batch.changes)


def _findings(before: World, world: World, batches: Iterable[ChangeBatch]) -> Iterator[Finding]:
    """What is wrong with what was written. Of the store itself, only what was not wrong before."""
    known = before.store_findings
    for batch in batches:
        yield from (finding for finding in batch.findings or () if finding not in known)
        for change in batch.changes:
            yield from (one for one in world.findings_of(change.key) if not _is_of_initial(world, one))


def _is_of_initial(world: World, finding: Finding) -> bool:
    """Whether it is about a policy that nobody wrote."""
    resource = None if finding.resource is None else world.get(finding.resource)
    return resource is not None and is_initial(resource.document)

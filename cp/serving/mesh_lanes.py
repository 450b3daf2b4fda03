"""`MeshLane`: the proxies of one mesh, computed apart from those of all other meshes (record 0095)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from time import monotonic

from cp.model.checkpoint import checkpoint_set
from cp.model.names import Key, dataplane_key
from cp.precedence import DeliveryLock, Precedence, yielding
from cp.resources.assignment import assigned_world
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.turn import PendingChanges, TurnCompiler, TurnResult
from cp.translate.compiler import CompiledProxy
from cp.translate.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class LaneWork:
    """Changes that concern the proxies of a mesh. They lead from one World to another."""

    pending: PendingChanges
    before: World
    world: World

    def joined(self, later: LaneWork) -> LaneWork:
        """This work and later work as one."""
        self.pending.join(later.pending)
        return LaneWork(self.pending, self.before, later.world)


class MeshLane:
    """The compiler of a mesh, and the changes that its proxies have not been given yet.

    `compute`, `snapshot` and `compiled` are called in threads, one at a time. All else belongs to the event loop.
    """

    def __init__(self, mesh: str, turns: TurnCompiler, precedence: Precedence) -> None:
        self.mesh, self.turns = mesh, turns
        self.asking = asyncio.Lock()
        """Held by the one question that may use the compiler next, so that a turn waits for one question at most."""

        self.is_set_aside = False
        """True while it is computed apart from turns, because another mesh would have to wait for it."""

        self.current: LaneWork | None = None
        """The changes that are being computed."""

        self.next: LaneWork | None = None
        """Those that came later."""

        self.since: float | None = None
        """When the first change was noticed that is not published (`monotonic`)."""

        self.is_reported = False
        """True once the log has that it is late."""

        self.seconds = 0.0
        """How long its last computation took."""

        self._yield = yielding(precedence)
        self._in_use = DeliveryLock(precedence, lambda: not self.is_set_aside)
        self._world: World | None = None

    def add(self, pending: PendingChanges, before: World, world: World) -> LaneWork:
        """Add changes that are to be computed: now or, if the lane is set aside, behind the current ones."""
        work = LaneWork(pending.of_mesh(self.mesh), before, world)
        if self.is_set_aside:
            self.next = work = work if self.next is None else self.next.joined(work)
        else:
            self.current, self.since = work, work.pending.noticed_at or monotonic()
        return work

    def finish(self) -> None:
        """Note that the current changes are published, and go on with those that came later."""
        self.current, self.next = self.next, None
        self.since = None if self.current is None else self.current.pending.noticed_at or monotonic()
        self.is_set_aside = self.is_set_aside and self.current is not None

    def unpublished(self, asked: AbstractSet[int], newest: int) -> Iterator[int]:
        """The revisions that its proxies have not been given while it is set aside.

        Of those that are asked about or, without any, up to the newest.
        """
        for work in (self.current, self.next) if self.is_set_aside else ():
            contents = None if work is None else work.pending.contents
            if contents is not None:  # the changes are not known one by one
                yield from (revision for revision in asked or (newest,) if revision <= contents.revision)
            if work is not None:
                revisions = work.pending.revisions
                yield from (number for number in revisions if (number in asked if asked else number <= newest))

    def compute(self, work: LaneWork, connected: Collection[str], certified: AbstractSet[Key]) -> TurnResult:
        """The newest snapshots of the connected proxies of the mesh that changes concern. All others are forgotten."""
        began, pending, world = monotonic(), work.pending, work.world
        concerned = connected if pending.concern_everybody else pending.arrived.keys() | pending.renewals
        with self._in_use.held_by_delivery(), checkpoint_set(self._pass_checkpoint):
            if self._world is None or pending.concern_everybody:
                self._world = self._part_of(world)
            proxies = [proxy for proxy in connected if proxy in concerned]
            result = replace(self.turns.compute(self._world, proxies, certified, world), world=world)
            self.turns.keep_only(self._world, map(dataplane_key, connected))
        self.seconds = monotonic() - began
        return result

    def snapshot(self, world: World, dataplane: Resource, certified: AbstractSet[Key]) -> Snapshot:
        """The snapshot of a proxy in the World that its mesh is served from: `world`, or an earlier one."""
        with self._in_use.held_by_question():
            return self.turns.snapshot(self._served_from(world), dataplane, certified)

    def compiled(self, world: World, proxies: Collection[str]) -> Mapping[str, tuple[World, CompiledProxy]]:
        """Some proxies, each with the World that it is served from; without those that could not be compiled."""
        with self._in_use.held_by_question():
            served = self._served_from(world)
            compiled = self.turns.compiled(served, proxies)
        return {proxy: (assigned_world(served, dataplane_key(proxy)), result) for proxy, result in compiled.items()}

    def _pass_checkpoint(self) -> None:
        """Wait for turns, if they go on without this mesh."""
        if self.is_set_aside:
            self._yield()

    def _served_from(self, world: World) -> World:
        if self._world is None:
            self._world = self._part_of(world)
        return self._world

    def _part_of(self, world: World) -> World:
        """The part of a World for this mesh. A single mesh shares all that was looked up in the World itself."""
        return world if len(world.table("Mesh")) <= 1 else world.of_mesh(self.mesh, self._world)

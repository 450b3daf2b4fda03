"""The changes of one turn of the reconciler, and the newest snapshots of the proxies that they concern.

A `TurnCompiler` keeps what it computed last, so one thread at a time uses it: there is one for each mesh (record 0095).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Final

import structlog

from cp.metrics import Metrics
from cp.model.document import Document
from cp.model.failure import WHOLE, Failure, made_or_failure
from cp.model.names import Key, dataplane_key
from cp.policies import Policies
from cp.resources.assignment import assigned_world, candidate_of
from cp.resources.resource import Resource
from cp.resources.world import World, concerns
from cp.serving.identities import Identities
from cp.serving.publications import Publication
from cp.store.port import ChangeBatch, Contents
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.packing import TYPES
from cp.translate.snapshot import NO_PART, Snapshot, SnapshotPart

_NAMED: Final = 10
"""Changes, and authors of changes, that are named."""


@dataclass(slots=True)
class PendingChanges:
    """What happened since the last turn."""

    contents: Contents | None = None
    """Everything that is stored, where the store does not know the changes one by one. Batches follow it."""

    batches: list[ChangeBatch] = field(default_factory=list)
    arrived: dict[str, None] = field(default_factory=dict)
    """The proxies that connected, in order."""

    renewals: frozenset[str] = frozenset()
    """The proxies whose certificates are due."""

    noticed_at: float | None = None
    """When the first of the changes was noticed (`monotonic`)."""

    @property
    def concern_everybody(self) -> bool:
        return self.contents is not None or len(self.batches) > 0

    @property
    def written_at(self) -> str:
        """When the last of the changes was written, as the store has it; empty where it does not know."""
        last = next((batch.changes[-1] for batch in reversed(self.batches) if batch.changes), None)
        return "" if last is None else last.at.isoformat()

    @property
    def resources(self) -> tuple[str, ...]:
        """Some of what was changed, in the order in which it was."""
        return tuple(dict.fromkeys(map(str, islice(self.changed_keys, _NAMED))))

    @property
    def cause(self) -> str:
        """The reason for the turn, for the log: it need not be a change."""
        if self.resources:
            return "resources were changed"
        if self.contents is not None:
            return "everything was read from the store"
        if self.arrived:
            return f"{len(self.arrived)} {'proxy' if len(self.arrived) == 1 else 'proxies'} connected"
        return "certificates are renewed"

    @property
    def authors(self) -> tuple[str, ...]:
        """Some of those who made the changes."""
        names = dict.fromkeys(change.author.name for batch in self.batches for change in batch.changes)
        names.pop("", None)  # where nobody knows who it was
        return tuple(names)[:_NAMED]

    @property
    def changed_keys(self) -> Iterator[Key]:
        return (change.key for batch in self.batches for change in batch.changes)

    @property
    def revisions(self) -> Iterator[int]:
        """The revisions of the changes that the store knows one by one."""
        return (change.revision for batch in self.batches for change in batch.changes)

    def concern(self, mesh: str) -> bool:
        """True if the proxies of a mesh have to be computed: some of them, or all."""
        if self.contents is not None or any(concerns(key.type, key.mesh, mesh) for key in self.changed_keys):
            return True
        return any(dataplane_key(proxy).mesh == mesh for proxy in (*self.arrived, *self.renewals))

    def of_mesh(self, mesh: str) -> PendingChanges:
        """The part that concerns the proxies of one mesh, without the documents: there may be many until it is due."""
        contents = None if self.contents is None else replace(self.contents, stored=())
        batches = _without_documents(self.batches, lambda key: concerns(key.type, key.mesh, mesh))
        arrived = {proxy: None for proxy in self.arrived if dataplane_key(proxy).mesh == mesh}
        renewals = frozenset(proxy for proxy in self.renewals if dataplane_key(proxy).mesh == mesh)
        return PendingChanges(contents, batches, arrived, renewals, self.noticed_at)

    def without(self, meshes: AbstractSet[str]) -> PendingChanges:
        """The part that concerns any other mesh."""
        if not meshes:
            return self
        batches = _without_documents(self.batches, lambda key: not _is_in_any(key, meshes))
        arrived = {proxy: None for proxy in self.arrived if dataplane_key(proxy).mesh not in meshes}
        renewals = frozenset(proxy for proxy in self.renewals if dataplane_key(proxy).mesh not in meshes)
        return PendingChanges(self.contents, batches, arrived, renewals, self.noticed_at)

    def join(self, later: PendingChanges) -> None:
        """Add what happened after it."""
        if later.contents is not None:
            self.contents = later.contents
        self.batches += later.batches
        self.arrived |= later.arrived
        self.renewals |= later.renewals
        self.noticed_at = later.noticed_at if self.noticed_at is None else self.noticed_at


def _without_documents(batches: Iterable[ChangeBatch], is_wanted: Callable[[Key], bool]) -> list[ChangeBatch]:
    wanted = []
    for batch in batches:
        changes = (replace(change, before=None, after=None) for change in batch.changes if is_wanted(change.key))
        if kept := tuple(changes):
            wanted.append(replace(batch, changes=kept, findings=()))
    return wanted


def _is_in_any(key: Key, meshes: AbstractSet[str]) -> bool:
    """True if a resource concerns no mesh but its own, which is one of these."""
    return key.mesh in meshes and not concerns(key.type, key.mesh, "")


def advanced(world: World, batches: Iterable[ChangeBatch]) -> World:
    """The World after some batches of changes."""
    for batch in batches:
        changes: dict[Key, Document | None] = {change.key: change.after for change in batch.changes}
        world = world.next(changes, batch.revision, batch.findings)
    return world


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What a turn computed."""

    world: World
    snapshots: Mapping[str, Snapshot]
    failures: Mapping[str, tuple[Failure, ...]]
    """What could not be made, for each proxy that was computed; empty for most."""

    certificates: Mapping[str, SnapshotPart] = field(default_factory=dict)
    """Those of proxies of which all else could not be made: what they keep must not expire with its certificate."""


def combined(world: World, results: Iterable[TurnResult]) -> TurnResult:
    """The results for several meshes as one."""
    snapshots: dict[str, Snapshot] = {}
    failures: dict[str, tuple[Failure, ...]] = {}
    certificates: dict[str, SnapshotPart] = {}
    for result in results:
        snapshots |= result.snapshots
        failures |= result.failures
        certificates |= result.certificates
    return TurnResult(world, snapshots, failures, certificates)


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What a turn made of changes, and when: moments are in seconds since 1970."""

    publication: Publication
    noticed: float
    """When the first of the changes was noticed."""

    began: float
    computed: float
    published: float
    written_at: str
    """When the last of them was written, as the store has it: the same in every process that reads it."""

    resources: tuple[str, ...]
    """Some of what was changed."""

    authors: tuple[str, ...]
    """Some of those who did."""


class TurnCompiler:
    def __init__(
        self, policies: Policies, metrics: Metrics, identities: Identities | None, *, checks_itself: bool
    ) -> None:
        """`checks_itself`: compare every snapshot with a full computation."""
        self._identities = identities
        self._policies = policies
        self._metrics = metrics
        self._checks_itself = checks_itself
        self._log = structlog.get_logger()
        self.compiler = Compiler(policies)
        self._of_rollouts: dict[str, Compiler] = {}
        """Those of what rollouts propose, by the mesh: each keeps the results of its own World."""

    def compute(
        self,
        world: World,
        proxies: Collection[str],
        certified_clients: AbstractSet[Key] = frozenset(),
        whole_world: World | None = None,
    ) -> TurnResult:
        """`certified_clients` are the gRPC clients that find certificates.

        `whole_world` is the World of which `world` is a part: one that checks itself computes from that.
        """
        self._enter(world, certified_clients)
        self._forget_gone(world, proxies)
        outcomes = dict(self._outcomes(world, proxies))
        compiled = {proxy: outcome for proxy, outcome in outcomes.items() if isinstance(outcome, CompiledProxy)}
        snapshots = {proxy: outcome.snapshot for proxy, outcome in compiled.items()}
        failures = {
            proxy: outcome.failures if isinstance(outcome, CompiledProxy) else (outcome,)
            for proxy, outcome in outcomes.items()
        }
        if self._checks_itself:  # a proxy with a failure is left out: computed afresh, the failure is another object
            snapshots |= self._corrections(
                whole_world or world, {proxy: snapshots[proxy] for proxy in compiled if not failures[proxy]}
            )
        certificates = dict(self._certificates(world, outcomes))
        whole = {
            proxy: Snapshot(*snapshot.parts, certificates.pop(proxy)) if proxy in certificates else snapshot
            for proxy, snapshot in snapshots.items()
        }
        return TurnResult(world, whole, failures, certificates)

    def _enter(self, world: World, certified_clients: AbstractSet[Key]) -> None:
        """Keep a compiler for each rollout that is under way."""
        meshes = [mesh.name for mesh in world.table("Mesh") if candidate_of(world, mesh.name) is not None]
        self._of_rollouts = {mesh: self._of_rollouts.get(mesh) or Compiler(self._policies) for mesh in meshes}
        for compiler in self._compilers:
            compiler.certified_clients = certified_clients

    def keep_only(self, world: World, dataplanes: Iterable[Key]) -> None:
        """Forget all proxies but these, and each of them where it is compiled no longer: that keeps its old World."""
        by_compiler: dict[Compiler, list[Key]] = {compiler: [] for compiler in self._compilers}
        for key in dataplanes:
            by_compiler[self._compiler(world, assigned_world(world, key), key.mesh)].append(key)
        for compiler, keys in by_compiler.items():
            compiler.keep_only(keys)

    @property
    def _compilers(self) -> tuple[Compiler, ...]:
        return (self.compiler, *self._of_rollouts.values())

    def _compiler(self, world: World, assigned: World, mesh: str) -> Compiler:
        return self.compiler if assigned is world else self._of_rollouts[mesh]

    def snapshot(self, world: World, dataplane: Resource, certified_clients: AbstractSet[Key]) -> Snapshot:
        """What a proxy is served or, while it is not connected, would be."""
        self._enter(world, certified_clients)
        return self._compiled(world, dataplane).snapshot

    def _compiled(self, world: World, dataplane: Resource) -> CompiledProxy:
        assigned = assigned_world(world, dataplane.key)
        return self._compiler(world, assigned, dataplane.mesh).proxy(assigned, dataplane)

    def _certificates(self, world: World, proxies: Iterable[str]) -> Iterator[tuple[str, SnapshotPart]]:
        """The certificate of each proxy with its key: it is in no snapshot that is asked for in between turns."""
        if self._identities is None or not self._identities.are_needed(world):
            return
        for proxy in proxies:
            dataplane = world.get(dataplane_key(proxy))
            if dataplane is not None and (part := self._identities.part(world, dataplane)) is not NO_PART:
                yield proxy, part

    def _forget_gone(self, world: World, proxies: Iterable[str]) -> None:
        """Whoever has no Dataplane any more keeps the certificate that it has, and gets no other."""
        if self._identities is not None:
            self._identities.forget([proxy for proxy in proxies if world.get(dataplane_key(proxy)) is None])

    def compiled(self, world: World, proxies: Iterable[str]) -> Mapping[str, CompiledProxy]:
        """Some proxies, as far as they have a Dataplane and could be compiled."""
        self._enter(world, self.compiler.certified_clients)
        outcomes = self._outcomes(world, proxies)
        return {proxy: outcome for proxy, outcome in outcomes if isinstance(outcome, CompiledProxy)}

    def _outcomes(self, world: World, proxies: Iterable[str]) -> Iterator[tuple[str, CompiledProxy | Failure]]:
        for proxy in proxies:
            if (dataplane := world.get(dataplane_key(proxy))) is not None:
                yield proxy, self._outcome(world, dataplane)

    def _outcome(self, world: World, dataplane: Resource) -> CompiledProxy | Failure:
        """A fault of ours that is in no single part of a proxy leaves it what it has, and all other proxies theirs."""
        outcome = made_or_failure(partial(self._compiled, world, dataplane), WHOLE)
        return outcome.keeping() if isinstance(outcome, Failure) else outcome

    def _corrections(self, world: World, snapshots: Mapping[str, Snapshot]) -> Mapping[str, Snapshot]:
        """The snapshots of a full computation where they differ: none, unless the compiler reused what is outdated."""
        fresh_world, fresh = world.afresh(), TurnCompiler(self._policies, self._metrics, None, checks_itself=False)
        certified, corrections = self.compiler.certified_clients, {}
        for proxy, snapshot in snapshots.items():
            dataplane = fresh_world.get(dataplane_key(proxy))
            if dataplane is not None and (expected := fresh.snapshot(fresh_world, dataplane, certified)) != snapshot:
                corrections[proxy] = expected
                names = [packed.name for url in TYPES for packed in expected.since(snapshot, url).updated]
                self._log.error("self_check.failed", proxy=proxy, revision=world.revision, resources=names)
        checks = self._metrics.self_checks
        checks.labels("same").inc(len(snapshots) - len(corrections))
        checks.labels("different").inc(len(corrections))
        if corrections:
            self.compiler, self._of_rollouts = fresh.compiler, fresh._of_rollouts
        return corrections

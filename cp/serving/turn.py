"""What one turn of the reconciler computes: the next World, and the newest snapshots of the proxies that it concerns.

All of it runs in the reconciler's thread, one turn after the other, as the compiler keeps what it computed last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import structlog

from cp.metrics import Metrics
from cp.model.document import Document
from cp.model.failure import Failure, failure
from cp.model.names import Key, dataplane_key
from cp.policies import Policies
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.identities import Identities
from cp.store.port import ChangeBatch, Contents
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.packing import TYPES
from cp.translate.snapshot import NO_PART, Snapshot, SnapshotPart


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
    def changed_keys(self) -> Iterator[Key]:
        return (change.key for batch in self.batches for change in batch.changes)


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What a turn computed."""

    world: World
    snapshots: Mapping[str, Snapshot]
    failures: Mapping[str, tuple[Failure, ...]]
    """What could not be made, for each proxy that was computed; empty for most."""

    certificates: Mapping[str, SnapshotPart] = field(default_factory=dict)
    """Those of proxies of which all else could not be made: what they keep must not expire with its certificate."""


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

    def compute(self, world: World, batches: Iterable[ChangeBatch], proxies: Collection[str]) -> TurnResult:
        for batch in batches:
            changes: dict[Key, Document | None] = {change.key: change.after for change in batch.changes}
            world = world.next(changes, batch.revision, batch.findings)
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
                world, {proxy: snapshots[proxy] for proxy in compiled if not failures[proxy]}
            )
        certificates = dict(self._certificates(world, outcomes))
        whole = {
            proxy: Snapshot(*snapshot.parts, certificates.pop(proxy)) if proxy in certificates else snapshot
            for proxy, snapshot in snapshots.items()
        }
        return TurnResult(world, whole, failures, certificates)

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
        outcomes = self._outcomes(world, proxies)
        return {proxy: outcome for proxy, outcome in outcomes if isinstance(outcome, CompiledProxy)}

    def _outcomes(self, world: World, proxies: Iterable[str]) -> Iterator[tuple[str, CompiledProxy | Failure]]:
        for proxy in proxies:
            if (dataplane := world.get(dataplane_key(proxy))) is not None:
                yield proxy, self._outcome(world, dataplane)

    def _outcome(self, world: World, dataplane: Resource) -> CompiledProxy | Failure:
        """A fault of ours that is in no single part of a proxy leaves it what it has, and all other proxies theirs."""
        try:
            return self.compiler.proxy(world, dataplane)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is one proxy's
            return failure(error, "all that it gets").keeping()

    def _corrections(self, world: World, snapshots: Mapping[str, Snapshot]) -> Mapping[str, Snapshot]:
        """The snapshots of a full computation where they differ: none, unless the compiler reused what is outdated."""
        fresh_world, fresh_compiler = world.afresh(), Compiler(self._policies)
        corrections = {}
        for proxy, snapshot in snapshots.items():
            dataplane = fresh_world.get(dataplane_key(proxy))
            if dataplane is not None and (expected := fresh_compiler.snapshot(fresh_world, dataplane)) != snapshot:
                corrections[proxy] = expected
                names = [packed.name for url in TYPES for packed in expected.since(snapshot, url).updated]
                self._log.error("self_check.failed", proxy=proxy, revision=world.revision, resources=names)
        checks = self._metrics.self_checks
        checks.labels("same").inc(len(snapshots) - len(corrections))
        checks.labels("different").inc(len(corrections))
        if corrections:
            self.compiler = fresh_compiler
        return corrections

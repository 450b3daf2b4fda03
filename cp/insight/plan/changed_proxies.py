"""`ChangedProxy`: a proxy that a change reaches, and what it would be served that it is not served now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from cp.insight.comparison import MeshComparison, SnapshotOrFailure, comparison_of, snapshot_or_failure
from cp.insight.plan.plan import PlanScope
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.failure import Failure
from cp.model.names import Key
from cp.resources.assignment import Candidate, candidate_of
from cp.resources.world import World
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.packing import PackedResource


@dataclass(frozen=True, slots=True)
class UpcomingResource:
    """A resource that proxies would be served, and are not served now."""

    packed: PackedResource
    proxies: tuple[Key, ...]
    """The proxies to which it is new."""


@dataclass(frozen=True, slots=True)
class ChangedProxy:
    """A proxy that a change reaches: all that it would be served, and what of that is new."""

    compiled: CompiledProxy
    new: tuple[UpcomingResource, ...]
    """Of what is new to several proxies that are there already only the first has it. A new proxy has all."""

    world: World
    """The World from which it would be served."""

    before: CompiledProxy | None = None
    """All that it is served now; None for a new proxy, or one that cannot be compiled."""

    world_before: World | None = None
    """The World from which it is served now."""

    @property
    def mesh(self) -> str:
        return self.compiled.dataplane.key.mesh


@dataclass(frozen=True, slots=True)
class ProxyChanges:
    """The proxies that a change reaches, and those of which nobody can tell: they cannot be compiled."""

    proxies: tuple[ChangedProxy, ...]
    failures: Mapping[Key, Failure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ServedSide:
    """What proxies are served on one side of a change, each from its World (`cp.resources.assignment`)."""

    world: World
    compiler: Compiler
    of_rollouts: Mapping[str, tuple[Candidate, Compiler]]
    """By the mesh. A compiler is in one World at a time."""

    def source_of(self, dataplane: Key) -> tuple[World, Compiler]:
        of_rollout = self.of_rollouts.get(dataplane.mesh)
        if of_rollout is None or dataplane.name not in of_rollout[0].proxies:
            return self.world, self.compiler
        return of_rollout[0].world, of_rollout[1]

    def outcomes(self, mesh: str, checkpoint: Checkpoint) -> Iterator[tuple[Key, CompiledProxy | Failure]]:
        """One World after the other: what compilers share is kept for one."""
        dataplanes = self.world.table("Dataplane", mesh)
        in_order = sorted(dataplanes, key=lambda dataplane: self.source_of(dataplane.key)[0] is not self.world)
        for dataplane in checked(in_order, checkpoint):
            world, compiler = self.source_of(dataplane.key)
            yield dataplane.key, compiler.proxy_or_failure(world, dataplane)


def proxy_changes(scope: PlanScope, compiler: Compiler, checkpoint: Checkpoint = never_stopped) -> ProxyChanges:
    """What proxies would be served that is new to them.

    Whoever is served what a rollout proposes has that on both sides, unless the change ends the rollout.
    """
    of_rollouts = {
        candidate.rollout.mesh: (candidate, compiler.fork()) for candidate in _candidates(scope.before, scope)
    }
    now = _ServedSide(scope.before, compiler, of_rollouts)
    before = {mesh: dict(now.outcomes(mesh, checkpoint)) for mesh in scope.meshes}
    then = _side_after(scope, now)
    proxies: list[ChangedProxy] = []
    failures: dict[Key, Failure] = {}
    for mesh, outcomes in before.items():
        after = dict(then.outcomes(mesh, checkpoint))
        comparison = comparison_of(mesh, _snapshots(outcomes), _snapshots(after), checkpoint)
        failures |= comparison.failures
        compiled = {key: outcome for key, outcome in after.items() if isinstance(outcome, CompiledProxy)}
        for key, new in _new(comparison, compiled).items():
            served, (world_before, _) = outcomes.get(key), now.source_of(key)
            earlier = served if isinstance(served, CompiledProxy) else None
            proxies.append(ChangedProxy(compiled[key], tuple(new), then.source_of(key)[0], earlier, world_before))
    return ProxyChanges(tuple(proxies), failures)


def _side_after(scope: PlanScope, now: _ServedSide) -> _ServedSide:
    goes_on = [
        candidate for candidate in _candidates(scope.after, scope) if not is_overwritten(candidate, scope.changed)
    ]
    forks = {mesh: compiler.fork() for mesh, (_, compiler) in now.of_rollouts.items()}
    of_rollouts = {candidate.rollout.mesh: (candidate, forks[candidate.rollout.mesh]) for candidate in goes_on}
    return _ServedSide(scope.after, now.compiler.fork(), of_rollouts)


def _candidates(world: World, scope: PlanScope) -> Iterator[Candidate]:
    candidates = (candidate_of(world, mesh) for mesh in scope.meshes)
    return (candidate for candidate in candidates if candidate is not None)


def is_overwritten(candidate: Candidate, changed: Collection[Key]) -> bool:
    """Whether a change writes what a rollout is about, so that the rollout goes back."""
    return any(resource.key(candidate.rollout.mesh) in changed for resource in candidate.spec.resources)


def _snapshots(outcomes: Mapping[Key, CompiledProxy | Failure]) -> Mapping[Key, SnapshotOrFailure]:
    return {key: snapshot_or_failure(outcome) for key, outcome in outcomes.items()}


def _new(comparison: MeshComparison, after: Mapping[Key, CompiledProxy]) -> dict[Key, list[UpcomingResource]]:
    new: dict[Key, list[UpcomingResource]] = {}
    for difference in comparison.differences:
        if difference.resource.after is not None:
            resource = UpcomingResource(difference.resource.after, difference.proxies)
            new.setdefault(difference.proxies[0], []).append(resource)
    for key in comparison.added:
        if key in after:
            new[key] = [UpcomingResource(packed, (key,)) for part in after[key].snapshot.parts for packed in part]
    return new

"""Which World a proxy is served from: while a rollout is under way, some are served what it proposes.

Both follow from what is stored. So every process that follows the store serves a proxy from the same World, and
whoever explains what a proxy is served explains that World (record 0088).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cp.model.names import Key
from cp.resources.parse import ParsedDocument, parse
from cp.resources.resource import Resource
from cp.resources.rollout import RolloutSpec, changes_of, rollout_key
from cp.resources.world import World

_Proposals: TypeAlias = Mapping[Key, ParsedDocument | None]


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """What the resources would be with a rollout, and which proxies of its mesh are served that already."""

    rollout: Resource
    proposals: _Proposals
    world: World
    proxies: frozenset[str]
    """The names of their Dataplanes."""

    @property
    def spec(self) -> RolloutSpec:
        spec: RolloutSpec = self.rollout.spec
        return spec

    @property
    def proposal(self) -> str:
        """What it proposes, in words, for whoever looks at something else."""
        return f"what rollout {self.spec.number} of mesh {self.rollout.mesh} proposes, which is under way"

    @property
    def standing(self) -> str:
        """How far it has come, in words, for whoever looks at the mesh."""
        return f"rollout {self.spec.number} of mesh {self.rollout.mesh} is under way: {self.spec.course}"

    def proposes_any(self, keys: Container[Key]) -> bool:
        """Whether it proposes something in place of any of these resources."""
        return any(key in keys for key in self.proposals)


def candidate_of(world: World, mesh: str) -> Candidate | None:
    """What a mesh would be with the rollout that is under way in it; None where none is."""
    return world.derived(_candidates).get(mesh)


def assigned_world(world: World, dataplane: Key) -> World:
    """The World from which a proxy is served."""
    candidate = candidate_of(world, dataplane.mesh)
    return candidate.world if candidate is not None and dataplane.name in candidate.proxies else world


def is_held(world: World, dataplane: Key, keys: Container[Key]) -> bool:
    """Whether a proxy is served what a rollout proposes in place of any of these resources, and not what is stored."""
    candidate = candidate_of(world, dataplane.mesh)
    return candidate is not None and dataplane.name in candidate.proxies and candidate.proposes_any(keys)


def held_dataplanes(world: World, keys: Collection[Key]) -> frozenset[Key]:
    """The Dataplanes of all such proxies, connected or not."""
    candidates = [candidate_of(world, mesh) for mesh in {key.mesh for key in keys}]
    holding = [candidate for candidate in candidates if candidate is not None and candidate.proposes_any(keys)]
    proxies = ((candidate.rollout.mesh, name) for candidate in holding for name in candidate.proxies)
    return frozenset(Key("Dataplane", mesh, name) for mesh, name in proxies)


def rollouts_by_state(world: World, _earlier: Mapping[str, int] | None = None) -> Mapping[str, int]:
    """How many are under way, by how far they are."""
    states = Counter(dict.fromkeys(("Going", "Holding", "Paused"), 0))
    states.update(candidate.spec.state for candidate in world.derived(_candidates).values())
    return states


def rolled_keys(world: World, changed: frozenset[Key]) -> frozenset[Key]:
    """What was changed, for some proxies or for all, where a rollout is among what was written."""
    rollouts = [world.get(key) for key in changed if key == rollout_key(key.mesh)]
    of_rollouts = (resource.key(rollout.mesh) for rollout in rollouts if rollout for resource in rollout.spec.resources)
    return changed.union(of_rollouts) if rollouts else changed


def _candidates(world: World, earlier: Mapping[str, Candidate] | None) -> Mapping[str, Candidate]:
    """Those of each mesh. What did not change is taken over, with all that was looked up in it."""
    candidates = {}
    for mesh in world.table("Mesh"):
        rollout = world.get(rollout_key(mesh.name))
        if rollout is not None and rollout.spec.is_under_way:
            candidates[mesh.name] = _candidate(world, rollout, (earlier or {}).get(mesh.name))
    return candidates


def _candidate(world: World, rollout: Resource, earlier: Candidate | None) -> Candidate:
    spec: RolloutSpec = rollout.spec
    proposals = _proposals(world, rollout, earlier)
    proposed = world.proposed(proposals, None if earlier is None else earlier.world, without=_candidates)
    return Candidate(rollout, proposals, proposed, frozenset(spec.proxies))


def _proposals(world: World, rollout: Resource, earlier: Candidate | None) -> _Proposals:
    spec: RolloutSpec = rollout.spec
    if earlier is not None and (earlier.spec.resources, earlier.spec.content) == (spec.resources, spec.content):
        return earlier.proposals
    changes = changes_of(rollout.mesh, spec)
    return {key: None if document is None else parse(document, world.kinds) for key, document in changes.items()}

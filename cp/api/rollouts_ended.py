"""What is said to whoever writes a resource of a rollout that is under way: that ends it (record 0088)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cp.model.names import Key
from cp.resources.rollout import RolloutSpec, rollout_key
from cp.resources.world import World


def ended_by_write(world: World | None, keys: Iterable[Key]) -> Mapping[Key, str]:
    """A warning for each of these resources that a rollout is about to change."""
    specs = {} if world is None else {key: spec for key in keys if (spec := _under_way(world, key)) is not None}
    return {
        key: f"this ends rollout {spec.number} of mesh {key.mesh}, which changes it too: what it proposes is taken back"
        for key, spec in specs.items()
    }


def _under_way(world: World, key: Key) -> RolloutSpec | None:
    """The rollout that changes a resource."""
    rollout = world.get(rollout_key(key.mesh)) if key.mesh else None
    spec: RolloutSpec | None = None if rollout is None else rollout.spec
    is_changed = (
        spec is not None and spec.is_under_way and any(resource.key(key.mesh) == key for resource in spec.resources)
    )
    return spec if is_changed else None

"""The order of policies: which of two policies wins.

Every sort key is a tuple of numbers and names that sorts the strongest first, so ranks are negated in it.
Merging needs the weakest first: `sorted(…, key=…, reverse=True)`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from cp.model.target import EVERYTHING, RANK, TargetRef
from cp.resources.resource import Resource

Strength: TypeAlias = tuple[int | str, ...]

ORIGINS: Final = {"global": 1, "": 2, "zone": 3}
ROLES: Final = {"system": 1, "producer": 2, "consumer": 3, "workload-owner": 4}


def attributes(policy: Resource, target: TargetRef) -> Strength:
    """What counts first in every order (docs/concepts/matching-and-merging.md#who-wins): target, origin."""
    named, section = _of_dataplane(target)
    return (-RANK.get(target.kind, 0), -named, -section, -ORIGINS.get(policy.origin, 0))


def role(policy: Resource) -> int:
    return -ROLES.get(policy.role, 0)


def names(policy: Resource) -> tuple[str, str]:
    """The last keys: of two policies that are equal otherwise, the one whose name comes first in the alphabet wins.

    The stored name decides between namesakes from different zones or namespaces, where Kuma leaves it to chance.
    """
    return policy.display_name, policy.name


def precedence(policy: Resource) -> Strength:
    """The order of whole policies (docs/concepts/matching-and-merging.md#the-order-of-whole-policies)."""
    return policy.derived(_precedence)


def _precedence(policy: Resource) -> Strength:
    target = top_of(policy)
    return (*attributes(policy, target), -gateway_tags(target), role(policy), *names(policy))


def gateway_tags(target: TargetRef) -> int:
    """The number of tags by which a target names listeners of a gateway: the more, the more specific it is."""
    return len(target.tags or {}) if target.kind == "MeshGateway" else 0


def _of_dataplane(target: TargetRef) -> tuple[int, int]:
    """For the kind Dataplane: whether the target has a name, which beats labels, and whether it has a section."""
    if target.kind != "Dataplane":
        return 0, 0
    return int(bool(target.name)), int(bool(target.section_name))


def top_of(policy: Resource) -> TargetRef:
    """The target at the top of a policy: the whole mesh where none is written."""
    return policy.derived(_top_of)


def _top_of(policy: Resource) -> TargetRef:
    return target_of(policy.data.get("targetRef"))


def target_of(data: Any) -> TargetRef:
    """The target of plain data that is known to be valid."""
    return EVERYTHING if data is None else msgspec.convert(data, TargetRef)

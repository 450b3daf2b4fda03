"""`ChangeScope`s: the dependency names that a change of policies, or of the targets of their `to` items, concerns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from cp.model.dependency import EVERYTHING, ChangeScope, Name
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.rules.item_index import names_route_at_top, resources_meant
from cp.rules.items import PolicyItem, items, reference, shape_of, tags_of
from cp.rules.targets import TargetTables

_BROAD: Final = frozenset({"Mesh", "MeshSubset", "MeshGateway"})
"""Targets of items that are about more than services and routes by their names."""


def scope_of_policies(policies: Iterable[Resource], targets: Collection[TargetTables]) -> ChangeScope:
    """The scope of policies that came or went. `targets` has the resources of the Worlds before and after."""
    names: set[Name] = set()
    for policy in policies:
        if _concerns_everything(policy):
            return EVERYTHING
        names.update(name for item in items(policy).to for name in _names(item, targets))
    return ChangeScope(frozenset(names))


def _concerns_everything(policy: Resource) -> bool:
    return shape_of(policy).single or names_route_at_top(policy) or any(_is_broad(item) for item in items(policy).to)


def _is_broad(item: PolicyItem) -> bool:
    return item.target.kind in _BROAD or (bool(item.target.labels) and reference(item) is None)


def _names(item: PolicyItem, targets: Iterable[TargetTables]) -> Iterator[Name]:
    """The names of an item's target, be it there or not, and of the resources that it means."""
    kind, name = item.target.kind, item.target.name
    if name:
        # A name of Kubernetes may be written as a whole (`backend_shop_svc_80`). It begins with the display name.
        yield from ((kind, name), (kind, name.partition("_")[0]), (SERVICE_TAG, name))
    meant = reference(item)
    if meant is not None:
        for tables in targets:
            yield from ((resource.identity.type, resource.identity.name) for resource in resources_meant(tables, meant))


def knows_tags_beside_services(policy: Resource) -> bool:
    """Whether a policy tells destinations apart by more than the tag of their service."""
    if names_route_at_top(policy):
        return True
    tags = (tags_of(item) for item in items(policy).to)
    return any(name != SERVICE_TAG for of_item in tags if of_item is not None for name, _ in of_item)


def scope_of_targets(before: TargetTables, now: TargetTables) -> ChangeScope:
    """The scope of services and routes that are not the same objects as before."""
    pairs = zip(before.tables, now.tables, strict=False)  # kinds of policies without targets have no tables
    changed = (resource for old, new in pairs for resource in old.differing(new))
    return ChangeScope(frozenset((resource.identity.type, resource.identity.name) for resource in changed))

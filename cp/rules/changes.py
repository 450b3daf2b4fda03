"""What a change of policies or of their targets can concern, so that all else is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cp.model.names import Destination, Identity
from cp.resources.resource import Resource
from cp.resources.world import Table
from cp.rules.items import Item, items, reference
from cp.rules.naming import is_outdated, resolve
from cp.rules.targets import Targets


@dataclass(frozen=True, slots=True)
class Changes:
    """Who may see a difference."""

    everybody: bool = False
    identities: frozenset[Identity] = frozenset()
    """Whole resources: their sections are concerned too."""

    tags: bool = False
    """Whether destinations by tags may see one."""

    def concern(self, destination: Destination, route: Identity | None = None) -> bool:
        """Whether what holds for a destination, or for a route to it, may be another."""
        if self.everybody or (route is not None and route in self.identities):
            return True
        return self.tags if destination.identity is None else destination.identity.whole in self.identities

    @property
    def names(self) -> Iterator[tuple[str, str]]:
        """Kind and name of whoever is concerned."""
        return ((identity.type, identity.name) for identity in self.identities)


def changes(policies: Iterable[Resource], before: Targets, now: Targets, changed: frozenset[Identity]) -> Changes:
    """What it can concern that some policies came or went, and that some of their targets changed."""
    policies = list(policies)
    found = [item for policy in policies for item in items(policy).to]
    everybody = any(item.target.kind == "Mesh" or is_outdated(item.policy) for item in found)
    named = {one for item in found for one in _named(item, (before, now))}
    of_routes = any(identity.type == "MeshHTTPRoute" for identity in changed)
    return Changes(everybody, frozenset(named | changed), tags=bool(policies) or of_routes)


def _named(item: Item, targets: Iterable[Targets]) -> Iterator[Identity]:
    to = reference(item)
    if to is not None:
        yield from (resource.identity for some in targets for resource in resolve(some, to))


def changed_targets(before: Targets, now: Targets) -> frozenset[Identity]:
    """The resources that are not the same objects in both."""
    pairs = [(old, new) for old, new in zip(before.tables, now.tables, strict=False) if old is not new]
    found = (one for old, new in pairs for one in (*_only_in(old, new), *_only_in(new, old)))
    return frozenset(resource.identity for resource in found)


def _only_in(one: Table, other: Table) -> Iterator[Resource]:
    return (resource for resource in one if other.get(resource.name) is not resource)

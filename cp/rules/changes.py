"""What a change of policies or of their targets can concern, so that all else is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cp.model.names import Destination, Identity
from cp.resources.resource import Resource
from cp.resources.world import Table
from cp.rules.item_index import is_outdated, resolve
from cp.rules.items import SERVICE_TAG, PolicyItem, items, reference, tags_of
from cp.rules.targets import TargetTables


@dataclass(frozen=True, slots=True)
class RuleChanges:
    """Who may see a difference. An item for the whole mesh concerns everybody."""

    everybody: bool = False
    identities: frozenset[Identity] = frozenset()
    """Whole resources: their sections are concerned too."""

    services: frozenset[str] | None = None
    """Those that are known by their tag; None for all of them."""

    def concern(self, destination: Destination, route: Identity | None = None) -> bool:
        """Whether what holds for a destination, or for a route to it, may be another."""
        if self.everybody or (route is not None and route in self.identities):
            return True
        if destination.identity is None:
            return self.services is None or destination.service in self.services
        return destination.identity.whole in self.identities

    @property
    def names(self) -> Iterator[tuple[str, str]]:
        """Kind and name of whoever is concerned, but for services by tags where that is all of them."""
        yield from ((identity.type, identity.name) for identity in self.identities)
        yield from (("", service) for service in self.services or ())


def changes(
    delta: Iterable[Resource], scenes: tuple[TargetTables, TargetTables], changed: frozenset[Identity]
) -> RuleChanges:
    """What it can concern that some policies came or went, and that some of their targets changed."""
    delta = list(delta)
    found = [item for policy in delta for item in items(policy).to]
    everybody = any(item.target.kind == "Mesh" or is_outdated(item.policy) for item in found)
    named = {one for item in found for one in _named(item, scenes)}
    return RuleChanges(everybody, frozenset(named | changed), _services(delta))


def _services(policies: Iterable[Resource]) -> frozenset[str] | None:
    found = [policy.derived(services_named) for policy in policies]
    return None if None in found else frozenset(service for some in found for service in some or ())


def services_named(policy: Resource) -> frozenset[str] | None:
    """The services that a policy names by their tag; None if it tells destinations apart by more than that."""
    if is_outdated(policy):
        return None
    tags = [found for item in items(policy).to if (found := tags_of(item)) is not None]
    if any(key != SERVICE_TAG for some in tags for key, _ in some):
        return None
    return frozenset(value for some in tags for _, value in some)


def _named(item: PolicyItem, targets: Iterable[TargetTables]) -> Iterator[Identity]:
    to = reference(item)
    if to is not None:
        yield from (resource.identity for some in targets for resource in resolve(some, to))


def changed_targets(before: TargetTables, now: TargetTables) -> frozenset[Identity]:
    """The resources that are not the same objects in both."""
    pairs = [(old, new) for old, new in zip(before.tables, now.tables, strict=False) if old is not new]
    found = (one for old, new in pairs for one in (*_only_in(old, new), *_only_in(new, old)))
    return frozenset(resource.identity for resource in found)


def _only_in(one: Table, other: Table) -> Iterator[Resource]:
    return (resource for resource in one if other.get(resource.name) is not resource)

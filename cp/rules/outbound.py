"""Rules for real resources: what the items that hold for one come to.

See docs/concepts/matching-and-merging.md#which-destinations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from cp.model.names import Identity
from cp.model.remembered import remembered
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE, ROUTE_KINDS
from cp.rules.combined import CombinedConf, MergeCache
from cp.rules.item_index import ItemIndex, names_route_at_top
from cp.rules.items import PolicyItem, items
from cp.rules.matching import routes_at_top
from cp.rules.targets import TargetTables


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """What holds for one real resource, or one section of it."""

    identity: Identity
    combined: CombinedConf


class ToRules:
    """The rules that the policies of one kind which select a proxy make for real resources."""

    def __init__(  # all on which they depend
        self,
        targets: TargetTables,
        item_index: ItemIndex,
        policies: Collection[Resource],
        cache: MergeCache,
        *,
        at_gateway: bool = False,
    ) -> None:
        self._targets = targets
        self._item_index = item_index
        self._policies = frozenset(policies)
        self._naming_routes_at_top = [policy for policy in policies if names_route_at_top(policy)]
        self._cache = cache
        self._at_gateway = at_gateway
        self._combined: dict[tuple[PolicyItem, ...], CombinedConf] = {}
        """By the items of one resource: those items merged with the items of the mesh."""

    def rule(self, identity: Identity) -> ResourceRule | None:
        """What holds for a service or a section of it: its own rule, else that of the service, else that of the mesh.

        A rule contains the more general items too, so the most special one that exists is enough.
        """
        of_mesh = None if identity.type in ROUTE_KINDS else self.mesh
        resource = self._targets.find(identity)
        if resource is None:
            return of_mesh
        own = [(item, section) for item, section in self._item_index.items_for(resource) if item.is_of(self._policies)]
        section = identity.section
        if section and any(of == section for _, of in own):
            return self._rule(identity, tuple(item for item, of in own if of in {"", section}))
        whole = tuple(item for item, of in own if not of)
        return self._rule(identity.whole, whole) if whole else of_mesh

    def route(self, identity: Identity) -> ResourceRule | None:
        """What holds for a route: only the items for that very route (record 0007)."""
        return self.rule(identity) if identity.type in ROUTE_KINDS else None

    @remembered
    def mesh(self) -> ResourceRule | None:
        """What holds for the whole mesh."""
        if not self._of_mesh:
            return None
        mesh = Identity("Mesh", "", self._of_mesh[0].policy.mesh)
        return ResourceRule(mesh, self._cache.combine(self._of_mesh))

    def items_at_top(self, route: Identity) -> tuple[PolicyItem, ...]:
        """The items of the policies that name a route in their top-level target: all of their items are about it.

        See docs/concepts/matching-and-merging.md#the-old-way-to-name-a-route.
        """
        table = self._targets.table(HTTP_ROUTE)
        policies = (
            policy for policy in self._naming_routes_at_top if route in _identities(routes_at_top(table, policy))
        )
        return tuple(item for policy in policies for item in items(policy).to)

    @property
    def all(self) -> Iterator[ResourceRule]:
        """The rules of all resources and sections that some item names, and of the mesh."""
        if self.mesh is not None:
            yield self.mesh
        named = self._item_index.identities_named_in(self._policies, self._targets)
        for identity in sorted(named, key=_services_first):
            rule = self.rule(identity)
            if rule is not None and rule.identity == identity:
                yield rule

    @remembered
    def _of_mesh(self) -> tuple[PolicyItem, ...]:
        return self._ordered(item for item in self._item_index.of_mesh if item.is_of(self._policies))

    def take_over(self, rules_before: ToRules) -> None:
        """Keep the merges of an earlier World. The items for the mesh must be the same there."""
        for own, combined in rules_before._combined.copy().items():  # threads may still ask those before
            if all(item.is_of(self._policies) for item in own):
                self._combined[own] = combined

    def _rule(self, identity: Identity, own: tuple[PolicyItem, ...]) -> ResourceRule:
        if own not in self._combined:
            mesh = () if identity.type in ROUTE_KINDS else self._of_mesh
            self._combined[own] = self._cache.combine(self._ordered((*mesh, *own)))
        return ResourceRule(identity, self._combined[own])

    def _ordered(self, policy_items: Iterable[PolicyItem]) -> tuple[PolicyItem, ...]:
        """Items from the weakest to the strongest."""
        if self._at_gateway:
            return tuple(sorted(policy_items, key=attrgetter("order_at_gateway"), reverse=True))
        return tuple(sorted(policy_items, key=self._item_index.rank.__getitem__))


def _services_first(identity: Identity) -> tuple[bool, Identity]:
    return identity.type in ROUTE_KINDS, identity


def _identities(resources: Iterable[Resource]) -> Iterator[Identity]:
    return (resource.identity for resource in resources)

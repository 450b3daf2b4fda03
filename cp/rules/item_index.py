"""The `to` items of all policies of one kind in a mesh, by the services and routes that they name.

The policies that select a proxy are a subset of these, so the index is made once for all proxies. Policies that name a
route in their top-level target are left out: `ToRules.items_at_top` has their items. A resource that no item names has
no entry in the index. See docs/concepts/matching-and-merging.md#what-a-target-names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeAlias
from weakref import WeakKeyDictionary

from cp.model.names import Identity
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE
from cp.rules.items import ItemReference, PolicyItem, items, reference
from cp.rules.matching import top_of
from cp.rules.sections import has_sections, section_of
from cp.rules.targets import TargetTables

_Label: TypeAlias = tuple[str, tuple[str, str]]
_Referring: TypeAlias = tuple[PolicyItem, ItemReference]
ResourceItems: TypeAlias = tuple[tuple[PolicyItem, str], ...]
"""The items for one resource, each with the section that it is for. An empty text is the resource as a whole."""


class ItemIndex:
    """The items of a table of policies; use it as `table.derived(ItemIndex)`.

    It depends on these policies alone, not on services or routes: a resource is an argument of the question. The answer
    for a resource is kept for as long as the resource lives.
    """

    def __init__(self, policies: Iterable[Resource]) -> None:
        current = [item for policy in policies if not names_route_at_top(policy) for item in items(policy).to]
        ordered = sorted(current, key=lambda item: item.order, reverse=True)
        self.rank: Mapping[PolicyItem, int] = {
            form: rank for rank, item in enumerate(ordered) for form in (item, item.for_whole) if form is not None
        }
        """The order of merging: 0 is the weakest, which is merged first. `PolicyItem.order` runs the other way.

        See docs/concepts/matching-and-merging.md#who-wins.
        """

        self.of_mesh = tuple(item for item in ordered if item.target.kind == "Mesh")
        """The items for all services of the mesh, the weakest first."""

        self._by_identity: dict[Identity, list[_Referring]] = {}
        self._by_label: dict[_Label, list[_Referring]] = {}
        self._items_for: WeakKeyDictionary[Resource, ResourceItems] = WeakKeyDictionary()
        for item in ordered:
            if item.target.kind != "Mesh" and (target := reference(item)) is not None:
                self._add(item, target)

    def _add(self, item: PolicyItem, target: ItemReference) -> None:
        if target.labels:
            # One label is enough to find the candidates; `_has_labels` compares all labels of the reference.
            self._by_label.setdefault((target.identity.type, target.labels[0]), []).append((item, target))
        else:
            self._by_identity.setdefault(target.identity.whole, []).append((item, target))

    def items_for(self, resource: Resource) -> ResourceItems:
        """The items for a resource and its sections (ports). Items for sections that it lacks are left out."""
        known = self._items_for.get(resource)
        if known is None:
            sections = ((item, section_meant(resource, target)) for item, target in self._items_naming(resource))
            known = tuple((_at_level(item, section), section) for item, section in sections if section is not None)
            self._items_for[resource] = known
        return known

    def _items_naming(self, resource: Resource) -> list[_Referring]:
        """The items whose target is this resource, or a section of it."""
        referring = list(self._by_identity.get(resource.identity, ()))
        if self._by_label:
            labels = resource.selectable_labels
            for label in labels.items():
                candidates = self._by_label.get((resource.type, label), ())
                referring += [(item, target) for item, target in candidates if _has_labels(labels, target)]
        return referring

    def identities_named_in(self, policies: Collection[Resource], targets: TargetTables) -> AbstractSet[Identity]:
        """The existing resources and sections that items of these policies name."""
        by_key = (*self._by_identity.values(), *self._by_label.values())
        named = (target for referring in by_key for item, target in referring if item.is_of(policies))
        return {identity for target in named for identity in _identities(targets, target)}


def names_route_at_top(policy: Resource) -> bool:
    """Whether a policy names a MeshHTTPRoute in its top-level target: the old way, now an item of `to` names the route.

    See docs/concepts/matching-and-merging.md#the-old-way-to-name-a-route.
    """
    return top_of(policy).kind == HTTP_ROUTE


def resources_meant(targets: TargetTables, target: ItemReference) -> tuple[Resource, ...]:
    """The resources that a reference means. Its section is ignored: `section_meant` finds that."""
    if target.labels:
        table = targets.table(target.identity.type)
        return tuple(resource for resource in table if _has_labels(resource.selectable_labels, target))
    resource = targets.find(target.identity)
    return () if resource is None else (resource,)


def section_meant(resource: Resource, target: ItemReference) -> str | None:
    """The name of the section of a resource that a reference means; empty for the resource as a whole.

    A resource without sections is meant as a whole, whatever section is written. None if a resource with sections lacks
    this one, unless the reference then means the whole (`ItemReference.or_whole`).
    """
    written = target.identity.section
    if not written or not has_sections(resource):
        return ""
    section = section_of(resource, written)
    return "" if section is None and target.or_whole else section


def _at_level(item: PolicyItem, section: str) -> PolicyItem:
    """The item at the level that it has for a resource: an old name with a port may mean the resource as a whole."""
    return item if section or item.for_whole is None else item.for_whole


def _identities(targets: TargetTables, target: ItemReference) -> Iterator[Identity]:
    for resource in resources_meant(targets, target):
        section = section_meant(resource, target)
        if section is not None:
            yield resource.identity.of_section(section)


def _has_labels(labels: Mapping[str, str], target: ItemReference) -> bool:
    return all(labels.get(name) == value for name, value in target.labels)

"""The `to` items of all policies of one kind, by the real resources that they name.

See docs/concepts/matching-and-merging.md#what-a-target-names.

Whatever selects a proxy is a part of this. A resource that nobody names costs nothing, and one that is named is looked
at once for all proxies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias
from weakref import WeakKeyDictionary

from cp.model.names import Identity
from cp.resources.resource import Resource
from cp.resources.world import Table
from cp.rules.items import ItemReference, PolicyItem, items, reference
from cp.rules.matching import top_of
from cp.rules.sections import has_sections, section_of
from cp.rules.targets import TargetTables

_Label: TypeAlias = tuple[str, tuple[str, str]]
_Referring: TypeAlias = tuple[PolicyItem, ItemReference]
Own: TypeAlias = tuple[tuple[PolicyItem, str], ...]
"""Items for one resource, each with the section that it is for; empty for the whole."""


class ItemIndex:
    """It knows no World: resources are looked at one by one."""

    def __init__(self, policies: Iterable[Resource]) -> None:
        found = [item for policy in policies if not is_outdated(policy) for item in items(policy).to]
        ordered = sorted(found, key=lambda item: item.order, reverse=True)
        self.places: Mapping[PolicyItem, int] = {item: place for place, item in enumerate(ordered)}
        """The order of merging (docs/concepts/matching-and-merging.md#who-wins)."""

        self.of_mesh = tuple(item for item in ordered if item.target.kind == "Mesh")
        self._by_identity: dict[Identity, list[_Referring]] = {}
        self._by_label: dict[_Label, list[_Referring]] = {}
        self._own: WeakKeyDictionary[Resource, Own] = WeakKeyDictionary()
        for item in ordered:
            if item.target.kind != "Mesh" and (to := reference(item)) is not None:
                self._add(item, to)

    def _add(self, item: PolicyItem, to: ItemReference) -> None:
        if to.labels:
            self._by_label.setdefault((to.identity.type, to.labels[0]), []).append((item, to))
        else:
            self._by_identity.setdefault(to.identity.whole, []).append((item, to))

    def own(self, resource: Resource) -> Own:
        """The items for a resource and its sections. Those for ports that it lacks are left out."""
        found = self._own.get(resource)
        if found is None:
            sections = ((item, section_meant(resource, to)) for item, to in self._naming(resource))
            found = self._own[resource] = tuple((item, one) for item, one in sections if one is not None)
        return found

    def _naming(self, resource: Resource) -> list[_Referring]:
        """The items whose target is this resource, or a section of it."""
        found = list(self._by_identity.get(resource.identity, ()))
        if self._by_label:
            labels = resource.selectable_labels
            for label in labels.items():
                found += [one for one in self._by_label.get((resource.type, label), ()) if _has(labels, one[1])]
        return found

    def named_by(self, policies: Collection[Resource], targets: TargetTables) -> Iterator[Identity]:
        """The resources and sections that some policies name."""
        for referring in (*self._by_identity.values(), *self._by_label.values()):
            for item, to in referring:
                if item.policy in policies:
                    yield from _identities(targets, to)


def naming(table: Table) -> ItemIndex:
    """The items of a table of policies; use it as `table.derived(naming)`."""
    return ItemIndex(table)


def is_outdated(policy: Resource) -> bool:
    """Whether a policy names a route in its top-level target, as was done before `to` could.

    See docs/concepts/matching-and-merging.md#the-old-way-to-name-a-route.
    """
    return top_of(policy).kind == "MeshHTTPRoute"


def resolve(targets: TargetTables, to: ItemReference) -> tuple[Resource, ...]:
    """The resources that a reference means; their sections are not looked at."""
    if to.labels:
        return tuple(one for one in targets.table(to.identity.type) if _has(one.selectable_labels, to))
    found = targets.find(to.identity)
    return () if found is None else (found,)


def section_meant(resource: Resource, to: ItemReference) -> str | None:
    """The section of a resource that a reference means, empty for the whole; None if there is no such section."""
    written = to.identity.section
    if not written or not has_sections(resource):
        return ""
    found = section_of(resource, written)
    return "" if found is None and to.or_whole else found


def _identities(targets: TargetTables, to: ItemReference) -> Iterator[Identity]:
    for resource in resolve(targets, to):
        section = section_meant(resource, to)
        if section is not None:
            yield resource.identity.of_section(section)


def _has(labels: Mapping[str, str], to: ItemReference) -> bool:
    return all(labels.get(name) == value for name, value in to.labels)

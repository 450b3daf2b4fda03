"""The `to` items of all policies of one kind in a mesh, by the services and routes that they name.

The policies that select a proxy are a subset of these, so the index is made once for all proxies. A resource that no
item names costs nothing. See docs/concepts/matching-and-merging.md#what-a-target-names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias
from weakref import WeakKeyDictionary

from cp.model.names import Identity
from cp.resources.resource import Resource
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

    It depends on these policies alone. It is given the resources that it is asked about, and remembers its answers for
    as long as they live.
    """

    def __init__(self, policies: Iterable[Resource]) -> None:
        current = [item for policy in policies if not is_outdated(policy) for item in items(policy).to]
        ordered = sorted(current, key=lambda item: item.order, reverse=True)
        self.rank: Mapping[PolicyItem, int] = {item: rank for rank, item in enumerate(ordered)}
        """The order of merging: 0 is the weakest (docs/concepts/matching-and-merging.md#who-wins)."""

        self.of_mesh = tuple(item for item in ordered if item.target.kind == "Mesh")
        self._by_identity: dict[Identity, list[_Referring]] = {}
        self._by_label: dict[_Label, list[_Referring]] = {}
        self._items_for: WeakKeyDictionary[Resource, ResourceItems] = WeakKeyDictionary()
        for item in ordered:
            if item.target.kind != "Mesh" and (to := reference(item)) is not None:
                self._add(item, to)

    def _add(self, item: PolicyItem, to: ItemReference) -> None:
        if to.labels:
            # One label is enough to find the candidates; `_has` looks at all of them.
            self._by_label.setdefault((to.identity.type, to.labels[0]), []).append((item, to))
        else:
            self._by_identity.setdefault(to.identity.whole, []).append((item, to))

    def items_for(self, resource: Resource) -> ResourceItems:
        """The items for a resource and its sections. Those for ports that it lacks are left out."""
        known = self._items_for.get(resource)
        if known is None:
            sections = ((item, section_meant(resource, to)) for item, to in self._items_naming(resource))
            known = tuple((item, section) for item, section in sections if section is not None)
            self._items_for[resource] = known
        return known

    def _items_naming(self, resource: Resource) -> list[_Referring]:
        """The items whose target is this resource, or a section of it."""
        referring = list(self._by_identity.get(resource.identity, ()))
        if self._by_label:
            labels = resource.selectable_labels
            for label in labels.items():
                candidates = self._by_label.get((resource.type, label), ())
                referring += [(item, to) for item, to in candidates if _has(labels, to)]
        return referring

    def named_by(self, policies: Collection[Resource], targets: TargetTables) -> Iterator[Identity]:
        """The resources and sections that some policies name."""
        for referring in (*self._by_identity.values(), *self._by_label.values()):
            for item, to in referring:
                if item.policy in policies:
                    yield from _identities(targets, to)


def is_outdated(policy: Resource) -> bool:
    """Whether a policy names a route in its top-level target, as was done before an item of `to` could name one.

    See docs/concepts/matching-and-merging.md#the-old-way-to-name-a-route.
    """
    return top_of(policy).kind == "MeshHTTPRoute"


def resolve(targets: TargetTables, to: ItemReference) -> tuple[Resource, ...]:
    """The resources that a reference means. Its section is ignored: `section_meant` finds that."""
    if to.labels:
        table = targets.table(to.identity.type)
        return tuple(resource for resource in table if _has(resource.selectable_labels, to))
    resource = targets.find(to.identity)
    return () if resource is None else (resource,)


def section_meant(resource: Resource, to: ItemReference) -> str | None:
    """The section of a resource that a reference means, empty for the whole; None if there is no such section."""
    written = to.identity.section
    if not written or not has_sections(resource):
        return ""
    section = section_of(resource, written)
    return "" if section is None and to.or_whole else section


def _identities(targets: TargetTables, to: ItemReference) -> Iterator[Identity]:
    for resource in resolve(targets, to):
        section = section_meant(resource, to)
        if section is not None:
            yield resource.identity.of_section(section)


def _has(labels: Mapping[str, str], to: ItemReference) -> bool:
    return all(labels.get(name) == value for name, value in to.labels)

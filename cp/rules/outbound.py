"""`to` items for real resources: which of them hold for which service, section or route (6.1 to 6.4).

Items for the whole mesh are kept apart from those for one target, so that a target which nobody names costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias
from weakref import WeakKeyDictionary

from cp.matching import route_of, top_of
from cp.model.names import Identity
from cp.resources.resource import Resource
from cp.rules.combined import Combined, Shelf
from cp.rules.items import Item, Reference, items, reference
from cp.rules.sections import has_sections, section_of
from cp.rules.targets import ROUTES, Targets

_Label: TypeAlias = tuple[str, tuple[str, str]]
_Referring: TypeAlias = tuple[Item, Reference]


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """What holds for one real resource, or one section of it."""

    identity: Identity
    combined: Combined


class Index:
    """The `to` items of some policies, by their targets. It knows no World: resources are looked at one by one."""

    def __init__(self, policies: tuple[Resource, ...], shelf: Shelf) -> None:
        self.outdated = [policy for policy in policies if top_of(policy).kind == "MeshHTTPRoute"]
        """Policies that name a route in their top-level target."""

        found = [item for policy in policies if policy not in self.outdated for item in items(policy).to]
        ordered = sorted(found, key=lambda item: item.order, reverse=True)
        self._shelf = shelf
        self._places = {item: place for place, item in enumerate(ordered)}
        self._of_mesh = tuple(item for item in ordered if item.target.kind == "Mesh")
        self._by_identity: dict[Identity, list[_Referring]] = {}
        self._by_label: dict[_Label, list[_Referring]] = {}
        self._rules: WeakKeyDictionary[Resource, dict[str, ResourceRule | None]] = WeakKeyDictionary()
        for item in ordered:
            if item.target.kind != "Mesh" and (to := reference(item)) is not None:
                self._add(item, to)

    def _add(self, item: Item, to: Reference) -> None:
        if to.labels:
            self._by_label.setdefault((to.identity.type, to.labels[0]), []).append((item, to))
        else:
            self._by_identity.setdefault(to.identity.whole, []).append((item, to))

    @cached_property
    def mesh(self) -> ResourceRule | None:
        """What holds for the whole mesh."""
        if not self._of_mesh:
            return None
        mesh = Identity("Mesh", "", self._of_mesh[0].policy.mesh)
        return ResourceRule(mesh, self._shelf.combine(self._of_mesh))

    def rule(self, resource: Resource, section: str) -> ResourceRule | None:
        """What holds for a section of a resource, or for the whole of it."""
        of_resource = self._rules.get(resource)
        if of_resource is None:
            of_resource = self._rules[resource] = {}
        if section not in of_resource:
            of_resource[section] = self._rule(resource, section)
        return of_resource[section]

    @property
    def references(self) -> Iterator[Reference]:
        """Everybody who is named."""
        for referring in (*self._by_identity.values(), *self._by_label.values()):
            yield from (to for _, to in referring)

    def _rule(self, resource: Resource, section: str) -> ResourceRule | None:
        own = self._own(resource)
        if section and any(of == section for _, of in own):
            found = [item for item, of in own if of in {"", section}]
            return self._combined(resource.identity.of_section(section), found)
        if whole := [item for item, of in own if not of]:
            return self._combined(resource.identity, whole)
        return None if resource.type in ROUTES else self.mesh

    def _own(self, resource: Resource) -> list[tuple[Item, str]]:
        """The items for a resource, each with the section that it is for. Those for ports that it lacks are out."""
        sections = ((item, section_meant(resource, to)) for item, to in self._naming(resource))
        return [(item, section) for item, section in sections if section is not None]

    def _naming(self, resource: Resource) -> list[_Referring]:
        """The items whose target is this resource, or a section of it."""
        found = list(self._by_identity.get(resource.identity, ()))
        if self._by_label:
            labels = _labels(resource)
            for label in labels.items():
                found += [one for one in self._by_label.get((resource.type, label), ()) if _has(labels, one[1])]
        return found

    def _combined(self, identity: Identity, own: list[Item]) -> ResourceRule:
        mesh = () if identity.type in ROUTES else self._of_mesh
        ordered = sorted({*mesh, *own}, key=self._places.__getitem__)
        return ResourceRule(identity, self._shelf.combine(tuple(ordered)))


class ToRules:
    """The rules for the real resources of one World."""

    def __init__(self, targets: Targets, index: Index) -> None:
        self._targets = targets
        self._index = index

    def rule(self, identity: Identity) -> ResourceRule | None:
        """What holds for a service or a section of it: its own rule, else that of the whole, else that of the mesh.

        A rule contains the more general items too (decision 1), so the first that there is says it all.
        """
        resource = self._targets.find(identity)
        if resource is None:
            return None if identity.type in ROUTES else self._index.mesh
        return self._index.rule(resource, identity.section)

    def route(self, identity: Identity) -> ResourceRule | None:
        """What holds for a route: only the items for that very route (decision 1)."""
        return self.rule(identity) if identity.type in ROUTES else None

    @property
    def mesh(self) -> ResourceRule | None:
        """What holds for the whole mesh."""
        return self._index.mesh

    def outdated(self, route: Identity) -> tuple[Item, ...]:
        """What policies say of a route in the old way, by naming it in their top-level target (decision 6)."""
        table = self._targets.table("MeshHTTPRoute")
        naming = (policy for policy in self._index.outdated if _is(route_of(table, policy), route))
        return tuple(item for policy in naming for item in items(policy).to)

    @property
    def all(self) -> Iterator[ResourceRule]:
        """The rules of all resources and sections that some item names, and of the mesh."""
        if self.mesh is not None:
            yield self.mesh
        for identity in sorted({named for to in self._index.references for named in self._resolve(to)}):
            rule = self.rule(identity)
            if rule is not None and rule.identity == identity:
                yield rule

    def _resolve(self, to: Reference) -> Iterator[Identity]:
        for resource in resolve(self._targets, to):
            section = section_meant(resource, to)
            if section is not None:
                yield resource.identity.of_section(section)


def resolve(targets: Targets, to: Reference) -> tuple[Resource, ...]:
    """The resources that a reference means; their sections are not looked at."""
    if to.labels:
        return tuple(one for one in targets.table(to.identity.type) if _has(_labels(one), to))
    found = targets.find(to.identity)
    return () if found is None else (found,)


def section_meant(resource: Resource, to: Reference) -> str | None:
    """The section of a resource that a reference means, empty for the whole; None if there is no such section."""
    written = to.identity.section
    if not written or not has_sections(resource):
        return ""
    found = section_of(resource, written)
    return "" if found is None and to.or_whole else found


def _labels(resource: Resource) -> dict[str, str]:
    """Labels to choose by. A display name that is absent is the name."""
    return {"kuma.io/display-name": resource.display_name, **resource.labels}


def _has(labels: Mapping[str, str], to: Reference) -> bool:
    return all(labels.get(name) == value for name, value in to.labels)


def _is(resource: Resource | None, identity: Identity) -> bool:
    return resource is not None and resource.identity == identity

"""`ChangeScope`s: which dependency names a change between two Worlds touches.

An outbound or backend of a class is worked out again if the scope has one of the names that it depends on
(`OutboundResult.depends_on`). The scope of a change is the union of what the functions here return.

Where it is not known exactly, a change concerns too many: a result that is worked out again and is equal costs a
look-up and sends nothing (records 0026 and 0054).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from cp.identity.workloads import workload_identities
from cp.model.dependency import ANY, EVERYTHING, NOTHING, ChangeScope, Name
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE
from cp.resources.world import Table, World
from cp.rules.changes import scope_of_policies
from cp.rules.item_index import names_route_at_top
from cp.rules.matching import top_of
from cp.rules.targets import TargetTables
from cp.translate.view.backend_refs import REFERRED
from cp.translate.view.dataplanes import ports_of
from cp.translate.view.outside import LEGACY_EXTERNAL, SECRET

T = TypeVar("T")

PoliciesByKind: TypeAlias = Mapping[str, tuple[Resource, ...]]
"""The policies that decide over the outbounds of a class, by kind."""

_SERVICES: Final = frozenset({"MeshService", "MeshExternalService", "MeshMultiZoneService"})


class ResourceChanges:
    """What has changed up to one World. All classes of the World before ask for the same, so it is remembered."""

    def __init__(self, now: World) -> None:
        self._now = now
        self._scopes: WeakKeyDictionary[World, dict[str, ChangeScope]] = WeakKeyDictionary()
        self._routes: WeakKeyDictionary[World, dict[str, frozenset[str]]] = WeakKeyDictionary()

    def scope_since(self, before: World, mesh: str) -> ChangeScope:
        """The scope of the resources of a mesh that changed, without policies."""
        return _remembered(self._scopes, before, mesh, lambda: scope_of_resources(before, self._now, mesh))

    def routes_since(self, before: World, mesh: str) -> frozenset[str]:
        """The names of the MeshHTTPRoutes that changed."""
        return _remembered(self._routes, before, mesh, lambda: _changed_routes(before, self._now, mesh))


def _remembered(
    values: WeakKeyDictionary[World, dict[str, T]], world: World, mesh: str, work_out: Callable[[], T]
) -> T:
    of_world = values.setdefault(world, {})
    if mesh not in of_world:
        of_world[mesh] = work_out()
    return of_world[mesh]


def _changed_routes(before: World, now: World, mesh: str) -> frozenset[str]:
    changed = _changed(before, now, HTTP_ROUTE, mesh)
    return frozenset(name for route in changed for name in (route.name, route.display_name))


def scope_of_resources(before: World, now: World, mesh: str) -> ChangeScope:
    """The scope of the resources of a mesh that changed. Policies are left to the other functions."""
    if before.mesh(mesh) is not now.mesh(mesh):
        return EVERYTHING
    if workload_identities(before, mesh) != workload_identities(now, mesh):
        return EVERYTHING  # they select Dataplanes, and any service may be of one of them
    names: set[Name] = set()
    for kind in _SERVICES:
        for service in _changed(before, now, kind, mesh):
            # References may say the name or the display name, and a call by tag says the display name.
            names |= {(kind, service.name), (kind, service.display_name), (SERVICE_TAG, service.display_name)}
            names.add((kind, ANY))
    for legacy in _changed(before, now, LEGACY_EXTERNAL, mesh):
        names.add((SERVICE_TAG, (legacy.spec.tags or {}).get(SERVICE_TAG, "")))
    names |= {(SECRET, secret.name) for secret in _changed(before, now, SECRET, mesh)}
    names |= {(kind, ANY) for kind in REFERRED if before.table(kind, mesh) is not now.table(kind, mesh)}
    for dataplane in _changed(before, now, "Dataplane", mesh):
        names |= names_of_services(dataplane, (before, now))
    return ChangeScope(frozenset(names))


def _changed(before: World, now: World, kind: str, mesh: str) -> Iterator[Resource]:
    return before.table(kind, mesh).differing(now.table(kind, mesh))


def scope_of_matches(before: PoliciesByKind, now: PoliciesByKind, targets: Collection[TargetTables]) -> ChangeScope:
    """The scope of the policies that decide over a class now and did not before, or the other way round."""
    changed = (
        policy
        for kind in before.keys() | now.keys()
        if before.get(kind, ()) != now.get(kind, ())
        for policy in set(before.get(kind, ())) ^ set(now.get(kind, ()))
    )
    return scope_of_policies(changed, targets)


def scope_of_routes_at_top(changed: Collection[str], policies: PoliciesByKind) -> ChangeScope:
    """The scope of changed routes, by their names, that these policies name in their top-level targets.

    A policy whose top-level target is a route prefers the route of its own namespace. If that one comes or goes,
    another route of that display name gets the conf, so everything is worked out again.
    """
    of_all_kinds = (policy for of_kind in policies.values() for policy in of_kind)
    targets = (top_of(policy) for policy in of_all_kinds if changed and names_route_at_top(policy))
    is_named = any(target.labels or target.name in changed for target in targets)
    return EVERYTHING if is_named else NOTHING


def names_of_services(dataplane: Resource, worlds: Iterable[World]) -> set[Name]:
    """The names by which outbounds depend on a dataplane: its service tags, and MeshServices that may select it.

    `ANY` is among them, as some outbounds depend on all MeshServices.
    """
    tags = {tag for port in ports_of(dataplane) for tag in port.tags.items()}
    names = {(SERVICE_TAG, value) for name, value in tags if name == SERVICE_TAG}
    for world in worlds:
        selectors = world.table("MeshService", dataplane.mesh).derived(_service_selectors)
        services = {service for tag in tags for service in selectors.by_tag.get(tag, ())} | selectors.without_tags
        names |= {("MeshService", service.display_name) for service in services}
    return names | {("MeshService", ANY)}


@dataclass(frozen=True, slots=True)
class _ServiceSelectors:
    """MeshServices by how they select dataplanes."""

    by_tag: Mapping[tuple[str, str], list[Resource]]
    """By tag. A service that needs several tags stands under the first of them in the alphabet alone."""

    without_tags: frozenset[Resource]
    """The services that select by other means than tags. They may select any dataplane."""


def _service_selectors(table: Table) -> _ServiceSelectors:
    by_tag: dict[tuple[str, str], list[Resource]] = {}
    without_tags: set[Resource] = set()
    for service in table:
        tags = service.spec.selector.dataplane_tags if service.spec.selector else None
        if tags:
            by_tag.setdefault(min(tags.items()), []).append(service)
        else:
            without_tags.add(service)
    return _ServiceSelectors(by_tag, frozenset(without_tags))

"""Whom a change between two Worlds concerns: which outbounds and backends of a class are worked out again.

Where it is not known exactly, a change concerns too many: a result that is worked out again and is equal costs a
look-up and sends nothing (records 0026 and 0054).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cp.model.dependency import ANY, EVERYTHING, NOTHING, ChangeScope, Name
from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.rules.changes import scope_of_policies
from cp.rules.item_index import is_outdated
from cp.rules.matching import top_of
from cp.rules.targets import TargetTables
from cp.translate.view.backend_refs import REFERRED
from cp.translate.view.dataplanes import SERVICE_TAG, ports_of
from cp.translate.view.outside import SECRET
from cp.translate.view.services import LEGACY_EXTERNAL

Matched: TypeAlias = Mapping[str, tuple[Resource, ...]]
"""The policies that select a proxy, by kind."""

_HTTP_ROUTE: Final = "MeshHTTPRoute"
SERVICES: Final = frozenset({"MeshService", "MeshExternalService", "MeshMultiZoneService"})


def by_world(before: World, now: World, mesh: str) -> ChangeScope:
    """Whom it concerns that resources of a mesh changed, beside the policies that select proxies."""
    if before.mesh(mesh) is not now.mesh(mesh):
        return EVERYTHING
    names: set[Name] = set()
    for kind in SERVICES:
        for service in _changed(before, now, kind, mesh):
            names |= {(kind, service.name), (kind, service.display_name), (SERVICE_TAG, service.display_name)}
            names.add((kind, ANY))
    for legacy in _changed(before, now, LEGACY_EXTERNAL, mesh):
        names.add((SERVICE_TAG, (legacy.spec.tags or {}).get(SERVICE_TAG, "")))
    names |= {(SECRET, secret.name) for secret in _changed(before, now, SECRET, mesh)}
    names |= {(kind, ANY) for kind in REFERRED if before.table(kind, mesh) is not now.table(kind, mesh)}
    for dataplane in _changed(before, now, "Dataplane", mesh):
        names |= _names_of_services(dataplane, (before, now))
    return ChangeScope(frozenset(names))


def _changed(before: World, now: World, kind: str, mesh: str) -> Iterator[Resource]:
    return before.table(kind, mesh).differing(now.table(kind, mesh))


def by_policies(before: Matched, now: Matched, targets: Collection[TargetTables]) -> ChangeScope:
    """What the policies concern that select a proxy now and did not before, or the other way round."""
    changed = (
        policy
        for kind in before.keys() | now.keys()
        if before.get(kind, ()) != now.get(kind, ())
        for policy in set(before.get(kind, ())) ^ set(now.get(kind, ()))
    )
    return scope_of_policies(changed, targets)


def by_named_routes(before: World, now: World, mesh: str, policies: Matched) -> ChangeScope:
    """Whom it concerns that routes changed which policies name at their top.

    Which route such a policy means depends on all routes of that display name: without the one of its own namespace it
    means another one, and then other rows have its conf.
    """
    changed = {name for route in _changed(before, now, _HTTP_ROUTE, mesh) for name in (route.name, route.display_name)}
    outdated = (policy for of_kind in policies.values() for policy in of_kind if changed and is_outdated(policy))
    targets = (top_of(policy) for policy in outdated)
    is_named = any(target.labels or target.name in changed for target in targets)
    return EVERYTHING if is_named else NOTHING


def _names_of_services(dataplane: Resource, worlds: Iterable[World]) -> set[Name]:
    """The names of the services that may select an inbound of a dataplane, in any of these Worlds."""
    tags = {tag for port in ports_of(dataplane) for tag in port.tags.items()}
    names = {(SERVICE_TAG, value) for name, value in tags if name == SERVICE_TAG}
    for world in worlds:
        selecting = world.table("MeshService", dataplane.mesh).derived(_selecting)
        services = {service for tag in tags for service in selecting.by_tag.get(tag, ())} | selecting.otherwise
        names |= {("MeshService", service.display_name) for service in services}
    return names | {("MeshService", ANY)}


@dataclass(frozen=True, slots=True)
class _Selecting:
    """MeshServices by how they select dataplanes."""

    by_tag: Mapping[tuple[str, str], list[Resource]]
    """By one of the tags that a dataplane needs; a service is in here once."""

    otherwise: frozenset[Resource]
    """By other means than tags: any dataplane may be theirs."""


def _selecting(table: Table) -> _Selecting:
    by_tag: dict[tuple[str, str], list[Resource]] = {}
    otherwise: set[Resource] = set()
    for service in table:
        tags = service.spec.selector.dataplane_tags if service.spec.selector else None
        if tags:
            by_tag.setdefault(min(tags.items()), []).append(service)
        else:
            otherwise.add(service)
    return _Selecting(by_tag, frozenset(otherwise))

"""What a change reaches: which outbounds and backends of a class have to be worked out again.

It errs towards too much: what is worked out again and comes to the same costs a look-up and sends nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cp.model.dependency import ANY, EVERYTHING, ChangeScope, Name
from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.rules.changes import scope_of_policies
from cp.rules.targets import TargetTables
from cp.translate.view.backend_refs import REFERRED
from cp.translate.view.dataplanes import SERVICE_TAG, ports_of
from cp.translate.view.outside import SECRET
from cp.translate.view.services import LEGACY_EXTERNAL

Matched: TypeAlias = Mapping[str, tuple[Resource, ...]]
"""The policies that select a proxy, by kind."""

SERVICES: Final = frozenset({"MeshService", "MeshExternalService", "MeshMultiZoneService"})


def by_world(old: World, new: World, mesh: str) -> ChangeScope:
    """What changed services, secrets, dataplanes, what confs refer to and the mesh itself concern."""
    if old.table("Mesh").get(mesh) is not new.table("Mesh").get(mesh):
        return EVERYTHING
    names: set[Name] = set()
    for kind in SERVICES:
        for service in _changed(old.table(kind, mesh), new.table(kind, mesh)):
            names |= {(kind, service.name), (kind, service.display_name), (SERVICE_TAG, service.display_name)}
            names.add((kind, ANY))
    for legacy in _changed(old.table(LEGACY_EXTERNAL, mesh), new.table(LEGACY_EXTERNAL, mesh)):
        names.add((SERVICE_TAG, (legacy.spec.tags or {}).get(SERVICE_TAG, "")))
    names |= {(SECRET, secret.name) for secret in _changed(old.table(SECRET, mesh), new.table(SECRET, mesh))}
    for kind in REFERRED:
        if old.table(kind, mesh) is not new.table(kind, mesh):
            names.add((kind, ANY))
    for dataplane in _changed(old.table("Dataplane", mesh), new.table("Dataplane", mesh)):
        names |= _behind(dataplane, (old, new))
    return ChangeScope(frozenset(names))


def by_policies(before: Matched, now: Matched, targets: Collection[TargetTables]) -> ChangeScope:
    """What the policies concern that select a proxy now and did not before, or the other way round."""
    changed = (
        policy
        for kind in before.keys() | now.keys()
        if before.get(kind, ()) != now.get(kind, ())
        for policy in set(before.get(kind, ())) ^ set(now.get(kind, ()))
    )
    return scope_of_policies(changed, targets)


def _changed(old: Table, new: Table) -> Iterator[Resource]:
    """Resources that are there in one table and not, or not the same, in the other."""
    if old is new:
        return
    for table, other in ((old, new), (new, old)):
        yield from (resource for resource in table if other.get(resource.name) is not resource)


def _behind(dataplane: Resource, worlds: Iterable[World]) -> set[Name]:
    """The services that a dataplane's inbounds serve, or would."""
    tags = {tag for port in ports_of(dataplane) for tag in port.tags.items()}
    names = {(SERVICE_TAG, value) for name, value in tags if name == SERVICE_TAG}
    for world in worlds:
        selecting = world.table("MeshService", dataplane.mesh).derived(_selecting)
        services = {service for tag in tags for service in selecting.by_tag.get(tag, ())} | selecting.otherwise
        names |= {("MeshService", service.display_name) for service in services}
    return names | {("MeshService", ANY)}


@dataclass(frozen=True, slots=True)
class _Selecting:
    """MeshServices by one of the tags that their selectors ask for, and those that select by other means."""

    by_tag: Mapping[tuple[str, str], list[Resource]]
    otherwise: frozenset[Resource]


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

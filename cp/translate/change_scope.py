"""What a change reaches: which outbounds and backends of a class have to be worked out again.

It errs towards too much: what is worked out again and comes to the same costs a look-up and sends nothing.

See record 0026.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.rules.matching import target_of, top_of
from cp.translate.view.backend_refs import REFERRED
from cp.translate.view.backends import ANY
from cp.translate.view.dataplanes import SERVICE_TAG, ports_of
from cp.translate.view.outside import SECRET
from cp.translate.view.services import LEGACY_EXTERNAL

ROUTES: Final = frozenset({"MeshHTTPRoute", "MeshTCPRoute"})
SERVICES: Final = frozenset({"MeshService", "MeshExternalService", "MeshMultiZoneService"})

Name: TypeAlias = tuple[str, str]
"""Kind and name, as references say it. A tagged service is a `kuma.io/service`."""


@dataclass(frozen=True, slots=True)
class ChangeScope:
    """The names that a change concerns; or everything, where it does not say which."""

    names: frozenset[Name] = frozenset()
    everything: bool = False

    def concerns(self, names: frozenset[Name]) -> bool:
        return self.everything or not self.names.isdisjoint(names)

    def __or__(self, other: ChangeScope) -> ChangeScope:
        return ChangeScope(self.names | other.names, self.everything or other.everything)

    def __bool__(self) -> bool:
        return self.everything or bool(self.names)


NOTHING: Final = ChangeScope()
EVERYTHING: Final = ChangeScope(everything=True)


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


def by_policies(old: Mapping[str, tuple[Resource, ...]], new: Mapping[str, tuple[Resource, ...]]) -> ChangeScope:
    """What the policies concern that select a proxy now and did not before, or the other way round."""
    touched = NOTHING
    for kind in old.keys() | new.keys():
        before, after = old.get(kind, ()), new.get(kind, ())
        if before != after:
            for policy in set(before) ^ set(after):
                touched |= _of_policy(policy)
    return touched


def _changed(old: Table, new: Table) -> Iterator[Resource]:
    """Resources that are there in one table and not, or not the same, in the other."""
    if old is new:
        return
    for table, other in ((old, new), (new, old)):
        yield from (resource for resource in table if other.get(resource.name) is not resource)


def _of_policy(policy: Resource) -> ChangeScope:
    shape = policy.kind.policy
    if shape is None or shape.single or top_of(policy).kind == "MeshHTTPRoute":
        return EVERYTHING
    names: set[Name] = set()
    for item in policy.data.get("to") or ():
        target = target_of(item.get("targetRef"))
        if target.kind in {"Mesh", "MeshSubset", "MeshGateway"} or target.labels:
            return EVERYTHING
        name = target.name or ""
        names |= {(target.kind, name), (target.kind, name.partition("_")[0]), (SERVICE_TAG, name)}
    return ChangeScope(frozenset(names))


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

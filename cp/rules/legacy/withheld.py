"""Which ExternalServices a proxy may not call, in a mesh whose policy engine is Legacy (record 0075).

Nobody behind an ExternalService could ask who calls, so the control plane decides, with mTLS or without: of the
TrafficPermissions whose `destinations` fit the tags of the service the best holds, and its `sources` say who may call.

Who decides over a service does not depend on who calls, so it is worked out once for a mesh; and a proxy is compared
with those permissions alone that name one of its services, or any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cp.model.memo import Memo, SharingMemo
from cp.model.names import Key
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.engine import Engine, engine_of
from cp.resources.legacy.traffic_permission import TRAFFIC_PERMISSION
from cp.resources.resource import Resource
from cp.resources.services import EXTERNAL_SERVICE
from cp.resources.world import Table, World
from cp.rules.legacy.matching import services_of, whole_tags
from cp.rules.legacy.selectors import ByService, age, best_rank, selectors_of, strongest
from cp.rules.matching.profile import DataplaneProfile, profile

PERMISSION: Final = TRAFFIC_PERMISSION.name
NEEDING_PERMISSION: Final[Engine] = "Legacy"
"""The engine of the meshes whose ExternalServices need one."""

_Class: TypeAlias = tuple[str, DataplaneProfile]


def withholds(world: World, mesh: str) -> bool:
    """Whether there is an ExternalService in a mesh that needs a permission."""
    resource = world.mesh(mesh)
    needs_permission = resource is not None and engine_of(resource.data) == NEEDING_PERMISSION
    return needs_permission and len(world.table(EXTERNAL_SERVICE.name, mesh)) > 0


def withheld(world: World, dataplane: Resource) -> frozenset[str]:
    """The ExternalServices that a proxy may not call, by name, where the mesh has such as need a permission."""
    return world.recall(_Withheld, (dataplane.mesh, profile(dataplane)))


def permission_of(world: World, service: Resource) -> Resource | None:
    """The TrafficPermission that decides who may call an ExternalService; None if none is about it."""
    return world.recall(_Permission, service.key)


def decides(world: World, permission: Resource) -> bool:
    """Whether a TrafficPermission decides over some ExternalService."""
    return permission in world.recall(_Decisions, permission.mesh).permissions


class _Permission(Memo[World, Key, Resource | None]):
    """Who decides over a service: an edit of one permission asks those services again that it can be about."""

    def basis(self, source: World, key: Key) -> tuple[Resource | None, tuple[Resource, ...]]:
        service = source.get(key)
        permissions = source.table(PERMISSION, key.mesh).derived(_by_destination)
        return service, permissions.candidates([_tags_of(service).get(SERVICE_TAG, "")])

    def work_out(self, source: World, key: Key) -> Resource | None:
        service, permissions = self.basis(source, key)
        tags = _tags_of(service)
        ranked = [
            (rank, age(permission), permission)
            for permission in permissions
            if (rank := best_rank(selectors_of(permission.data, "destinations"), [tags])) is not None
        ]
        return strongest(ranked)


@dataclass(frozen=True, slots=True)
class _Decision:
    """A TrafficPermission, and the ExternalServices over which it decides, by name."""

    permission: Resource
    services: frozenset[str]


class _DecisionsOfMesh:
    """Who decides over the ExternalServices of a mesh. Equal only to itself."""

    def __init__(self, permissions: Mapping[str, Resource | None]) -> None:
        self.services: Final = frozenset(permissions)
        of_permissions: dict[Resource, set[str]] = {}
        for service, permission in permissions.items():
            if permission is not None:
                of_permissions.setdefault(permission, set()).add(service)
        self.permissions: Final = of_permissions.keys()
        decisions = [_Decision(permission, frozenset(services)) for permission, services in of_permissions.items()]
        self.by_caller: Final = ByService(
            (decision, selectors_of(decision.permission.data, "sources")) for decision in decisions
        )


class _Decisions(Memo[World, str, _DecisionsOfMesh]):
    def basis(self, source: World, key: str) -> Mapping[str, Resource | None]:
        return {service.name: permission_of(source, service) for service in source.table(EXTERNAL_SERVICE.name, key)}

    def work_out(self, source: World, key: str) -> _DecisionsOfMesh:
        return _DecisionsOfMesh(self.basis(source, key))


class _Withheld(SharingMemo[World, _Class, frozenset[str]]):
    """By what a proxy is known by to policies, so that proxies that are alike are asked about once."""

    def basis(self, source: World, key: _Class) -> tuple[frozenset[str], tuple[_Decision, ...]]:
        """All services, and who may permit them to such proxies."""
        decisions = source.recall(_Decisions, key[0])
        return decisions.services, decisions.by_caller.candidates(services_of(key[1]))

    def work_out(self, source: World, key: _Class) -> frozenset[str]:
        services, decisions = self.basis(source, key)
        tags = whole_tags(key[1])
        return services.difference(
            *(decision.services for decision in decisions if _permits(decision.permission, tags))
        )


def _by_destination(permissions: Table) -> ByService[Resource]:
    return ByService((permission, selectors_of(permission.data, "destinations")) for permission in permissions)


def _tags_of(service: Resource | None) -> Mapping[str, str]:
    return {} if service is None else service.spec.tags or {}


def _permits(permission: Resource, caller: list[Mapping[str, str]]) -> bool:
    return best_rank(selectors_of(permission.data, "sources"), caller) is not None

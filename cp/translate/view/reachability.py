"""Who reaches whom, derived from MeshTrafficPermissions: what a proxy may not call anyway need not be told to it.

It is switched on by a setting, and is about virtual addresses alone. A service counts as reachable if an inbound behind
it lets in a client with the tags of any inbound of the caller; an ExternalService, if an inbound with its tags would.

As in Kuma this is told from tags: an inbound with permissions for names of clients (`rules`) counts as reachable, and
so does every MeshExternalService and MeshMultiZoneService. It does not matter whether the mesh has mTLS.

There may be a thousand callers and a thousand services, so not every caller is asked about every service: permissions
are looked up by the callers that they name, and after a change only what lets in others than before is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

from cp.model.document import Document
from cp.model.memo import ByIdentity, Memo
from cp.model.names import Key
from cp.model.remembered import remembered
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.parse import parse
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import SubsetRules, build
from cp.rules.matching import MatchedPolicy, match
from cp.rules.matching.profile import profile
from cp.translate.view.dataplanes import DataplanePort, ports
from cp.translate.view.outside import LEGACY_EXTERNAL
from cp.translate.view.services import ports_behind_service

PERMISSION: Final = "MeshTrafficPermission"

_ALLOWING: Final = frozenset({"Allow", "AllowWithShadowDeny"})

_Tags: TypeAlias = frozenset[tuple[str, str]]
_Clients: TypeAlias = frozenset[_Tags]
"""The tags of each inbound of a caller."""

Called: TypeAlias = str | Key
"""What is called: a value of `kuma.io/service`, or a MeshService."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What a proxy reaches."""

    called: frozenset[Called]


def reach_of(world: World, dataplane: Resource) -> Reach | None:
    """What a proxy reaches by the permissions of others; None where nothing is derived from these."""
    if not world.kinds.derives_reachability:
        return None
    return world.recall(_EntrancesOf, dataplane.mesh).reach(dataplane.derived(_clients))


def _clients(dataplane: Resource) -> _Clients:
    of_proxy = profile(dataplane)
    tag_sets = {section.tags for section in of_proxy.sections} | ({of_proxy.gateway_tags} - {()})
    return frozenset(map(frozenset, tag_sets or {()}))


@dataclass(frozen=True)
class _Door:
    """Whom an inbound lets in. Inbounds that the same permissions select have equal ones."""

    rules: ByIdentity[SubsetRules]
    is_open: bool
    """Whether permissions for names of clients select it, too."""

    @remembered
    def services(self) -> AbstractSet[str] | None:
        """Those of the clients that may come in; None if a client need not be of a certain one."""
        allowing = (dict(tagged.tags) for tagged in self.rules.value.tagged if _allows(tagged.item.layer.conf))
        named = {tags.get(SERVICE_TAG) for tags in allowing}
        return None if self.is_open or None in named else {name for name in named if name is not None}

    def lets_in(self, clients: _Clients) -> bool:
        return self.is_open or any(self._is_allowed(client) for client in clients)

    def _is_allowed(self, client: _Tags) -> bool:
        """By the strongest item that is for this client."""
        fitting = (tagged.item for tagged in reversed(self.rules.value.tagged) if tagged.tags <= client)
        strongest = next(fitting, None)
        return strongest is not None and _allows(strongest.layer.conf)


def _allows(conf: Mapping[str, object]) -> bool:
    return conf.get("action") in _ALLOWING


_Doors: TypeAlias = frozenset[_Door]


class Entrances:
    """What callers can reach in one mesh, worked out for a caller when it is asked for."""

    def __init__(self, doors: Mapping[Called, _Doors], earlier: Entrances | None) -> None:
        self.doors = doors
        self.reaches: dict[_Clients, Reach] = {}
        # Not the earlier one itself, which would keep the one before that.
        self._reaches_before: Mapping[_Clients, Reach] = {} if earlier is None else earlier.reaches
        doors_before = {} if earlier is None else earlier.doors
        names = doors.keys() | doors_before.keys()
        self._changed = frozenset(called for called in names if doors.get(called) != doors_before.get(called))

    def reach(self, clients: _Clients) -> Reach:
        """The same object as before the last change, if that changed nothing for these clients."""
        reach = self.reaches.get(clients)
        return self.reaches.setdefault(clients, self._reach(clients)) if reach is None else reach

    def _reach(self, clients: _Clients) -> Reach:
        before = self._reaches_before.get(clients)
        if before is None:
            return Reach(self._all_doors.reached(clients))
        reached = self._changed_doors.reached(clients)
        return before if reached == before.called & self._changed else Reach(before.called - self._changed | reached)

    @remembered
    def _all_doors(self) -> _DoorIndex:
        return _DoorIndex(self.doors)

    @remembered
    def _changed_doors(self) -> _DoorIndex:
        return _DoorIndex({called: self.doors[called] for called in self._changed if called in self.doors})


class _DoorIndex:
    """What is called, by the services of the clients that are let in."""

    def __init__(self, doors: Mapping[Called, _Doors]) -> None:
        self._behind: dict[_Doors, set[Called]] = {}
        for called, doors_of in doors.items():
            self._behind.setdefault(doors_of, set()).add(called)
        self._by_service: dict[str | None, list[_Doors]] = {}
        for doors_of in self._behind:
            for service in {service for door in doors_of for service in _or_none(door.services)}:
                self._by_service.setdefault(service, []).append(doors_of)

    def reached(self, clients: _Clients) -> frozenset[Called]:
        """What lets in a client with any of these tags."""
        services = {value for client in clients for name, value in client if name == SERVICE_TAG}
        candidates = chain.from_iterable(self._by_service.get(service, ()) for service in (None, *services))
        open_doors = {doors for doors in candidates if any(door.lets_in(clients) for door in doors)}
        return frozenset(chain.from_iterable(self._behind[doors] for doors in open_doors))


def _or_none(services: AbstractSet[str] | None) -> Iterable[str | None]:
    return (None,) if services is None else services


class _EntrancesOf(Memo[World, str, Entrances]):
    """By the mesh."""

    def basis(self, source: World, key: str) -> object:
        return tuple(source.table(kind, key) for kind in ("Dataplane", "MeshService", LEGACY_EXTERNAL, PERMISSION))

    def work_out(self, source: World, key: str) -> Entrances:
        doors: dict[Called, set[_Door]] = {}
        for called, behind in source.recall(_Behind, key):
            at_ports = (source.recall(_DoorsOf, port.dataplane).get(port.index) for port in behind)
            doors.setdefault(called, set()).update(door for door in at_ports if door is not None)
        return Entrances({called: frozenset(of_called) for called, of_called in doors.items()}, self.earlier(key))


class _DoorsOf(Memo[World, Resource, Mapping[int, _Door]]):
    """By the dataplane; those of its inbounds, by their indexes, that some permission selects."""

    def basis(self, source: World, key: Resource) -> tuple[MatchedPolicy, ...]:
        return match(source, key).get(PERMISSION, ())

    def work_out(self, source: World, key: Resource) -> Mapping[int, _Door]:
        matched = self.basis(source, key)
        if not matched:
            return {}
        rules = build(source, matched, source.kinds[PERMISSION])
        indexes = {index for matched_policy in matched for index in matched_policy.inbounds}
        by_name = {
            index
            for matched_policy in matched
            if matched_policy.policy.data.get("rules")
            for index in matched_policy.inbounds
        }
        return {index: _Door(ByIdentity(rules.from_(index)), index in by_name) for index in indexes}


_PortsByCalled: TypeAlias = tuple[tuple[Called, tuple[DataplanePort, ...]], ...]


class _Behind(Memo[World, str, _PortsByCalled]):
    """By the mesh; the inbounds that stand behind all that can be called."""

    def basis(self, source: World, key: str) -> object:
        return tuple(source.table(kind, key) for kind in ("Dataplane", "MeshService", LEGACY_EXTERNAL))

    def work_out(self, source: World, key: str) -> _PortsByCalled:
        return tuple((called, tuple(behind)) for called, behind in self._behind(source, key))

    def _behind(self, world: World, mesh: str) -> Iterator[tuple[Called, Iterable[DataplanePort]]]:
        for (name, value), behind in world.table("Dataplane", mesh).derived(ports).by_tag.items():
            if name == SERVICE_TAG:
                yield value, behind
        for outside in world.table(LEGACY_EXTERNAL, mesh):
            yield str(outside.spec.tags[SERVICE_TAG]), world.recall(_StandIns, outside.key)
        for service in world.table("MeshService", mesh):
            yield service.key, ports_behind_service(world, service)


class _StandIns(Memo[World, Key, Iterable[DataplanePort]]):
    """For an ExternalService, which no proxy serves, an inbound that policies could select by its tags."""

    def basis(self, source: World, key: Key) -> Resource | None:
        return source.get(key)

    def work_out(self, source: World, key: Key) -> Iterable[DataplanePort]:
        service = self.basis(source, key)
        tags = {} if service is None else dict(service.spec.tags)
        networking = {"address": "192.0.2.1", "inbound": [{"port": 1, "tags": tags}]}
        stand_in = Key("Dataplane", key.mesh, key.name)
        data = {"type": stand_in.type, "mesh": stand_in.mesh, "name": stand_in.name, "networking": networking}
        resource = parse(Document(stand_in, data), source.kinds).resource
        return () if resource is None else (DataplanePort(resource, resource.spec.net.inbound[0], 0),)

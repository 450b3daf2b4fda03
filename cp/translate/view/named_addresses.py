"""Names that documents give to what is called by tags: the hosts of ExternalServices, and VirtualOutbounds.

At each port of a name there is one destination. An ExternalService is called at its own port by its host and by the
name of its tag, and by its host at port 80 too unless that is somebody else's; a VirtualOutbound says both. Of several
that want one port of a name the ExternalServices come first, and then the VirtualOutbounds with the most specific
selectors, the newest first.

See docs/guides/transparent-proxying.md#names-of-your-own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, NamedTuple, TypeAlias

from cp.model.hosts import is_ip
from cp.model.memo import Memo
from cp.model.names import Destination, Key
from cp.resources.checks import is_domain
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.legacy import virtual_outbound
from cp.resources.limits import NAMED_PORTS_OF_MESH
from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.rules.legacy.selectors import ANY, Rank, age, best_rank, selectors_of
from cp.translate.view.dataplanes import DataplanePort, ports
from cp.translate.view.outside import LEGACY_EXTERNAL

USUAL_PORT: Final = 80
VIRTUAL_OUTBOUND: Final = virtual_outbound.VIRTUAL_OUTBOUND.name

TagSet: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NamedPort:
    """What is called at a port of a name, and who says so."""

    name: str
    port: int
    destination: Destination
    origin: Key


def name_of_tag(tag: str) -> str | None:
    """The name of what is known by its tag alone; None if it is not one that a host can have."""
    name = f"{tag.replace('_', '.').lower()}.mesh"
    return name if is_domain(name) else None


def named_ports(world: World, mesh: str) -> tuple[NamedPort, ...]:
    """Every port of every name. The same object for as long as none of them changes."""
    return world.recall(_NamedPorts, mesh).ports


def check_named_ports(world: World, mesh: str) -> None:
    """Raise `OverLimit` if documents of a mesh give names more ports than are served."""
    NAMED_PORTS_OF_MESH.check(world.recall(_NamedPorts, mesh).wanted)


class _PortsOfMesh(NamedTuple):
    ports: tuple[NamedPort, ...]
    wanted: int
    """The number of ports with those that are left out."""


class _NamedPorts(Memo[World, str, _PortsOfMesh]):
    def basis(self, source: World, key: str) -> tuple[Table, Table, tuple[TagSet, ...]]:
        outbounds = source.table(VIRTUAL_OUTBOUND, key)
        tag_sets = source.table("Dataplane", key).derived(_tag_sets) if len(outbounds) else ()
        return source.table(LEGACY_EXTERNAL, key), outbounds, tag_sets

    def work_out(self, source: World, key: str) -> _PortsOfMesh:
        services, outbounds, tag_sets = self.basis(source, key)
        called = _TagSets(tag_sets), services.derived(_of_services)
        wanted = [*_of_hosts(services), *_of_outbounds(outbounds, called)]
        first: dict[tuple[str, int], NamedPort] = {}
        for port in (*wanted, *_usual(wanted, services)):
            first.setdefault((port.name, port.port), port)
        served = islice(first.values(), NAMED_PORTS_OF_MESH.most)
        return _PortsOfMesh(tuple(sorted(served, key=lambda port: (port.name, port.port))), len(first))


def wanted_by(outbound: Resource, world: World) -> tuple[NamedPort, ...]:
    """What a VirtualOutbound asks for, whether it gets it or not."""
    services = world.table(LEGACY_EXTERNAL, outbound.mesh).derived(_of_services)
    called = world.table("Dataplane", outbound.mesh).derived(_of_inbounds), services
    return tuple(dict.fromkeys(port for _, port in _wanted(outbound, called)))


def _of_inbounds(table: Table) -> _TagSets:
    return _TagSets(table.derived(_tag_sets))


def _of_services(table: Table) -> _TagSets:
    return _TagSets(map(_tags_of, table))


def _tag_sets(table: Table) -> tuple[TagSet, ...]:
    """The tags of all inbounds that are served, each set once."""
    served = (
        port for of_proxy in table.derived(ports).by_dataplane.values() for port in of_proxy if not _is_ignored(port)
    )
    return tuple(sorted({tuple(sorted(port.selectable_tags.items())) for port in served}))


def _is_ignored(port: DataplanePort) -> bool:
    return bool(port.inbound.state == "Ignored")


def _tags_of(service: Resource) -> TagSet:
    """The tag by which an ExternalService is called. Its other tags name nothing, as in Kuma."""
    return ((SERVICE_TAG, _service(service)),)


def _service(service: Resource) -> str:
    return str((service.spec.tags or {}).get(SERVICE_TAG, ""))


def _of_hosts(services: Iterable[Resource]) -> Iterator[NamedPort]:
    for service in services:
        networking, tag = service.spec.networking, _service(service)
        if (name := name_of_tag(tag)) is not None:
            yield NamedPort(name, networking.port, Destination(tag), service.key)
        if not networking.disable_host_dns_entry:
            yield NamedPort(networking.host.lower(), networking.port, Destination(tag), service.key)


def _usual(wanted: Iterable[NamedPort], services: Iterable[Resource]) -> Iterator[NamedPort]:
    """The names of ExternalServices at the usual port. An IP address has the ports that somebody names."""
    keys = {service.key for service in services}
    for port in wanted:
        if port.origin in keys and not is_ip(port.name):
            yield NamedPort(port.name, USUAL_PORT, port.destination, port.origin)


def _of_outbounds(outbounds: Iterable[Resource], called: Sequence[_TagSets]) -> Iterator[NamedPort]:
    ranked = [(rank, age(outbound), port) for outbound in outbounds for rank, port in _wanted(outbound, called)]
    ranked.sort(key=lambda ranking: ranking[:2], reverse=True)  # stable: of one policy the first tags come first
    yield from (port for _, _, port in ranked)


def _wanted(outbound: Resource, called: Sequence[_TagSets]) -> Iterator[tuple[Rank, NamedPort]]:
    """What a VirtualOutbound asks for. Names are made of the tags alone that it selects."""
    selecting = selectors_of(outbound.data, "selectors")
    for tags in (tags for tag_sets in called for tags in tag_sets.candidates(selecting)):
        if (rank := best_rank(selecting, [tags])) is not None and (port := _named(outbound, tags)) is not None:
            yield rank, port


def _named(outbound: Resource, tags: Mapping[str, str]) -> NamedPort | None:
    conf = outbound.spec.conf
    narrowed = conf.called(tags)
    host, port = conf.host_for(tags), conf.port_for(tags)
    if host is None or port is None or SERVICE_TAG not in narrowed:
        return None
    return NamedPort(host, port, _destination(narrowed), outbound.key)


class _TagSets:
    """Sets of tags by their service, so that selectors are not compared with all of them."""

    def __init__(self, tag_sets: Iterable[TagSet]) -> None:
        self._all: Final = tuple(map(dict, tag_sets))
        self._by_service: Final[dict[str, list[int]]] = {}
        for place, tags in enumerate(self._all):
            self._by_service.setdefault(tags.get(SERVICE_TAG, ""), []).append(place)

    def candidates(self, selectors: Iterable[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
        """Those that some selectors can fit, in the order of all."""
        services = {selector.get(SERVICE_TAG, ANY) for selector in selectors}
        if ANY in services:
            return self._all
        return [self._all[place] for place in sorted(chain(*(self._by_service.get(name, ()) for name in services)))]


def _destination(tags: Mapping[str, str]) -> Destination:
    narrower = tuple(sorted((name, value) for name, value in tags.items() if name != SERVICE_TAG))
    return Destination(tags[SERVICE_TAG], tags=narrower)

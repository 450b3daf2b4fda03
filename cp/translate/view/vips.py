"""Virtual addresses: where a workload calls a service whose proxy takes all that leaves its machine.

They are a function of the World and nothing else. Nobody hands them out and nobody keeps them, so every control plane
has the same ones, before a restart and after it. A service keeps its address for as long as nobody else's name comes
to the same; then the first by name has it, and the other one the next that is free.

See record 0028.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from itertools import chain
from typing import Final, TypeAlias

from cp.model.hosts import is_ip
from cp.model.memo import Memo
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.translate.view.dataplanes import ports
from cp.translate.view.named_addresses import USUAL_PORT, NamedPort, name_of_tag, named_ports
from cp.translate.view.outside import LEGACY_EXTERNAL

TAG_PORT: Final = USUAL_PORT
"""The port of a service that is known by its tag alone."""

_OF_TAGS: Final = 240
_NETWORKS: Final[Mapping[str, int]] = {"MeshService": 241, "MeshExternalService": 242, "MeshMultiZoneService": 243}
"""The first number of the addresses of each kind."""

NETWORK: Final = "240.0.0.0/6"
"""All of them together. Nobody has such an address on any network."""

_HOSTS: Final = range(1, 255)
"""The last number: neither the name of a network nor its broadcast."""

_ROOM: Final = 256 * 256 * len(_HOSTS)


_Addresses: TypeAlias = tuple[tuple[Resource, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class VirtualAddresses:
    """The virtual addresses of one mesh. The same object for as long as none of them changes."""

    services: _Addresses
    """Those of real services, by kind and name."""

    tagged: tuple[tuple[str, str], ...]
    """Those of `kuma.io/service` tags, by their values."""

    addresses: frozenset[str]
    named: tuple[tuple[str, NamedPort], ...] = ()
    """Those of names that documents give to what is called by tags, for each of their ports."""


def vips(world: World, mesh: str) -> VirtualAddresses:
    return world.recall(_VirtualAddresses, mesh)


class _ServiceAddresses(Memo[World, str, _Addresses]):
    """The addresses of the real services of each mesh."""

    def basis(self, source: World, key: str) -> tuple[Table, ...]:
        return _tables(source, key)

    def work_out(self, source: World, key: str) -> _Addresses:
        return tuple(_of_services(_tables(source, key)))


class _VirtualAddresses(Memo[World, str, VirtualAddresses]):
    """All virtual addresses of each mesh."""

    def basis(self, source: World, key: str) -> tuple[_Addresses, tuple[str, ...], tuple[NamedPort, ...]]:
        of_inbounds = source.table("Dataplane", key).derived(_service_tags)
        outside = source.table(LEGACY_EXTERNAL, key).derived(_tags_of_services)
        tags = tuple(sorted({*of_inbounds, *outside})) if outside else of_inbounds
        return source.recall(_ServiceAddresses, key), tags, named_ports(source, key)

    def work_out(self, source: World, key: str) -> VirtualAddresses:
        services, tags, ports = self.basis(source, key)
        taken = {address for _, address in services}
        tagged = tuple(_assigned(tags, _OF_TAGS, taken, {}))
        taken.update(address for _, address in tagged)
        # Of two tags with one name the first has it (`cp.translate.view.hostnames`).
        by_name = {name: address for tag, address in reversed(tagged) if (name := name_of_tag(tag)) is not None}
        names = [name for name in dict.fromkeys(port.name for port in ports) if name not in by_name]
        written = {name: name for name in names if is_ip(name)}
        by_name |= dict(_assigned(names, _OF_TAGS, {*taken, *written}, written))
        of_tags = {(address, TAG_PORT) for _, address in tagged}
        placed = ((by_name[port.name], port) for port in ports)
        named = tuple((address, port) for address, port in placed if (address, port.port) not in of_tags)
        return VirtualAddresses(services, tagged, frozenset(taken.union(address for address, _ in named)), named)


def _tables(world: World, mesh: str) -> tuple[Table, ...]:
    """The services that have addresses. Tables are equal only to themselves."""
    return tuple(world.table(kind, mesh) for kind in _NETWORKS)


def _service_tags(table: Table) -> tuple[str, ...]:
    return tuple(sorted({value for name, value in table.derived(ports).by_tag if name == SERVICE_TAG}))


def _tags_of_services(table: Table) -> tuple[str, ...]:
    return tuple(sorted({service.spec.tags[SERVICE_TAG] for service in table}))


def _of_services(tables: Iterable[Table]) -> Iterator[tuple[Resource, str]]:
    """Addresses that documents say go first, so that nobody else is given one of them."""
    tables = tuple(tables)
    owners: dict[str, Resource] = {}
    for service in chain.from_iterable(tables):
        address = service.derived(_written)
        if address is not None:
            owners.setdefault(address, service)
    for table, network in zip(tables, _NETWORKS.values(), strict=True):
        services = {service.name: service for service in table}
        written = {owner.name: address for address, owner in owners.items() if services.get(owner.name) is owner}
        for name, address in _assigned(services, network, owners, written):
            yield services[name], address


def _written(service: Resource) -> str | None:
    """What the document says of its own address: `status.vips[0].ip`, if that is one."""
    status = service.document.data.get("status")
    listed = status.get("vips") if isinstance(status, Mapping) else None
    first = listed[0] if isinstance(listed, list) and listed else None
    text = first.get("ip") if isinstance(first, Mapping) else None
    try:
        return str(IPv4Address(text)) if isinstance(text, str) else None
    except AddressValueError:
        return None


def _assigned(
    names: Iterable[str], network: int, taken: Iterable[str], written: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """An address for each name: what is written, else the first free one from where its hash points."""
    used = set(taken)
    for name in names:
        yield name, written.get(name) or _free(used, network, name)


def _free(used: set[str], network: int, name: str) -> str:
    place = _hash(network, name)
    while (address := _address(network, place)) in used:
        place = (place + 1) % _ROOM
    used.add(address)
    return address


def _hash(network: int, name: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{network}/{name}".encode(), digest_size=8).digest()) % _ROOM


def _address(network: int, place: int) -> str:
    place, host = divmod(place, len(_HOSTS))
    return f"{network}.{place >> 8}.{place & 255}.{_HOSTS[host]}"

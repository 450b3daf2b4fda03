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
from typing import Final

from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.translate.view.dataplanes import SERVICE_TAG, ports

TAG_PORT: Final = 80
"""The port of a service that is known by its tag alone."""

_OF_TAGS: Final = 240
_NETWORKS: Final[Mapping[str, int]] = {"MeshService": 241, "MeshExternalService": 242, "MeshMultiZoneService": 243}
"""The first number of the addresses of each kind."""

NETWORK: Final = "240.0.0.0/6"
"""All of them together. Nobody has such an address on any network."""

_HOSTS: Final = range(1, 255)
"""The last number: neither the name of a network nor its broadcast."""

_ROOM: Final = 256 * 256 * len(_HOSTS)


@dataclass(frozen=True, slots=True, eq=False)
class VirtualAddresses:
    """The virtual addresses of one mesh. The same object for as long as none of them changes."""

    services: tuple[tuple[Resource, str], ...]
    """Those of real services, by kind and name."""

    tagged: tuple[tuple[str, str], ...]
    """Those of `kuma.io/service` tags, by their values."""

    addresses: frozenset[str]


def vips(world: World, mesh: str) -> VirtualAddresses:
    return world.derived(_vips).of(mesh)


class _Known:
    """The virtual addresses of each mesh, from World to World the same as long as nobody comes or goes."""

    def __init__(self, world: World, previous: _Known | None) -> None:
        self._world = world
        self._before = {} if previous is None else previous.made
        self.made: dict[str, _Made] = {}

    def of(self, mesh: str) -> VirtualAddresses:
        if mesh not in self.made:
            before = self._before.get(mesh)
            self.made[mesh] = _make(self._world, mesh, before)
        return self.made[mesh].vips


def _vips(world: World, previous: _Known | None) -> _Known:
    return _Known(world, previous)


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """Virtual addresses with what they were made from."""

    tables: tuple[Table, ...]
    names: tuple[str, ...]
    vips: VirtualAddresses


def _make(world: World, mesh: str, before: _Made | None) -> _Made:
    tables = tuple(world.table(kind, mesh) for kind in _NETWORKS)
    names = world.table("Dataplane", mesh).derived(_service_tags)
    if before is not None and before.tables == tables and before.names == names:  # tables are equal only to themselves
        return before
    is_known = before is not None and before.tables == tables
    services = before.vips.services if before is not None and is_known else tuple(_of_services(tables))
    written = {address for _, address in services}
    tagged = tuple(_assigned(names, _OF_TAGS, written, {}))
    return _Made(
        tables, names, VirtualAddresses(services, tagged, frozenset(written.union(address for _, address in tagged)))
    )


def _service_tags(table: Table) -> tuple[str, ...]:
    return tuple(sorted({value for name, value in table.derived(ports).by_tag if name == SERVICE_TAG}))


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

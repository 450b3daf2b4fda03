"""Host names: what workloads can call services by, where traffic is redirected to their proxies.

HostnameGenerators say the names of real services; kinds of services that none of them is about have a usual one.
What is known by its tag alone has the tag for its name, and those that documents give it (`named_addresses`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

from cp.model.hosts import is_ip
from cp.model.memo import ByIdentity, Memo
from cp.resources.checks import is_domain
from cp.resources.hostname_generator import Template, render
from cp.resources.limits import NAMES_OF_MESH
from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.translate.view.named_addresses import name_of_tag
from cp.translate.view.outbound_address import OutboundAddress
from cp.translate.view.vips import VirtualAddresses, vips
from generators.proxy import Hosts

DNS_PORT: Final = 15053
"""Where a proxy answers for names."""

_USUAL: Final[Mapping[str, str]] = {
    "MeshService": "{{ .DisplayName }}.svc.mesh.local",
    "MeshExternalService": "{{ .DisplayName }}.extsvc.mesh.local",
    "MeshMultiZoneService": "{{ .DisplayName }}.mzsvc.mesh.local",
}
_SELECTORS: Final[Mapping[str, str]] = {
    "MeshService": "mesh_service",
    "MeshExternalService": "mesh_external_service",
    "MeshMultiZoneService": "mesh_multi_zone_service",
}

_AddressesByName: TypeAlias = tuple[tuple[str, str], ...]
_HostsKey: TypeAlias = tuple[str, ByIdentity[tuple[OutboundAddress, ...]]]


def hosts(world: World, mesh: str, listenings: tuple[OutboundAddress, ...]) -> Hosts | None:
    """The names of virtual outbounds; None where there is none. The same object for as long as nothing changes."""
    return world.recall(_Hosts, (mesh, ByIdentity(listenings)))


def check_names(world: World, mesh: str) -> None:
    """Raise `OverLimit` if a mesh has more names than are answered."""
    NAMES_OF_MESH.check(len(world.recall(_Names, mesh)))


class _Names(Memo[World, str, _AddressesByName]):
    """Every name in each mesh; of too many of them one more than are answered."""

    def basis(self, source: World, key: str) -> tuple[VirtualAddresses, Table]:
        return vips(source, key), source.table("HostnameGenerator")

    def work_out(self, source: World, key: str) -> _AddressesByName:
        return tuple(islice(_named(*self.basis(source, key)), NAMES_OF_MESH.most + 1))


class _Hosts(Memo[World, _HostsKey, Hosts | None]):
    """The names for some outbounds of a mesh."""

    def basis(self, source: World, key: _HostsKey) -> _AddressesByName:
        return source.recall(_Names, key[0])[: NAMES_OF_MESH.most]

    def work_out(self, source: World, key: _HostsKey) -> Hosts | None:
        return _chosen(self.basis(source, key), key[1].value)


def _chosen(names: _AddressesByName, listenings: tuple[OutboundAddress, ...]) -> Hosts | None:
    """Names of what is called; of two services with the same name the first has it."""
    called = {listening.address for listening in listenings if not listening.is_bound}
    chosen: dict[str, str] = {}
    for name, address in names if called else ():
        if address in called:
            chosen.setdefault(name, address)
    return Hosts(DNS_PORT, tuple(sorted(chosen.items()))) if chosen else None


def _named(addresses: VirtualAddresses, generators: Table) -> Iterator[tuple[str, str]]:
    """Names with their addresses, those of real services first."""
    for service, address in addresses.services:
        yield from ((name, address) for name in _names(service, generators))
    for tag, address in addresses.tagged:
        name = name_of_tag(tag)
        if name is not None:
            yield name, address
    yield from ((port.name, address) for address, port in addresses.named if not is_ip(port.name))


def _names(service: Resource, generators: Table) -> Iterator[str]:
    templates = [(generator.spec.template, _selected(generator, service)) for generator in generators]
    about = [(template, selector) for template, selector in templates if selector is not None]
    chosen = [template for template, selector in about if selector.matches(service.selectable_labels)]
    for template in chosen if about else [_USUAL[service.type]]:
        try:
            name = render(template, _fields(service), service.selectable_labels).lower()
        except Template:  # it asks for a label that this service does not have
            continue
        if is_domain(name):
            yield name


def _selected(generator: Resource, service: Resource) -> Any | None:
    """The labels of the services of this kind that it is about."""
    return generator.spec.selector and getattr(generator.spec.selector, _SELECTORS[service.type])


def _fields(service: Resource) -> Mapping[str, str]:
    return {
        ".Name": service.name,
        ".DisplayName": service.display_name,
        ".Namespace": service.namespace,
        ".Mesh": service.mesh,
        ".Zone": service.zone,
    }

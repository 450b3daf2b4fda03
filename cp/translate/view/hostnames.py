"""Host names: what workloads can call services by, where traffic is redirected to their proxies.

HostnameGenerators say the names of real services; kinds of services that none of them is about have a usual one.
What is known by its tag alone has the tag for its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cp.resources.checks import is_domain
from cp.resources.hostname_generator import Template, render
from cp.resources.resource import Resource
from cp.resources.world import Table, World
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


def hosts(world: World, mesh: str, listenings: tuple[OutboundAddress, ...]) -> Hosts | None:
    """The names of virtual outbounds; None where there is none. The same object for as long as nothing changes."""
    return world.derived(_hostnames).of(mesh, listenings)


@dataclass(frozen=True, slots=True, eq=False)
class _OfMesh:
    """Every name in a mesh, with what it was made from."""

    vips: VirtualAddresses
    generators: Table
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """The names for some outbounds, with what they were chosen from."""

    of_mesh: _OfMesh
    listenings: tuple[OutboundAddress, ...]
    hosts: Hosts | None


class _Hostnames:
    def __init__(self, world: World, previous: _Hostnames | None) -> None:
        self._world = world
        self._before = ({}, {}) if previous is None else (previous.meshes, previous.found)
        self.meshes: dict[str, _OfMesh] = {}
        self.found: dict[tuple[str, int], _Found] = {}

    def of(self, mesh: str, listenings: tuple[OutboundAddress, ...]) -> Hosts | None:
        key = (mesh, id(listenings))
        if key not in self.found:
            of_mesh, before = self._of_mesh(mesh), self._before[1].get(key)
            is_same = before is not None and before.of_mesh is of_mesh and before.listenings is listenings
            self.found[key] = before if before is not None and is_same else _chosen(of_mesh, listenings)
        return self.found[key].hosts

    def _of_mesh(self, mesh: str) -> _OfMesh:
        if mesh not in self.meshes:
            known, table = vips(self._world, mesh), self._world.table("HostnameGenerator")
            before = self._before[0].get(mesh)
            if before is None or before.vips is not known or before.generators is not table:
                before = _OfMesh(known, table, tuple(_named(known, table)))
            self.meshes[mesh] = before
        return self.meshes[mesh]


def _hostnames(world: World, previous: _Hostnames | None) -> _Hostnames:
    return _Hostnames(world, previous)


def _chosen(of_mesh: _OfMesh, listenings: tuple[OutboundAddress, ...]) -> _Found:
    """Names of what is called; of two services with the same name the first has it."""
    called = {one.address for one in listenings if not one.is_bound}
    names: dict[str, str] = {}
    for name, address in of_mesh.names if called else ():
        if address in called:
            names.setdefault(name, address)
    return _Found(of_mesh, listenings, Hosts(DNS_PORT, tuple(sorted(names.items()))) if names else None)


def _named(known: VirtualAddresses, table: Table) -> Iterator[tuple[str, str]]:
    """Names with their addresses, those of real services first."""
    for service, address in known.services:
        yield from ((name, address) for name in _names(service, table))
    for tag, address in known.tagged:
        name = f"{tag.replace('_', '.').lower()}.mesh"
        if is_domain(name):
            yield name, address


def _names(service: Resource, table: Table) -> Iterator[str]:
    templates = [(one.spec.template, _selected(one, service)) for one in table]
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

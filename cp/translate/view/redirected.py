"""Dataplanes whose machine redirects traffic to the proxy: what they can call, and what is redirected.

Such a workload calls every service of the mesh at its virtual address, except where its document says which ones it
reaches. A gRPC client without a proxy calls the same services, by their names.
Dataplanes that say the same get the same tuple, in this World and the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from cp.model.memo import Memo, SharingMemo
from cp.model.names import Destination, Key
from cp.model.violation import Finding, Severity, Violation
from cp.resources.client import is_grpc_client
from cp.resources.parse import finding
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.view.named import named
from cp.translate.view.outbound_address import OutboundAddress
from cp.translate.view.reachability import Reach, reach_of
from cp.translate.view.references import referred
from cp.translate.view.services import destination_of
from cp.translate.view.vips import NETWORK, TAG_PORT, VirtualAddresses, vips
from generators.proxy import Capture, Passthrough

OUTBOUND_PORT: Final = 15001
"""Where redirected calls arrive, unless the document says otherwise."""

Place: TypeAlias = tuple[str, int]
_Settings: TypeAlias = tuple[bytes, str, str, str, bool]
_Of: TypeAlias = tuple[_Settings, frozenset[Place], Reach | None]
"""The settings of some dataplanes, those virtual addresses that are inbounds of theirs, and what they reach."""

_Reached: TypeAlias = Mapping[Resource, AbstractSet[int | None]]
"""The ports of services that are reached; None stands for all of them."""

_CalledService: TypeAlias = tuple[Resource, str, Sequence[Any]]
"""A service, its address, and its ports that are called."""

_Subject: TypeAlias = tuple[World, Resource]
"""A World, and any of its dataplanes with these settings."""


def redirection(dataplane: Resource) -> Any | None:
    """The part of the document that says that there is redirection; None where it does not."""
    spec = dataplane.spec
    return None if spec.is_builtin_gateway else spec.net.transparent_proxying


def is_redirected(dataplane: Resource) -> bool:
    """Whether what others send to its inbounds is redirected too."""
    proxying = redirection(dataplane)
    return proxying is not None and bool(proxying.redirect_port_inbound)


def capture_of(world: World, dataplane: Resource) -> Capture | None:
    """What arrives at a proxy without having been sent to it."""
    proxying = redirection(dataplane)
    if proxying is None or is_grpc_client(dataplane):
        return None
    inbound = proxying.redirect_port_inbound or 0
    return Capture(
        outbound_port=proxying.redirect_port_outbound or OUTBOUND_PORT,
        inbound_port=inbound,
        inbound_port_v6=proxying.redirect_port_inbound_v6 or inbound,
        has_ipv6=proxying.ip_family_mode in {"DualStack", "IPv6"},
        virtual_network=NETWORK,
        passthrough=_passthrough(world, dataplane.mesh),
    )


def _passthrough(world: World, mesh: str) -> Passthrough:
    """What the Mesh says about calls to places that are no services of it."""
    mesh_resource = world.mesh(mesh)
    outbound = mesh_resource and mesh_resource.spec.networking and mesh_resource.spec.networking.outbound
    return Passthrough.NONE if outbound and outbound.passthrough is False else Passthrough.ALL


def virtual_outbounds(world: World, dataplane: Resource) -> tuple[OutboundAddress, ...]:
    """What a dataplane can call at virtual addresses."""
    addresses = vips(world, dataplane.mesh).addresses
    own = frozenset(place for place in dataplane.derived(_own_places) if place[0] in addresses)
    key = dataplane.derived(_settings), own, reach_of(world, dataplane)
    return world.derived(_VirtualOutbounds).get((world, dataplane), key)


class _VirtualOutbounds(SharingMemo[_Subject, _Of, tuple[OutboundAddress, ...]]):
    """The virtual outbounds of dataplanes, worked out once for all that have the same settings."""

    def basis(self, source: _Subject, key: _Of) -> tuple[VirtualAddresses, str]:  # noqa: ARG002  # it follows from the dataplane
        world, dataplane = source
        return vips(world, dataplane.mesh), _mode(world, dataplane.mesh)

    def work_out(self, source: _Subject, key: _Of) -> tuple[OutboundAddress, ...]:
        world, dataplane = source
        addresses = _listenings(world, dataplane, *self.basis(source, key), key[2])
        if is_grpc_client(dataplane):
            return named(addresses, dataplane.zone)
        return tuple(listening for listening in addresses if (listening.address, listening.port) not in key[1])


def wanted_virtual_outbounds(world: World, dataplane: Resource) -> int:
    """How many destinations a dataplane would call at virtual addresses without the limit."""
    key = dataplane.derived(_settings), frozenset[Place](), reach_of(world, dataplane)
    return world.derived(_WantedOutbounds).get((world, dataplane), key)


class _WantedOutbounds(Memo[_Subject, _Of, int]):
    def basis(self, source: _Subject, key: _Of) -> tuple[VirtualAddresses, str]:  # noqa: ARG002  # it follows from the dataplane
        world, dataplane = source
        return vips(world, dataplane.mesh), _mode(world, dataplane.mesh)

    def work_out(self, source: _Subject, key: _Of) -> int:
        called = _called(*source, *self.basis(source, key), key[2])
        return sum(1 for _ in called.by_tag) + sum(len(ports) for _, _, ports in called.services)


def _settings(dataplane: Resource) -> _Settings:
    """All on which it depends which services it reaches, beside the World."""
    proxying = redirection(dataplane)
    reached = (proxying.reachable_services, proxying.reachable_backends) if proxying is not None else ()
    written = msgspec.json.encode(reached)
    return written, dataplane.mesh, dataplane.zone, dataplane.namespace, is_grpc_client(dataplane)


def _own_places(dataplane: Resource) -> tuple[Place, ...]:
    net = dataplane.spec.net
    return tuple((inbound.address or net.address, inbound.port) for inbound in net.inbound or ())


def _mode(world: World, mesh: str) -> str:
    mesh_resource = world.mesh(mesh)
    services = mesh_resource.spec.mesh_services if mesh_resource is not None else None
    return (services and services.mode) or "Disabled"


class _Called(NamedTuple):
    """The destinations that a dataplane calls: those by tags, and the ports of services."""

    by_tag: Iterable[OutboundAddress]
    services: Sequence[_CalledService]


def _listenings(
    world: World, dataplane: Resource, of_mesh: VirtualAddresses, mode: str, reach: Reach | None
) -> Iterator[OutboundAddress]:
    """The destinations that fit into the budget of a proxy."""
    most = world.kinds.budget.destinations
    called = _called(world, dataplane, of_mesh, mode, reach)
    by_tag = tuple(islice(called.by_tag, most))
    yield from by_tag
    for service, address, ports in _oldest(called.services, most - len(by_tag)):
        for port in ports:
            yield OutboundAddress(address, port.port, destination_of(service, port), is_bound=False)


def _called(world: World, dataplane: Resource, of_mesh: VirtualAddresses, mode: str, reach: Reach | None) -> _Called:
    reached = _reached(world, dataplane, mode)
    candidates = (
        (service, address)
        for service, address in of_mesh.services
        if reached is not None or reach is None or service.type != _MESH_SERVICE or service.key in reach.called
    )
    services = [(service, address, _ports(service, reached)) for service, address in candidates]
    if mode == _REAL_ALONE:
        return _Called((), services)
    listed = _listed(dataplane) or (None if reach is None else reach.called)
    of_tags = _by_tag(of_mesh, is_grpc=is_grpc_client(dataplane))
    by_tag = (address for address in of_tags if listed is None or address.destination.service in listed)
    return _Called(by_tag, services)


def _ports(service: Resource, reached: _Reached | None) -> Sequence[Any]:
    """The ports of a service that are called."""
    ports = service.spec.ports or ()
    if reached is None:
        return ports
    numbers = reached.get(service, _NO_PORTS)
    return ports if None in numbers else [port for port in ports if port.port in numbers] if numbers else ()


def _oldest(services: Sequence[_CalledService], most: int) -> Iterator[_CalledService]:
    """The services that fit with so many ports, those that were created first, and of the last one the first ports."""
    left: dict[Key, int] = {}
    for service, _, ports in sorted(services, key=lambda called: called[0].source.created):
        left[service.key] = most
        most = max(0, most - len(ports))
    return ((service, address, ports[: left[service.key]]) for service, address, ports in services)


def _by_tag(of_mesh: VirtualAddresses, *, is_grpc: bool) -> Iterator[OutboundAddress]:
    """What is called by tags. A gRPC client knows no names but those of services."""
    for tag, address in of_mesh.tagged:
        yield OutboundAddress(address, TAG_PORT, Destination(tag), is_bound=False)
    for address, port in () if is_grpc else of_mesh.named:
        yield OutboundAddress(address, port.port, port.destination, is_bound=False)


def _listed(dataplane: Resource) -> frozenset[str] | None:
    """The tags that it says it reaches; None if it says nothing of them."""
    proxying = redirection(dataplane)
    return frozenset((proxying and proxying.reachable_services) or ()) or None


_MESH_SERVICE: Final = "MeshService"
_REAL_ALONE: Final = "Exclusive"
"""The mode of a mesh in which nothing is called by its tags."""

_NO_PORTS: Final[frozenset[int | None]] = frozenset()


def _reached(world: World, dataplane: Resource, mode: str) -> _Reached | None:
    """The real services that it reaches, each with its ports, or with None for all of them. None if it is everyone."""
    proxying = redirection(dataplane)
    backends = proxying and proxying.reachable_backends
    if backends is None:
        return {} if mode == "ReachableBackends" or _listed(dataplane) else None
    ports_by_service: dict[Resource, set[int | None]] = {}
    for reference in backends.refs or ():
        for service in referred(world, dataplane, reference):
            ports_by_service.setdefault(service, set()).add(reference.port or None)
    return ports_by_service


def why_not_called(world: World, dataplane: Resource, service: str) -> str:
    """Why a dataplane does not call what is known by its tag; empty if nothing keeps it from that."""
    if _mode(world, dataplane.mesh) == _REAL_ALONE:
        return f"`meshServices.mode` of the Mesh is {_REAL_ALONE}: nothing is called by its tags"
    listed = _listed(dataplane)
    if listed is not None:
        field = "networking.transparentProxying.reachableServices"
        return "" if service in listed else f"`{field}` of the Dataplane does not list {service}"
    reach = reach_of(world, dataplane)
    return "" if reach is None or service in reach.called else f"no MeshTrafficPermission lets it call {service}"


def unreached(world: World, dataplane: Resource) -> Iterator[Finding]:
    """What a dataplane says that it reaches, and does not, because it is not there."""
    proxying = redirection(dataplane)
    if proxying is None:
        return
    backends = proxying.reachable_backends
    for index, reference in enumerate((backends and backends.refs) or ()):
        services = referred(world, dataplane, reference)
        ports = {port.port for service in services for port in service.spec.ports or ()}
        described = f"{reference.kind} {reference.name or f'with the labels {reference.labels}'}"
        path = f"networking.transparentProxying.reachableBackends.refs[{index}]"
        if not services:
            violation = Violation(path, f"there is no {described} in mesh {dataplane.mesh}")
            yield finding(dataplane.document, "refers-to-nothing", Severity.ERROR, violation)
        elif reference.port and reference.port not in ports:
            has = ", ".join(sorted(map(str, ports))) or "none"
            violation = Violation(f"{path}.port", f"{described} has no port {reference.port}; it has {has}")
            yield finding(dataplane.document, "refers-to-nothing", Severity.ERROR, violation)

"""The properties of a destination: its service and port, its protocol, its cluster and its endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from cp.model.hosts import is_ip
from cp.model.names import Destination, kri
from cp.model.violation import Violation
from cp.resources.dataplane import PROTOCOL_TAG, SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.translate.view.dataplanes import DataplanePort, ports
from cp.translate.view.outside import EXTERNAL, LEGACY_EXTERNAL, ExternalDestination, outside, together
from generators.envoy.names import subset_cluster
from generators.proxy import Backend, Endpoint, Endpoints, Locality, Protocol

NOTHING_WITHHELD: Final[frozenset[str]] = frozenset()

_WITHHELD: Final = ExternalDestination(
    faults=(Violation("", "no TrafficPermission lets this proxy call it", "permit it, or take the call away"),)
)
_CARRIED = {  # the protocols that a service of each protocol can be called by, the best first
    "grpc": ("grpc", "http2", "tcp"),
    "http2": ("http2", "tcp"),
    "http": ("http", "tcp"),
}


def port_name(port: Any) -> str:
    """The name of a port, or its number if it has none. Sections are compared in this form."""
    return port.name or str(port.port)


def find_port(service: Resource, section: str) -> Any | None:
    """The port of a service, by name or by number."""
    return service.derived(_ports_by_section).get(section)


def _ports_by_section(service: Resource) -> Mapping[str, Any]:
    """The ports by name and by number. The first of several has the name or number."""
    by_section: dict[str, Any] = {}
    for port in service.spec.ports or ():
        for section in (port.name, str(port.port)):
            if section:
                by_section.setdefault(section, port)
    return by_section


def destination_of(service: Resource, port: Any) -> Destination:
    return Destination(service.display_name, service.identity.of_section(port_name(port)))


def service_of(world: World, destination: Destination) -> tuple[Resource, Any] | None:
    """The real service of a destination and its port; None for a destination by tags, or where either is missing."""
    identity = destination.identity
    if identity is None or (service := world.find(identity)) is None:
        return None
    port = find_port(service, identity.section)
    return None if port is None else (service, port)


def exists(world: World, mesh: str, destination: Destination) -> bool:
    if destination.is_real:
        return service_of(world, destination) is not None
    return bool(_tagged(world, mesh, destination) or external_services(world, mesh, destination))


def external_services(world: World, mesh: str, destination: Destination) -> tuple[Resource, ...]:
    """The ExternalServices that a destination by tags means; none if inbounds have the tags, as these come first."""
    if destination.is_real:
        return ()
    named = world.table(LEGACY_EXTERNAL, mesh).derived(_by_service).get(destination.service, ())
    carrying = tuple(service for service in named if set(destination.tags) <= service.spec.tags.items())
    return () if carrying and _tagged(world, mesh, destination) else carrying


def _by_service(table: Table) -> Mapping[str, list[Resource]]:
    by_service: dict[str, list[Resource]] = {}
    for service in table:
        by_service.setdefault((service.spec.tags or {}).get(SERVICE_TAG, ""), []).append(service)
    return by_service


def protocol_of(world: World, mesh: str, destination: Destination) -> Protocol:
    """The protocol of a destination. An unknown protocol is TCP."""
    if destination.is_real:
        service_and_port = service_of(world, destination)
        return _protocol(service_and_port[1].app_protocol if service_and_port else None)
    outside_services = external_services(world, mesh, destination)
    spoken = {service.spec.tags.get(PROTOCOL_TAG, "").lower() for service in outside_services}
    return _protocol(_common(spoken or {port.protocol for port in _tagged(world, mesh, destination)}))


def cluster_name(destination: Destination) -> str:
    """The name of the cluster of a destination. That of a real service is its KRI."""
    if destination.identity is not None:
        return kri(destination.identity)
    return subset_cluster(destination.service, destination.tags)


def backend_of(
    world: World, mesh: str, destination: Destination, withheld: AbstractSet[str] = NOTHING_WITHHELD
) -> Backend:
    """The cluster of a destination. `withheld`: the ExternalServices that the caller may not call."""
    outside = outside_of(world, mesh, destination, withheld)
    return Backend(
        cluster=cluster_name(destination),
        service=destination.service,
        protocol=protocol_of(world, mesh, destination),
        subset=destination.tags,
        external=() if outside is None else outside.endpoints,
    )


def outside_of(
    world: World, mesh: str, destination: Destination, withheld: AbstractSet[str] = NOTHING_WITHHELD
) -> ExternalDestination | None:
    """The external destination behind a destination; None for one inside the mesh, and where the service is missing."""
    identity = destination.identity
    if identity is None:
        services = external_services(world, mesh, destination)
        permitted = [service for service in services if service.name not in withheld]
        parts = [outside(world, service) for service in permitted]
        return together(parts or [_WITHHELD]) if services else None
    if identity.type != EXTERNAL or (service := world.find(identity)) is None:
        return None
    return outside(world, service)


def endpoints_of(world: World, mesh: str, destination: Destination) -> Endpoints:
    """The endpoints of a destination: every healthy address behind it."""
    candidates = ports_behind(world, mesh, destination)
    # Envoy NACKs an endpoint whose address is a name, and with it all others of the assignment.
    healthy = dict.fromkeys(_endpoint(port) for port in candidates if port.is_healthy and is_ip(port.address))
    return Endpoints(cluster_name(destination), tuple(healthy))


def ports_behind(world: World, mesh: str, destination: Destination) -> list[DataplanePort]:
    """The inbounds behind a destination, healthy or not."""
    service_and_port = service_of(world, destination)
    if service_and_port is not None:
        return _behind(world, *service_and_port)
    return [] if destination.is_real else _tagged(world, mesh, destination)


def ports_behind_service(world: World, service: Resource) -> Iterator[DataplanePort]:
    """The inbounds behind any port of a real service."""
    return (inbound for port in service.spec.ports or () for inbound in _behind(world, service, port))


def _behind(world: World, service: Resource, port: Any) -> list[DataplanePort]:
    """The inbounds behind a port of a real service."""
    if service.type == EXTERNAL:
        return []  # Envoy resolves its endpoints itself
    if service.type == "MeshMultiZoneService":
        ported = ((member, find_port(member, str(port.port))) for member in _members(world, service))
        served = ((member, own_port) for member, own_port in ported if own_port is not None)
        return [inbound for member, own_port in served for inbound in _behind(world, member, own_port)]
    target = port.target_port if port.target_port is not None else port.port
    return [
        inbound
        for inbound in selected(world, service)
        if target in ({inbound.inbound.port} if isinstance(target, int) else {inbound.inbound.name})
    ]


def _members(world: World, service: Resource) -> Iterable[Resource]:
    """The MeshServices, each of one zone, that a MeshMultiZoneService consists of."""
    selector = service.spec.selector and service.spec.selector.mesh_service
    return world.table("MeshService", service.mesh).labelled(selector.match_labels or {}) if selector else ()


def selected(world: World, service: Resource) -> Iterable[DataplanePort]:
    """Every inbound of the dataplanes that a MeshService selects."""
    table = world.table("Dataplane", service.mesh)
    index = table.derived(ports)
    selector = getattr(service.spec, "selector", None)
    if selector is None:
        return ()
    reference = getattr(selector, "dataplane_ref", None)
    if reference is not None and reference.name:
        names: Iterable[str] = (reference.name,)
    elif labels := getattr(selector, "dataplane_labels", None):
        names = [dataplane.name for dataplane in table.labelled(_match_labels(labels))]
    elif selector.dataplane_tags:
        names = dict.fromkeys(port.dataplane.name for port in index.tagged(selector.dataplane_tags))
    else:
        return ()
    return (port for name in names for port in index.by_dataplane.get(name, ()))


def _match_labels(labels: Any) -> Mapping[str, str]:
    match_labels: Mapping[str, str] = getattr(labels, "match_labels", None) or labels
    return match_labels


def _tagged(world: World, mesh: str, destination: Destination) -> list[DataplanePort]:
    tags = {SERVICE_TAG: destination.service} | dict(destination.tags)
    return world.table("Dataplane", mesh).derived(ports).tagged(tags)


def _endpoint(port: DataplanePort) -> Endpoint:
    return Endpoint(
        address=port.address,
        port=port.inbound.port,
        locality=Locality(port.zone),
        tags=tuple(sorted(port.tags.items())),
    )


def _common(spoken: set[str]) -> str:
    """The best protocol by which all can be called: HTTP/2 for gRPC and HTTP/2, but only TCP for HTTP and HTTP/2."""
    carried = [_CARRIED.get(protocol, ("tcp",)) for protocol in sorted(spoken)]
    candidates = carried[0] if carried else ()
    return next((protocol for protocol in candidates if all(protocol in protocols for protocols in carried)), "tcp")


def _protocol(name: str | None) -> Protocol:
    try:
        return Protocol((name or "tcp").lower())
    except ValueError:
        return Protocol.TCP

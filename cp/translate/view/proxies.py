"""What one dataplane has: inbounds that others reach, and outbounds by which its workload reaches others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec

from cp.model.names import Destination
from cp.model.violation import Finding, Severity, Violation
from cp.resources.addresses import not_served
from cp.resources.client import is_grpc_client
from cp.resources.parse import finding
from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.translate.view.dataplanes import SERVICE_TAG, DataplanePort, ports_of
from cp.translate.view.named import named
from cp.translate.view.outbound_address import OutboundAddress as OutboundAddress
from cp.translate.view.redirected import VirtualOutbounds, is_redirected, redirection, unreached
from cp.translate.view.references import referred
from cp.translate.view.services import destination_of, find_port, service_of
from cp.translate.view.sidecars import sidecar_of
from cp.translate.view.vips import TAG_PORT
from generators.proxy import Inbound, Protocol

_LOOPBACK = "127.0.0.1"

SERVICES: Final = ("MeshService", "MeshExternalService", "MeshMultiZoneService")

_Written: TypeAlias = tuple[bytes, str, str, str, bool, frozenset[int]]


def outbounds(world: World, dataplane: Resource) -> tuple[OutboundAddress, ...]:
    """Where a dataplane's workload can send to. What cannot be resolved is left out; see `unresolved`.

    Dataplanes whose outbounds come to the same get the same tuple, in this World and the next.
    """
    if _reaches_everyone(dataplane):
        return world.derived(_redirected).of(dataplane)
    return world.derived(_outbounds).of(dataplane)


def _reaches_everyone(dataplane: Resource) -> bool:
    """Whether its outbounds are not those that it lists, but all services that it may call."""
    if is_grpc_client(dataplane):
        return not _written(dataplane)
    return redirection(dataplane) is not None


def _redirected(world: World, previous: VirtualOutbounds | None) -> VirtualOutbounds:
    return VirtualOutbounds(world, previous)


class _Outbounds:
    """The outbounds of every dataplane, worked out once for all that have written the same."""

    def __init__(self, world: World, previous: _Outbounds | None) -> None:
        self._world = world
        self.known: dict[_Written, tuple[OutboundAddress, ...]] = {}
        self.services: dict[str, list[Table]] = {}
        self._same: dict[tuple[OutboundAddress, ...], tuple[OutboundAddress, ...]] = {}
        if previous is not None:
            self._same = {found: found for found in previous.known.values()}
            kept = {mesh for mesh, tables in previous.services.items() if tables == self._services_of(mesh)}
            self.known = {written: found for written, found in previous.known.items() if written[1] in kept}

    def of(self, dataplane: Resource) -> tuple[OutboundAddress, ...]:
        key = dataplane.derived(_written_key)
        if key not in self.known:
            self._services_of(dataplane.mesh)
            served = (outbound for index, outbound in enumerate(_written(dataplane)) if index not in key[-1])
            listed = (_listening(self._world, dataplane, outbound) for outbound in served)
            found = tuple(dict.fromkeys(one for one in listed if isinstance(one, OutboundAddress)))
            found = named(found, dataplane.zone) if is_grpc_client(dataplane) else found
            self.known[key] = self._same.setdefault(found, found)
        return self.known[key]

    def _services_of(self, mesh: str) -> list[Table]:
        """All on which the outbounds of a mesh depend; tables are equal only to themselves."""
        tables = self.services[mesh] = [self._world.table(kind, mesh) for kind in SERVICES]
        return tables


def _outbounds(world: World, previous: _Outbounds | None) -> _Outbounds:
    return _Outbounds(world, previous)


def _written_key(dataplane: Resource) -> _Written:
    """All on which a dataplane's outbounds depend, beside the services."""
    written = msgspec.json.encode((dataplane.data.get("networking") or {}).get("outbound") or ())
    taken = not_served(dataplane, "outbound")
    return written, dataplane.mesh, dataplane.zone, dataplane.namespace, is_grpc_client(dataplane), taken


def unresolved(world: World, dataplane: Resource) -> Iterator[Finding]:
    """The outbounds that lead nowhere."""
    if _reaches_everyone(dataplane):
        yield from unreached(world, dataplane)
        return
    for index, outbound in enumerate(_written(dataplane)):
        address_or_reason = _listening(world, dataplane, outbound)
        if isinstance(address_or_reason, str):
            field = "tags" if outbound.backend_ref is None else "backendRef"
            violation = Violation(f"networking.outbound[{index}].{field}", address_or_reason)
            yield finding(dataplane.document, "refers-to-nothing", Severity.ERROR, violation)


def _written(dataplane: Resource) -> Any:
    return dataplane.spec.networking.outbound or ()


def _listening(world: World, dataplane: Resource, outbound: Any) -> OutboundAddress | str:
    destination = _destination(world, dataplane, outbound)
    if isinstance(destination, str):
        return destination
    if is_grpc_client(dataplane):
        return _by_name(world, destination)
    return OutboundAddress(outbound.address or _LOOPBACK, outbound.port, destination)


def _by_name(world: World, destination: Destination) -> OutboundAddress | str:
    """A gRPC client calls a service by its own port, and not at a local one."""
    if destination.tags:
        narrower = ", ".join(f"{name}={value}" for name, value in destination.tags)
        return f"a gRPC client calls {destination.service} as a whole, and not {narrower}: say that in a MeshHTTPRoute"
    service_and_port = service_of(world, destination)
    return OutboundAddress(
        destination.service,
        TAG_PORT if service_and_port is None else service_and_port[1].port,
        destination,
        is_bound=False,
    )


def _destination(world: World, dataplane: Resource, outbound: Any) -> Destination | str:
    reference = outbound.backend_ref
    if reference is None:
        tags = dict(outbound.tags or {})
        return Destination(tags.pop(SERVICE_TAG, ""), tags=tuple(sorted(tags.items())))
    service = next(iter(referred(world, dataplane, reference)), None)
    if service is None:
        described = reference.name or f"labels {reference.labels}"
        return f"there is no {reference.kind} {described} in mesh {dataplane.mesh}"
    port = find_port(service, str(reference.port)) if reference.port else next(iter(service.spec.ports or ()), None)
    if port is None:
        has = ", ".join(str(port.port) for port in service.spec.ports or ()) or "none"
        return f"{reference.kind} {service.name} has no port {reference.port}; it has {has}"
    return destination_of(service, port)


def inbounds(dataplane: Resource) -> tuple[tuple[int, Inbound], ...]:
    """The ports at which a dataplane's workload is reached through its proxy, with their places in the document."""
    if is_grpc_client(dataplane):
        return ()
    taken = not_served(dataplane, "inbound")
    served = (port for port in ports_of(dataplane) if port.inbound.state != "Ignored" and port.index not in taken)
    return tuple((port.index, _inbound(port)) for port in served)


def _inbound(port: DataplanePort) -> Inbound:
    inbound = port.inbound
    networking = port.dataplane.spec.networking
    return Inbound(
        address=inbound.address or networking.address,
        port=inbound.port,
        service_address=inbound.service_address or _LOOPBACK,
        service_port=inbound.service_port or inbound.port,
        service=port.tags.get(SERVICE_TAG) or port.dataplane.display_name,
        protocol=_protocol(port.protocol),
        tags=tuple(sorted(port.tags.items())),
        mesh=port.dataplane.mesh,
        sidecar=port.dataplane.derived(sidecar_of),
        is_bound=not is_redirected(port.dataplane),
    )


def _protocol(name: str) -> Protocol:
    return Protocol(name) if name in set(Protocol) else Protocol.TCP

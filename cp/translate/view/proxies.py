"""What one dataplane has: inbounds that others reach, and outbounds by which its workload reaches others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from cp.model.memo import SharingMemo
from cp.model.names import Destination
from cp.model.violation import Finding, Severity, Violation
from cp.resources.addresses import not_served
from cp.resources.client import is_grpc_client
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.parse import finding
from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.translate.view.dataplanes import DataplanePort, ports_of
from cp.translate.view.named import named
from cp.translate.view.outbound_address import OutboundAddress as OutboundAddress
from cp.translate.view.redirected import (
    is_redirected,
    redirection,
    unreached,
    virtual_outbounds,
    wanted_virtual_outbounds,
)
from cp.translate.view.references import referred
from cp.translate.view.services import destination_of, find_port, service_of
from cp.translate.view.sidecars import sidecar_of
from cp.translate.view.vips import TAG_PORT
from generators.proxy import Inbound, Protocol

_LOOPBACK = "127.0.0.1"

SERVICES: Final = ("MeshService", "MeshExternalService", "MeshMultiZoneService")

_Written: TypeAlias = tuple[bytes, str, str, str, bool, frozenset[int]]
_Subject: TypeAlias = tuple[World, Resource]
"""A World, and any of its dataplanes that have written the same."""


def outbounds(world: World, dataplane: Resource) -> tuple[OutboundAddress, ...]:
    """Where a dataplane's workload can send to. What cannot be resolved is left out; see `unresolved`.

    Dataplanes whose outbounds come to the same get the same tuple, in this World and the next.
    """
    if _reaches_everyone(dataplane):
        return virtual_outbounds(world, dataplane)
    return world.derived(_WrittenOutbounds).get((world, dataplane), dataplane.derived(_written_key))


def wanted_outbounds(world: World, dataplane: Resource) -> int:
    """How many destinations a dataplane would call without the limit of a proxy; 0 if it is below the limit."""
    most = world.kinds.budget.destinations
    if _reaches_everyone(dataplane):
        wanted = wanted_virtual_outbounds(world, dataplane)
    elif len(_written(dataplane)) > most:
        listed = (_listening(world, dataplane, outbound) for outbound in _written(dataplane))
        wanted = sum(isinstance(address, OutboundAddress) for address in listed)
    else:
        wanted = 0
    return wanted if wanted > most else 0


def _reaches_everyone(dataplane: Resource) -> bool:
    """Whether its outbounds are not those that it lists, but all services that it may call."""
    if is_grpc_client(dataplane):
        return not _written(dataplane)
    return redirection(dataplane) is not None


class _WrittenOutbounds(SharingMemo[_Subject, _Written, tuple[OutboundAddress, ...]]):
    """The outbounds of every dataplane, worked out once for all that have written the same."""

    def basis(self, source: _Subject, key: _Written) -> tuple[Table, ...]:  # noqa: ARG002  # it follows from the dataplane
        world, dataplane = source
        return tuple(world.table(kind, dataplane.mesh) for kind in SERVICES)

    def work_out(self, source: _Subject, key: _Written) -> tuple[OutboundAddress, ...]:
        world, dataplane = source
        served = (outbound for index, outbound in enumerate(_written(dataplane)) if index not in key[-1])
        listed = (_listening(world, dataplane, outbound) for outbound in served)
        addresses = dict.fromkeys(address for address in listed if isinstance(address, OutboundAddress))
        listenings = tuple(islice(addresses, world.kinds.budget.destinations))
        return named(listenings, dataplane.zone) if is_grpc_client(dataplane) else listenings


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
    ports = (port for port in ports_of(dataplane) if port.inbound.state != "Ignored" and port.index not in taken)
    served = [(port.index, _inbound(port)) for port in ports]
    callers = Counter((inbound.service_address, inbound.service_port) for _, inbound in served)
    return tuple(
        (index, replace(inbound, shares_workload=callers[inbound.service_address, inbound.service_port] > 1))
        for index, inbound in served
    )


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

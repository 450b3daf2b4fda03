"""The addresses and ports at which a proxy listens, and which inbound or outbound has one that several ask for.

The first in the document has it. Inbounds come before outbounds, because other proxies depend on them. An outbound that
leads nowhere keeps its address too: calls then fail, and do not reach another service (record 0042).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final, TypeAlias

from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource

LOOPBACK: Final = "127.0.0.1"

Address: TypeAlias = tuple[str, int]
"""An IP address and a port."""


@dataclass(frozen=True, slots=True)
class AddressConflict:
    """An inbound or outbound whose address another one has already."""

    side: str
    """`inbound` or `outbound`."""

    index: int
    address: Address
    owner: str
    """The path of the inbound or outbound that has the address."""

    same_workload: bool = False
    """Whether both are inbounds of one workload address: then a call to either reaches the same workload."""

    @property
    def path(self) -> str:
        return f"networking.{self.side}[{self.index}]"


def conflicts(dataplane: Resource) -> tuple[AddressConflict, ...]:
    """The inbounds and outbounds that are not served because another one has their address."""
    return tuple(_conflicts(dataplane))


def not_served(dataplane: Resource, side: str) -> frozenset[int]:
    """The indexes of the inbounds, or outbounds, that are not served."""
    return frozenset(conflict.index for conflict in dataplane.derived(conflicts) if conflict.side == side)


def owners(dataplane: Resource) -> Mapping[Address, str]:
    """The addresses at which a proxy listens, with the path of the inbound or outbound that has each."""
    paths: dict[Address, str] = {}
    for side, index, address, _ in () if is_grpc_client(dataplane) else _listening_addresses(dataplane):
        paths.setdefault(address, f"networking.{side}[{index}]")
    return paths


def address_of(host: str, port: int) -> Address:
    """An address as it is compared with others: two ways to write one are equal."""
    return _normal(host), port


def of_inbound(dataplane: Resource, inbound: Any) -> Address:
    """The address at which a proxy listens for an inbound."""
    return _normal(inbound.address or dataplane.spec.net.address or ""), inbound.port


def admin_address(dataplane: Resource) -> Address | None:
    """The address of its Envoy's admin interface; None where the document names no port for it."""
    admin = dataplane.spec.net.admin
    return None if admin is None or not admin.port else (LOOPBACK, admin.port)


def workload_of(inbound: Any) -> Address:
    """The address at which the workload behind an inbound listens."""
    return _normal(inbound.service_address or LOOPBACK), inbound.service_port or inbound.port


def _conflicts(dataplane: Resource) -> Iterator[AddressConflict]:
    if is_grpc_client(dataplane):
        return
    owners: dict[Address, tuple[str, Address | None]] = {}
    for side, index, address, workload in _listening_addresses(dataplane):
        path, behind = owners.setdefault(address, (f"networking.{side}[{index}]", workload))
        if path != f"networking.{side}[{index}]":
            yield AddressConflict(side, index, address, path, workload is not None and workload == behind)


def _listening_addresses(dataplane: Resource) -> Iterator[tuple[str, int, Address, Address | None]]:
    net = dataplane.spec.net
    for index, inbound in enumerate(net.inbound or ()):
        if inbound.state != "Ignored":
            yield "inbound", index, of_inbound(dataplane, inbound), workload_of(inbound)
    for index, outbound in enumerate((net.outbound or ()) if net.transparent_proxying is None else ()):
        yield "outbound", index, (_normal(outbound.address or LOOPBACK), outbound.port), None


def _normal(address: str) -> str:
    try:
        return str(ip_address(address))
    except ValueError:  # the name of a host
        return address.lower()

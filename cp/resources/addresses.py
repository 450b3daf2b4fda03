"""The addresses and ports at which a proxy listens, and who has one of them where several want it.

The first that is written has it, and inbounds come before outbounds: others depend on those. It keeps it also while it
leads nowhere: calls are then refused, and not sent to another service. Record 0042 says why.
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
    """An inbound or outbound that wants the address of another."""

    side: str
    """`inbound` or `outbound`."""

    index: int
    address: Address
    owner: str
    """The path of the one that has it."""

    same_workload: bool = False
    """Whether both are inbounds of one workload: then whoever calls the one reaches what is behind the other."""

    @property
    def path(self) -> str:
        return f"networking.{self.side}[{self.index}]"


def conflicts(dataplane: Resource) -> tuple[AddressConflict, ...]:
    """The inbounds and outbounds that are not served, because their address is taken."""
    return tuple(_conflicts(dataplane))


def not_served(dataplane: Resource, side: str) -> frozenset[int]:
    """The inbounds, or outbounds, that are not served, by their index."""
    return frozenset(one.index for one in dataplane.derived(conflicts) if one.side == side)


def owners(dataplane: Resource) -> Mapping[Address, str]:
    """The addresses at which a proxy listens, with the path of the inbound or outbound that has each."""
    found: dict[Address, str] = {}
    for side, index, address, _ in () if is_grpc_client(dataplane) else _wanted(dataplane):
        found.setdefault(address, f"networking.{side}[{index}]")
    return found


def address_of(host: str, port: int) -> Address:
    """An address as it is compared with others: two ways to write one are equal."""
    return _normal(host), port


def of_inbound(dataplane: Resource, inbound: Any) -> Address:
    """Where a proxy listens for an inbound."""
    return _normal(inbound.address or dataplane.spec.net.address or ""), inbound.port


def workload_of(inbound: Any) -> Address:
    """Where the workload behind an inbound listens."""
    return _normal(inbound.service_address or LOOPBACK), inbound.service_port or inbound.port


def _conflicts(dataplane: Resource) -> Iterator[AddressConflict]:
    if is_grpc_client(dataplane):
        return
    owners: dict[Address, tuple[str, Address | None]] = {}
    for side, index, address, workload in _wanted(dataplane):
        path, behind = owners.setdefault(address, (f"networking.{side}[{index}]", workload))
        if path != f"networking.{side}[{index}]":
            yield AddressConflict(side, index, address, path, workload is not None and workload == behind)


def _wanted(dataplane: Resource) -> Iterator[tuple[str, int, Address, Address | None]]:
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

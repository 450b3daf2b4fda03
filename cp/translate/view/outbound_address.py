"""`OutboundAddress`: the address that a workload calls, and the destination behind it."""

from __future__ import annotations

from dataclasses import dataclass

from cp.model.names import Destination


@dataclass(frozen=True, slots=True, order=True)
class OutboundAddress:
    """A local or virtual address and the destination behind it."""

    address: str
    port: int
    destination: Destination
    is_bound: bool = True
    """Whether the proxy binds a socket to it. It does not to a virtual address: calls to that are redirected."""

    names: tuple[str, ...] = ()
    """The names by which a gRPC client calls it. For such a client, `address` is the name of the service."""

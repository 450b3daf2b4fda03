"""`OutboundAddress`: where a proxy takes calls from its workload, or a workload without a proxy begins them."""

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
    """Whether there is a socket of its own. A virtual address has none: what is sent to it is redirected."""

    names: tuple[str, ...] = ()
    """What a gRPC client without a proxy calls it by; to such a client its address is the service's name."""

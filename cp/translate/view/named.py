"""The names by which a gRPC client calls services: `xds:///NAME:PORT`, or the bare name where that is unambiguous."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from cp.model.names import Destination, Identity
from cp.translate.view.outbound_address import OutboundAddress


def named(listenings: Iterable[OutboundAddress], zone: str) -> tuple[OutboundAddress, ...]:
    """The outbounds under the names of their services. Of several with one name, the nearest has it.

    Real services come before tags. An outbound without a name cannot be called and is left out.
    """
    ordered = sorted(
        dict.fromkeys(map(_by_name, listenings)), key=lambda outbound: _distance(outbound.destination, zone)
    )
    ports = Counter(_owner(outbound) for outbound in ordered)
    first: dict[str, Destination | Identity] = {}
    taken: set[str] = set()
    outbounds: list[OutboundAddress] = []
    for outbound in ordered:
        is_first = first.setdefault(outbound.address, _owner(outbound)) == _owner(outbound)
        alone = is_first and ports[_owner(outbound)] == 1
        names = tuple(name for name in _names(outbound, alone=alone) if name not in taken)
        taken.update(names)
        outbounds += [replace(outbound, names=names)] if names else []
    return tuple(outbounds)


def _by_name(outbound: OutboundAddress) -> OutboundAddress:
    return OutboundAddress(outbound.destination.service, outbound.port, outbound.destination, is_bound=False)


def _owner(outbound: OutboundAddress) -> Destination | Identity:
    """The service as a whole, whose ports share its bare name."""
    identity = outbound.destination.identity
    return outbound.destination if identity is None else identity.whole


def _distance(destination: Destination, zone: str) -> int:
    identity = destination.identity
    if identity is None:
        return 3
    return {zone: 0}.get(identity.zone, 1 if identity.zone == "" else 2)


def _names(outbound: OutboundAddress, *, alone: bool) -> Iterator[str]:
    yield f"{outbound.address}:{outbound.port}"
    if alone:
        yield outbound.address

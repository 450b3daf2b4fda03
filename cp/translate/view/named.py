"""What a gRPC client without a proxy calls services by: `xds:///NAME:PORT`, or the bare name where it says enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from cp.model.names import Destination, Identity
from cp.translate.view.outbound_address import OutboundAddress


def named(listenings: Iterable[OutboundAddress], zone: str) -> tuple[OutboundAddress, ...]:
    """The same destinations under their names. A name that several have is that of the nearest.

    Real services go before tags. Whoever has no name left cannot be called.
    """
    ordered = sorted(dict.fromkeys(map(_by_name, listenings)), key=lambda one: _distance(one.destination, zone))
    ports = Counter(_owner(one) for one in ordered)
    first: dict[str, Destination | Identity] = {}
    taken: set[str] = set()
    found: list[OutboundAddress] = []
    for one in ordered:
        is_first = first.setdefault(one.address, _owner(one)) == _owner(one)
        alone = is_first and ports[_owner(one)] == 1
        names = tuple(name for name in _names(one, alone=alone) if name not in taken)
        taken.update(names)
        found += [replace(one, names=names)] if names else []
    return tuple(found)


def _by_name(one: OutboundAddress) -> OutboundAddress:
    return OutboundAddress(one.destination.service, one.port, one.destination, is_bound=False)


def _owner(one: OutboundAddress) -> Destination | Identity:
    """The service as a whole."""
    identity = one.destination.identity
    return one.destination if identity is None else identity.whole


def _distance(destination: Destination, zone: str) -> int:
    identity = destination.identity
    if identity is None:
        return 3
    return {zone: 0}.get(identity.zone, 1 if identity.zone == "" else 2)


def _names(one: OutboundAddress, *, alone: bool) -> Iterator[str]:
    yield f"{one.address}:{one.port}"
    if alone:
        yield one.address

"""The outbound of a proxy that a call means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from cp.insight.explain.model import ExplainedOutbound
from cp.insight.explain.query import AmbiguousCall, CallQuery
from cp.model.names import Destination
from cp.model.wording import few
from cp.resources.capabilities import missing_parts
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.outbound import OutboundResult
from cp.translate.view.hostnames import hosts
from cp.translate.view.proxies import OutboundAddress, outbounds
from cp.translate.view.services import service_of

_LOCALHOST: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104  # names for this machine
_USUAL_PORT: Final = 80
_MOST_OUTBOUNDS: Final = 12


def outbound_for(world: World, dataplane: Resource, call: CallQuery) -> OutboundAddress:
    """The outbound that a call means, by the name of its service or by its local address.

    What the proxy answers for a name goes before any other meaning of that.
    Raises `AmbiguousCall` if it means none of the proxy's outbounds, or several with different destinations.
    """
    addresses = outbounds(world, dataplane)
    if not addresses:
        raise _without_outbound(dataplane)
    names = _names(world, dataplane, addresses)
    named = [address for address in addresses if not call.host or call.host in names[address.address]] or [
        address for address in addresses if call.host in _hosts(address)
    ]
    if not named:
        raise AmbiguousCall(f"{dataplane.key} has no outbound for `{call.host}`", _listed_outbounds(world, addresses))
    ported = [
        address
        for address in named
        if call.port is None
        or call.port in ({address.port} if call.host in names[address.address] else _ports(world, address, call.host))
    ]
    if not ported:
        raise AmbiguousCall(
            f"{dataplane.key} has no outbound for `{call.host}:{call.port}`", _listed_outbounds(world, named)
        )
    return _only_outbound(world, ported, call)


def _without_outbound(dataplane: Resource) -> AmbiguousCall:
    data = dataplane.document.data
    missing = next(missing_parts(dataplane.type, data), None)
    if missing is None and data["networking"].get("outbound"):
        hint = "no service that they name is there; `koguma lint` says which ones"
        return AmbiguousCall(f"the outbounds of {dataplane.key} lead nowhere", hint)
    hint = "its workload cannot call anybody through it" if missing is None else missing.sentence
    return AmbiguousCall(f"{dataplane.key} has no outbound", hint)


def _only_outbound(world: World, addresses: list[OutboundAddress], call: CallQuery) -> OutboundAddress:
    if len(addresses) > 1 and call.port is None:
        addresses = [address for address in addresses if _USUAL_PORT in _ports(world, address, call.host)] or addresses
    if len(addresses) > 1 and len({address.destination for address in addresses}) > 1:
        call_name = f"`{call.authority}`" if call.host else "a call without a host"
        raise AmbiguousCall(f"{call_name} can be any of several outbounds", _listed_outbounds(world, addresses))
    return addresses[0]


def _names(world: World, dataplane: Resource, addresses: tuple[OutboundAddress, ...]) -> Mapping[str, AbstractSet[str]]:
    """The names that the proxy answers for, by the addresses to which they lead."""
    known = hosts(world, dataplane.mesh, addresses)
    by_address: dict[str, set[str]] = {address.address: set() for address in addresses}
    for name, address in () if known is None else known.names:
        by_address[address].add(name)
    return by_address


def _hosts(address: OutboundAddress) -> Iterator[str]:
    """Every host by which a call can mean an outbound, beside the names that the proxy answers for."""
    yield address.address
    if address.destination.tags and not address.is_bound:
        return
    service = address.destination.service
    yield service
    yield f"{service}.mesh"
    yield f"{service.replace('_', '.')}.mesh"
    if address.destination.identity is not None:
        yield address.destination.identity.name
    if address.address in _LOCALHOST:
        yield from _LOCALHOST


def _ports(world: World, address: OutboundAddress, host: str) -> Iterator[int]:
    """The ports by which a call can mean an outbound: the local port and, with the service's name, the service's."""
    yield address.port
    if host == address.address or host in _LOCALHOST:
        return
    yield service_port(world, address.destination) or _USUAL_PORT


def service_port(world: World, destination: Destination) -> int | None:
    """The port of a real service; None for a service that is only a tag."""
    service = service_of(world, destination)
    return None if service is None else int(service[1].port)


def _listed_outbounds(world: World, addresses: Iterable[OutboundAddress]) -> str:
    """The outbounds that a call could mean, in a sentence for a hint."""
    labels = [
        f"`{destination_label(world, address.destination)}` at {address.address}:{address.port}"
        for address in addresses
    ]
    return f"there is {few(labels, _MOST_OUTBOUNDS)}"


def destination_label(world: World, destination: Destination) -> str:
    """A destination as a call can name it."""
    tags = "".join(f" {name}={value}" for name, value in destination.tags)
    port = service_port(world, destination)
    return f"{destination.service}{f':{port}' if port is not None else ''}{tags}"


def explained_outbound(world: World, result: OutboundResult) -> ExplainedOutbound:
    """An outbound as explanations show it."""
    destination = result.address.destination
    return ExplainedOutbound(
        address=result.address.address,
        port=result.address.port,
        destination=destination_label(world, destination),
        protocol=result.outbound.protocol.value,
        kind=SERVICE_TAG if destination.identity is None else destination.identity.type,
    )

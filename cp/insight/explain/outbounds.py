"""Which outbound of a proxy a call leaves by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from cp.insight.explain.query import AmbiguousCall, CallQuery
from cp.model.names import Destination
from cp.resources.capabilities import missing_parts
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.view.proxies import OutboundAddress, outbounds
from cp.translate.view.services import service_of

_LOCALHOST: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104  # names for this machine
_USUAL_PORT: Final = 80
_FEW: Final = 12


def listening_for(world: World, dataplane: Resource, call: CallQuery) -> OutboundAddress:
    """The one outbound that a call means: by the name of its service, or by its local address."""
    known = outbounds(world, dataplane)
    if not known:
        missing = next(missing_parts(dataplane.type, dataplane.document.data), None)
        hint = "its workload cannot call anybody through it" if missing is None else missing.sentence
        raise AmbiguousCall(f"{dataplane.key} has no outbound", hint)
    named = [one for one in known if not call.host or call.host in _hosts(one)]
    if not named:
        raise AmbiguousCall(f"{dataplane.key} has no outbound for `{call.host}`", _there(world, known))
    ported = [one for one in named if call.port is None or call.port in _ports(world, one, call.host)]
    if not ported:
        raise AmbiguousCall(f"{dataplane.key} has no outbound for `{call.host}:{call.port}`", _there(world, named))
    return _the_one(world, ported, call)


def _the_one(world: World, found: list[OutboundAddress], call: CallQuery) -> OutboundAddress:
    if len(found) > 1 and call.port is None:
        found = [one for one in found if _USUAL_PORT in _ports(world, one, call.host)] or found
    if len(found) > 1 and len({one.destination for one in found}) > 1:
        said = f"`{call.authority}`" if call.host else "a call without a host"
        raise AmbiguousCall(f"{said} can be any of several outbounds", _there(world, found))
    return found[0]


def _hosts(one: OutboundAddress) -> Iterator[str]:
    """Every name by which a call can mean an outbound."""
    service = one.destination.service
    yield service
    yield f"{service}.mesh"
    yield f"{service.replace('_', '.')}.mesh"
    if one.destination.identity is not None:
        yield one.destination.identity.name
    yield one.address
    if one.address in _LOCALHOST:
        yield from _LOCALHOST


def _ports(world: World, one: OutboundAddress, host: str) -> Iterator[int]:
    """The ports by which a call can mean it: that of the listener and, by the service's name, that of the service."""
    yield one.port
    if host == one.address or host in _LOCALHOST:
        return
    yield service_port(world, one.destination) or _USUAL_PORT


def service_port(world: World, destination: Destination) -> int | None:
    """The port of a real service; services that are known by tags have none of their own."""
    found = service_of(world, destination)
    return None if found is None else int(found[1].port)


def _there(world: World, known: Iterable[OutboundAddress]) -> str:
    """What could be meant."""
    found = [f"`{called(world, one.destination)}` at {one.address}:{one.port}" for one in known]
    more = f" and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return f"there is {', '.join(found[:_FEW])}{more}"


def called(world: World, destination: Destination) -> str:
    """A destination as a call can have it."""
    tags = "".join(f" {name}={value}" for name, value in destination.tags)
    port = service_port(world, destination)
    return f"{destination.service}{f':{port}' if port is not None else ''}{tags}"

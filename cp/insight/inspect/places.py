"""Every place of a proxy at which a kind of policy has a say, with what holds there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cp.model.names import Destination, Identity
from cp.resources.kinds import Kind
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyRules, TagCondition, at_gateway, build, effective, gateway_routes, routes
from cp.rules.matching import match
from cp.rules.matching.profile import gateway_of, listeners, sections
from cp.rules.merging import NOTHING, MergedConf
from cp.translate.view.proxies import outbounds

_ROUTES = ("MeshHTTPRoute", "MeshTCPRoute")


@dataclass(frozen=True, slots=True)
class ProxyPlace:
    """One place: a destination, a way to it by routes, an inbound (with some of its clients), or the whole proxy.

    On a builtin gateway, routes are on its listeners.
    """

    destination: Destination | None = None
    listener: int | None = None
    """The port of a gateway's listener."""

    via: tuple[Identity, ...] = ()
    """The routes that contribute to a way to the destination, the strongest first."""

    inbound: int | None = None
    clients: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole proxy."""
        return self.destination is None and self.listener is None and self.inbound is None

    def __str__(self) -> str:
        if self.destination is not None:
            return f"to {_called(self.destination)}{self._by}"
        if self.listener is not None:
            return f"on listener {self.listener}{self._by}"
        if self.inbound is not None:
            return f"on inbound {self.inbound}" + (f" from {self.clients}" if self.clients else "")
        return "on the proxy"

    @property
    def _by(self) -> str:
        names = [f"{route.type} {route.name}" for route in self.via]
        return f" by {' with '.join(names)}" if names else ""


def standing(world: World, dataplane: Resource, kind: Kind) -> Iterator[tuple[ProxyPlace, MergedConf]]:
    """What a kind of policy says at each place of a proxy; places about which it says nothing are left out."""
    matched = match(world, dataplane)
    if kind.name not in matched:
        return
    rules = build(world, matched[kind.name], kind)
    tables = [build(world, matched[one], world.kinds[one]) for one in _ROUTES if one in matched and not is_route(kind)]
    gateway = gateway_of(world, dataplane)
    calls = _outbound(world, dataplane, rules, tables) if gateway is None else _on_gateway(gateway, rules, tables)
    found = (*(calls if rules.shape.to else ()), *_inbound(dataplane, rules), *_whole(rules))
    yield from ((place, merged) for place, merged in found if merged is not NOTHING)


def is_route(kind: Kind) -> bool:
    """Whether what a kind of policy says are the ways to a destination, and not what holds on each of them."""
    return kind.name in _ROUTES


def _outbound(
    world: World, dataplane: Resource, rules: PolicyRules, tables: list[PolicyRules]
) -> Iterator[tuple[ProxyPlace, MergedConf]]:
    for destination in dict.fromkeys(one.destination for one in outbounds(world, dataplane)):
        yield ProxyPlace(destination), effective(rules, destination)
        found = (rule for table in tables for rule in routes(table, destination) or ())
        for via, matches in sorted({(rule.contributors, rule.hash) for rule in found}):
            yield ProxyPlace(destination, via=via), effective(rules, destination, via, matches)


def _on_gateway(
    gateway: Resource, rules: PolicyRules, tables: list[PolicyRules]
) -> Iterator[tuple[ProxyPlace, MergedConf]]:
    for index, listener in enumerate(listeners(gateway)):
        port, there = listener.get("port"), rules.at_listeners([index])
        yield ProxyPlace(listener=port), at_gateway(there)
        found = (one for table in tables for _, one in gateway_routes(table.at_listeners([index])))
        for via, matches in sorted({(rule.contributors, rule.hash) for rule in found}):
            yield ProxyPlace(listener=port, via=via), at_gateway(there, via, matches)


def _inbound(dataplane: Resource, rules: PolicyRules) -> Iterator[tuple[ProxyPlace, MergedConf]]:
    for index, section in enumerate(sections(dataplane)):
        port = section.get("port")
        if not rules.shape.from_as_rules:
            for rule in rules.from_(index).rules:
                yield ProxyPlace(inbound=port, clients=_clients(rule.matchers)), rule.combined.conf
        found = rules.inbound(index)
        if found.for_all is not None:
            yield ProxyPlace(inbound=port), found.for_all.conf
        for some in found.with_matches:
            yield ProxyPlace(inbound=port, clients=str(dict(some.match or {}))), some.combined.conf


def _whole(rules: PolicyRules) -> Iterator[tuple[ProxyPlace, MergedConf]]:
    if rules.proxy is not None:
        yield ProxyPlace(), rules.proxy.conf


def _clients(matchers: tuple[TagCondition, ...]) -> str:
    return ", ".join(f"{one.key}{'≠' if one.is_not else '='}{one.value}" for one in matchers) or "all"


def _called(destination: Destination) -> str:
    if destination.identity is None:
        return destination.service
    port = f":{destination.identity.section}" if destination.identity.section else ""
    return f"{destination.identity.type} {destination.identity.name}{port}"

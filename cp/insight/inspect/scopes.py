"""The scopes of a proxy, and the effective conf of one kind of policy in each."""

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
class ConfScope:
    """What an effective conf is for: a destination, routes to it, an inbound and some of its clients, or the proxy.

    On a builtin gateway it is a listener, or routes on it.
    """

    destination: Destination | None = None
    listener_port: int | None = None
    """The port of a gateway's listener."""

    contributors: tuple[Identity, ...] = ()
    """The routes that contribute to one rule of the route table, the strongest first; empty for all of the table."""

    inbound_port: int | None = None
    inbound_index: int | None = None
    """The place of the inbound in its Dataplane: several may have one port, of which the first is served."""

    clients: str = ""

    @property
    def is_whole_proxy(self) -> bool:
        """Whether it is the whole proxy."""
        return self.destination is None and self.listener_port is None and self.inbound_port is None

    def __str__(self) -> str:
        if self.destination is not None:
            return f"to {_destination_name(self.destination)}{self._by}"
        if self.listener_port is not None:
            return f"on listener {self.listener_port}{self._by}"
        if self.inbound_port is not None:
            return f"on inbound {self.inbound_port}" + (f" from {self.clients}" if self.clients else "")
        return "on the proxy"

    @property
    def _by(self) -> str:
        names = [f"{route.type} {route.name}" for route in self.contributors]
        return f" by {' with '.join(names)}" if names else ""


def confs_by_scope(world: World, dataplane: Resource, kind: Kind) -> Iterator[tuple[ConfScope, MergedConf]]:
    """The effective conf of a kind of policy in each scope of a proxy. Scopes without a conf are left out."""
    matches = match(world, dataplane)
    if kind.name not in matches:
        return
    rules = build(world, matches[kind.name], kind)
    tables = [
        build(world, matches[route_kind], world.kinds[route_kind])
        for route_kind in _ROUTES
        if route_kind in matches and not is_route(kind)
    ]
    gateway = gateway_of(world, dataplane)
    calls = (
        _destination_confs(world, dataplane, rules, tables)
        if gateway is None
        else _gateway_confs(gateway, rules, tables)
    )
    scoped_confs = (*(calls if rules.shape.to else ()), *_inbound_confs(dataplane, rules), *_proxy_confs(rules))
    yield from ((scope, merged) for scope, merged in scoped_confs if merged is not NOTHING)


def is_route(kind: Kind) -> bool:
    """Whether a kind of policy makes the rules of route tables, instead of confs that hold for these rules."""
    return kind.name in _ROUTES


def _destination_confs(
    world: World, dataplane: Resource, rules: PolicyRules, tables: list[PolicyRules]
) -> Iterator[tuple[ConfScope, MergedConf]]:
    for destination in dict.fromkeys(address.destination for address in outbounds(world, dataplane)):
        yield ConfScope(destination), effective(rules, destination)
        route_rules = (rule for table in tables for rule in routes(table, destination) or ())
        for contributors, matches in sorted({(rule.contributors, rule.hash) for rule in route_rules}):
            yield (
                ConfScope(destination, contributors=contributors),
                effective(rules, destination, contributors, matches),
            )


def _gateway_confs(
    gateway: Resource, rules: PolicyRules, tables: list[PolicyRules]
) -> Iterator[tuple[ConfScope, MergedConf]]:
    for index, listener in enumerate(listeners(gateway)):
        port, listener_rules = listener.get("port"), rules.at_listeners([index])
        yield ConfScope(listener_port=port), at_gateway(listener_rules)
        route_rules = (rule for table in tables for _, rule in gateway_routes(table.at_listeners([index])))
        for contributors, matches in sorted({(rule.contributors, rule.hash) for rule in route_rules}):
            yield (
                ConfScope(listener_port=port, contributors=contributors),
                at_gateway(listener_rules, contributors, matches),
            )


def _inbound_confs(dataplane: Resource, rules: PolicyRules) -> Iterator[tuple[ConfScope, MergedConf]]:
    for index, section in enumerate(sections(dataplane)):
        port = section.get("port")
        if not rules.shape.from_as_rules:
            for rule in rules.from_(index).rules:
                yield (
                    ConfScope(inbound_port=port, inbound_index=index, clients=_clients(rule.matchers)),
                    rule.combined.conf,
                )
        inbound_rules = rules.inbound(index)
        if rules.shape.side_by_side:
            yield from (
                (ConfScope(inbound_port=port, inbound_index=index), rule.combined.conf) for rule in inbound_rules.rules
            )
            continue
        if inbound_rules.for_all is not None:
            yield ConfScope(inbound_port=port, inbound_index=index), inbound_rules.for_all.conf
        for client_rule in inbound_rules.with_matches:
            yield (
                ConfScope(inbound_port=port, inbound_index=index, clients=str(dict(client_rule.match or {}))),
                client_rule.combined.conf,
            )


def _proxy_confs(rules: PolicyRules) -> Iterator[tuple[ConfScope, MergedConf]]:
    if rules.proxy is not None:
        yield ConfScope(), rules.proxy.conf


def _clients(matchers: tuple[TagCondition, ...]) -> str:
    return (
        ", ".join(f"{condition.key}{'≠' if condition.is_not else '='}{condition.value}" for condition in matchers)
        or "all"
    )


def _destination_name(destination: Destination) -> str:
    if destination.identity is None:
        return destination.service
    port = f":{destination.identity.section}" if destination.identity.section else ""
    return f"{destination.identity.type} {destination.identity.name}{port}"

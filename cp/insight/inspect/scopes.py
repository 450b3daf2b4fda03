"""The scopes of a proxy, and the effective conf of one kind of policy in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cp.insight.gateways import GatewayPart, gateway_parts
from cp.model.hosts import ANY_HOST, common
from cp.model.names import Destination, Identity
from cp.resources.kinds import Kind
from cp.resources.resource import Resource
from cp.resources.targets import ROUTE_KINDS
from cp.resources.world import World
from cp.rules import CombinedConf, PolicyRules, TagCondition, build, effective, routes
from cp.rules.matching import match
from cp.rules.matching.profile import sections
from cp.rules.merging import NOTHING, MergedConf
from cp.translate.gateway import GatewayResult, HostResult
from cp.translate.view.proxies import outbounds


@dataclass(frozen=True, slots=True)
class ConfScope:
    """What an effective conf is for: a destination, routes to it, an inbound and some of its clients, or the proxy.

    On a builtin gateway it is a listener, or routes on it.
    """

    destination: Destination | None = None
    mark: str = ""
    """What the name of its cluster ends with, if only some listeners of a gateway lead to that."""

    listener_port: int | None = None
    """The port of a gateway's listener."""

    hostname: str = ANY_HOST
    """The hostnames of the listener that it is about."""

    backend: Destination | None = None
    """The one service to which the routes of a gateway lead."""

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
            cluster = f" (cluster …{self.mark})" if self.mark else ""
            return f"to {_destination_name(self.destination)}{cluster}{self._by}"
        if self.listener_port is not None:
            return f"on listener {self.listener_port}{self._for}{self._by}{self._leading_to}"
        if self.inbound_port is not None:
            return f"on inbound {self.inbound_port}" + (f" from {self.clients}" if self.clients else "")
        return "on the proxy"

    @property
    def _for(self) -> str:
        host = "" if self.hostname == ANY_HOST else f" for {self.hostname}"
        return f"{host} from {self.clients}" if self.clients else host

    @property
    def _leading_to(self) -> str:
        return "" if self.backend is None else f" to {_destination_name(self.backend)}"

    @property
    def _by(self) -> str:
        names = [f"{route.type} {route.name}" for route in self.contributors]
        return f" by {' with '.join(names)}" if names else ""


def confs_by_scope(
    world: World, dataplane: Resource, kind: Kind, gateway: GatewayResult | None = None
) -> Iterator[tuple[ConfScope, MergedConf]]:
    """The effective conf of a kind of policy in each scope of a proxy. Scopes without a conf are left out.

    `gateway` is what a builtin gateway is served.
    """
    matches = match(world, dataplane)
    if kind.name not in matches:
        return
    rules = build(world, matches[kind.name], kind)
    tables = [
        build(world, matches[route_kind], world.kinds[route_kind])
        for route_kind in ROUTE_KINDS
        if route_kind in matches and not is_route(kind)
    ]
    calls = _destination_confs(world, dataplane, rules, tables) if rules.shape.to else ()
    if dataplane.spec.is_builtin_gateway:
        calls = () if gateway is None else _gateway_confs(gateway, rules)
    scoped_confs = (*calls, *_inbound_confs(dataplane, rules), *_proxy_confs(rules))
    yield from ((scope, merged) for scope, merged in scoped_confs if merged is not NOTHING)


def is_route(kind: Kind) -> bool:
    """Whether a kind of policy makes the rules of route tables, instead of confs that hold for these rules."""
    return kind.name in ROUTE_KINDS


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


def _gateway_confs(gateway: GatewayResult, rules: PolicyRules) -> Iterator[tuple[ConfScope, MergedConf]]:
    if is_route(rules.kind):
        yield from _gateway_tables(gateway, rules.kind)
        return
    confs: dict[ConfScope, MergedConf] = {}
    for part in gateway_parts(gateway):
        is_about = (rules.shape.from_ or rules.shape.rules) if part.is_of_clients else rules.shape.to
        if is_about:
            confs.setdefault(part_scope(part), part.effective.get(rules.kind.name, NOTHING))
    yield from confs.items()


def part_scope(part: GatewayPart) -> ConfScope:
    """The scope of what holds for a part of a gateway."""
    contributors = () if part.rule is None else part.rule.contributors
    clients = _clients(()) if part.is_of_clients else ""
    return ConfScope(
        listener_port=part.port.port,
        hostname=part.hostname,
        backend=part.service,
        contributors=contributors,
        clients=clients,
    )


def _gateway_tables(gateway: GatewayResult, kind: Kind) -> Iterator[tuple[ConfScope, MergedConf]]:
    """The routes for each pattern of hostnames at each listener."""
    tables = {
        (host.port.port, host.listener.hostname, level): ConfScope(
            listener_port=host.port.port,
            hostname=common(host.listener.hostname, level_hostname(level)) or host.hostname,
        )
        for host in gateway.hosts.values()
        for level in levels_of_kind(host, kind)
    }
    yield from ((scope, level.conf) for (_, _, level), scope in tables.items())


def levels_of_kind(host: HostResult, kind: Kind) -> Iterator[CombinedConf]:
    """The routes of a hostname, pattern by pattern, if they are of a kind."""
    return (level for level in host.basis.routes.levels if level.items[0].policy.type == kind.name)


def level_hostname(level: CombinedConf) -> str:
    """The pattern of hostnames that some routes are for."""
    hostnames = level.conf.value.get("hostnames") or (ANY_HOST,)
    return str(hostnames[0])


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
        for client_rule in inbound_rules.for_some:
            yield (
                ConfScope(inbound_port=port, inbound_index=index, clients=str(dict(client_rule.match))),
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

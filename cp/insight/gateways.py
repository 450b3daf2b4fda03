"""What holds at a builtin gateway, part by part: read from what is served, and never worked out a second time.

A listener has what holds for all requests that come by it. Some routes have more, and so have the clients themselves.
What holds for the clusters of services is the business of `cp.insight.parts`, as for every proxy (record 0069).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cp.insight.effects import Build, built, confs_of
from cp.model.checkpoint import pass_checkpoint
from cp.model.names import Destination
from cp.policies import Policy
from cp.rules import CombinedConf, RouteRule, by_specificity
from cp.rules.merging import Conf
from cp.rules.routes import routes_of
from cp.translate.effective import Effective, has_hook
from cp.translate.fragments import Task
from cp.translate.gateway import ChainResult, GatewayResult, HostResult, chain_key
from cp.translate.view.backends import cluster_of, reached
from cp.translate.view.gateways import ServedListener, ServedPort
from generators.drafts import Site
from generators.proxy import CATCH_ALL, GatewayChain, GatewayHost, Protocol, Route

CALL_HOOKS: Final = ("listener", "route", "routes_with_own_confs")
"""The hooks of policies that write into listeners and their routes."""

_ROUTE: Final = "route"


@dataclass(frozen=True, slots=True)
class GatewayPart:
    """A part of a gateway for which something holds: a listener, some routes on it, or its clients."""

    port: ServedPort
    hostname: str
    """The pattern of hostnames of the listener; `*` for the clients of a port whose listeners they all share."""

    effective: Effective
    chain: ChainResult
    host: HostResult | None = None
    """A hostname of the listener; None for its clients."""

    row: Route | None = None
    """A row of the routes; None for a whole listener and for its clients."""

    rule: RouteRule | None = None
    """The rule of that row."""

    service: Destination | None = None
    """The one service to which the routes lead; None where they lead to several."""

    @property
    def protocol(self) -> Protocol:
        return spoken_at(self.port, self.row)

    @property
    def is_of_clients(self) -> bool:
        return self.host is None


def spoken_at(port: ServedPort, row: Route | None) -> Protocol:
    """What is spoken at a port or, where it is a kind of HTTP that services behind a row speak, that."""
    if not port.is_http:
        return Protocol.TCP
    spoken = None if row is None else row.protocol
    return spoken if spoken is not None and spoken.is_http else Protocol.HTTP


def gateway_parts(gateway: GatewayResult) -> Iterator[GatewayPart]:
    """Every part of a gateway, port by port. Routes of which the same holds at one listener are one part."""
    by_listener = gateway.hosts_by_listener()
    for port in gateway.served.ports:
        yield from _clients(gateway, port)
        for listener in port.listeners:
            hosts = by_listener.get(listener.index)
            chain = chain_of(gateway, port, listener)
            if chain is not None and hosts:
                host = next(filter(_leads_somewhere, hosts), hosts[0])
                yield GatewayPart(port, listener.hostname, host.effective, chain, host)
                yield from _routes(port, listener, chain, hosts)


def _leads_somewhere(host: HostResult) -> bool:
    return any(row.splits or row.filters for row in host.routes)


def _clients(gateway: GatewayResult, port: ServedPort) -> Iterator[GatewayPart]:
    for key in dict.fromkeys(chain_key(port, listener) for listener in port.listeners):
        if (chain := gateway.chains.get(key)) is not None:
            yield GatewayPart(port, key.hostname, chain.entrance, chain)


def _routes(
    port: ServedPort, listener: ServedListener, chain: ChainResult, hosts: Iterable[HostResult]
) -> Iterator[GatewayPart]:
    seen: set[object] = set()
    for host in hosts:
        services = services_of(host)
        for row in host.routes:
            pass_checkpoint()
            rule = host.route_rules.get(row.owner)
            service = service_of_row(row, services)
            key = None if rule is None else (rule.contributors, rule.hash, service)
            if rule is not None and key not in seen:
                seen.add(key)
                effective = host.of_routes.get(row.owner, host.effective)
                yield GatewayPart(port, listener.hostname, effective, chain, host, row, rule, service)


def chain_of(gateway: GatewayResult, port: ServedPort, listener: ServedListener) -> ChainResult | None:
    """What takes the connections to a listener."""
    return gateway.chains.get(chain_key(port, listener))


def services_of(host: HostResult) -> Mapping[str, Destination]:
    """The services to which the rows of a hostname lead, by cluster."""
    return {cluster_of(key): reached(key) for key in host.uses}


def service_of_row(row: Route, services: Mapping[str, Destination]) -> Destination | None:
    """The service to which all requests of a row go that go anywhere; None where they go to several or to none."""
    clusters = dict.fromkeys(split.cluster for split in row.splits if not split.missing)
    return services.get(next(iter(clusters))) if len(clusters) == 1 else None


def served_rules(host: HostResult) -> Iterator[tuple[Mapping[str, Any], RouteRule, CombinedConf]]:
    """The match, the rule and the level behind each row of a hostname: level by level, until one takes everything."""
    rows = iter(host.routes)
    for level in host.basis.routes.levels:
        for match, rule in by_specificity(routes_of(level.conf)):
            yield match, rule, level
            row = next(rows, None)
            if row is None or row.match == CATCH_ALL:
                return


def can_act(policy: Policy[Any], part: GatewayPart) -> bool:
    """Whether a policy writes into such a part at all."""
    if part.is_of_clients:
        return has_hook(policy, "entrance")
    return has_hook(policy, *CALL_HOOKS)


def build_of(policy: Policy[Any], part: GatewayPart) -> Build:
    """What a policy builds of a part of a gateway when it has some conf there."""
    if part.is_of_clients:
        return lambda conf: of_clients(policy, part.chain, conf)
    return lambda conf: [*of_rows(policy, part, conf), *of_chain(policy, part, conf)]


def of_clients(policy: Policy[Any], chain: ChainResult, conf: Conf) -> list[bytes]:
    """What a policy builds of a chain when it has some conf for the clients."""
    return built(replace(chain.task, confs=(), routes=(), downstream=confs_of(policy, conf)), policy)


def of_rows(policy: Policy[Any], part: GatewayPart, conf: Conf) -> list[bytes]:
    """What a policy builds of the rows of a hostname, or of one row that has a conf of its own."""
    site = None if part.host is None else part.host.task.site
    if part.host is None or not isinstance(site, GatewayHost):
        return []
    if part.row is None:
        return built(Task(site, confs_of(policy, conf)), policy)
    has_own = _has_own(part.host.task, part.row, policy)
    return built(_with_one_row(replace(site, routes=(_only(part.row),)), policy, conf, has_own=has_own), policy)


def of_chain(policy: Policy[Any], part: GatewayPart, conf: Conf) -> list[bytes]:
    """What a policy builds of a chain without its rows."""
    task, site = part.chain.task, part.chain.task.site
    if not isinstance(site, GatewayChain):
        return []
    if part.row is None or not part.port.is_http:
        return built(Task(site, confs_of(policy, conf)), policy)
    has_own = _has_own(task, part.row, policy)
    return built(_with_one_row(replace(site, routes=(_only(part.row),)), policy, conf, has_own=has_own), policy)


def _with_one_row(site: Site, policy: Policy[Any], conf: Conf, *, has_own: bool) -> Task:
    """The task for a row, to which a conf belongs alone if the row has its own, and else with all others."""
    confs = confs_of(policy, conf)
    return Task(site, (), ((_ROUTE, confs),)) if has_own else Task(site, confs)


def _has_own(task: Task, row: Route, policy: Policy[Any]) -> bool:
    own = dict(task.routes).get(row.owner, ())
    return any(kind == policy.kind.name for kind, _ in own)


def _only(row: Route) -> Route:
    """A row under a name of its own. What requests it takes makes no difference to what holds for them."""
    return replace(row, name=_ROUTE, owner=_ROUTE, match=CATCH_ALL)

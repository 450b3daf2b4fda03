"""One hostname of a port: the rows of its routes, what holds for each of them, and the virtual host that they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain as chained
from typing import TypeAlias

from cp.model.checkpoint import pass_checkpoint
from cp.model.dependency import Name
from cp.model.names import Destination
from cp.rules import CombinedConf, RouteRule
from cp.rules.routes import routes_of
from cp.translate.dependencies import names_in, names_of
from cp.translate.effective import CalledService, Effective, at_listener
from cp.translate.fragments import NO_FRAGMENT, NO_TASK, Confs, Task
from cp.translate.gateway.listener_rules import RulesOfListeners
from cp.translate.gateway.proxy import GatewayProxy
from cp.translate.gateway.results import HostBasis, HostResult
from cp.translate.view.backends import GatewayBackends
from cp.translate.view.gateways import ServedListener, ServedPort
from cp.translate.view.services import outside_of, protocol_of
from generators.proxy import CATCH_ALL, GatewayHost, Outbound, Protocol, Route

_Row: TypeAlias = tuple[Route, RouteRule | None]
"""A row of a route table, with the rule of the route resource that it is for; None for what no route takes."""


@dataclass(frozen=True, slots=True)
class HostBuilder:
    """Works out one hostname."""

    proxy: GatewayProxy
    rules: RulesOfListeners
    port: ServedPort
    listener: ServedListener
    basis: HostBasis

    def result(self) -> HostResult:
        proxy = self.proxy
        backends = GatewayBackends(proxy.world, proxy.mesh, proxy.caller.withheld, self.basis.mark)
        rows = [(self._marked(row, backends), row, rule) for row, rule in self._rows(backends)]
        effective, confs = self.rules.of_calls(self.rules.of(self.listener))
        of_routes = {
            served.owner: effective if rule is None else self._of_route(row, rule, backends)
            for served, row, rule in rows
            if served.owner
        }
        routes = tuple(served for served, _, _ in rows)
        own_confs = tuple(self._own_confs(of_routes, confs))
        is_http = self.port.is_http
        task = Task(host_site(self.port, self.basis, routes), confs, own_confs) if is_http else NO_TASK
        size = self.proxy.fragments.take(self.proxy.room, task)
        all_confs = chained(confs, *(of_row for _, of_row in own_confs))
        return HostResult(
            port=self.port,
            listener=self.listener,
            hostname=self.basis.routes.hostname,
            table=self.basis.table,
            routes=routes,
            effective=effective,
            of_routes=of_routes,
            route_rules={served.owner: rule for served, _, rule in rows if rule is not None},
            confs=confs,
            own_confs=own_confs,
            filters=self.proxy.policies.switched_filters(all_confs) if is_http else {},
            task=task,
            fragment=self.proxy.fragments.get(task) if is_http else NO_FRAGMENT,
            uses=tuple(backends.keys),
            depends_on=names_in(effective, *of_routes.values()).union(
                backends.names_referred_to, *map(names_of, backends.used), _names_of(rule for _, _, rule in rows)
            ),
            basis=self.basis,
            size=size,
        )

    def _rows(self, backends: GatewayBackends) -> Iterator[_Row]:
        """The rows of all levels, the narrowest pattern first, and at the end one for what no route takes."""
        protocol = Protocol.HTTP if self.port.is_http else Protocol.TCP
        for level in self.basis.routes.levels:
            for row in self._level(level, protocol, backends):
                pass_checkpoint()
                yield row, backends.route_rules[row.owner]
                if row.match == CATCH_ALL:
                    return
        yield backends.unmatched(), None

    def _level(self, level: CombinedConf, protocol: Protocol, backends: GatewayBackends) -> Iterator[Route]:
        outbound = Outbound("", "", "", self.port.port, protocol)
        for policy in self.proxy.policies.of_routes.values():
            if protocol in policy.gateway_protocols:
                outbound = policy.shape(routes_of(level.conf), outbound, backends)
        return (row for row in outbound.routes if row.owner)

    def _marked(self, row: Route, backends: GatewayBackends) -> Route:
        """A row as it is served: with what its backends speak, and with its listener where listeners have own confs."""
        world, mesh = self.proxy.world, self.proxy.mesh
        spoken = {protocol_of(world, mesh, destination) for destination in backends.destinations(row)}
        row = replace(row, protocol=spoken.pop() if len(spoken) == 1 else None)
        mark = self.basis.row_mark
        return replace(row, name=f"{row.name}{mark}", owner=f"{row.owner or row.name}{mark}") if mark else row

    def _of_route(self, row: Route, rule: RouteRule, backends: GatewayBackends) -> Effective:
        """What holds for a route. One that leads to a single service has what holds for that service under it."""
        services = backends.destinations(row)
        service = self._called(services[0]) if len(services) == 1 else None
        of_calls = self.rules.of(self.listener).of_calls
        return at_listener(self.proxy.policies.defaults, of_calls, service, rule.contributors)

    def _called(self, destination: Destination) -> CalledService:
        world, mesh, withheld = self.proxy.world, self.proxy.mesh, self.proxy.caller.withheld
        is_outside = outside_of(world, mesh, destination, withheld) is not None
        return CalledService(destination, protocol_of(world, mesh, destination), is_outside)

    def _own_confs(self, of_routes: Mapping[str, Effective], confs: Confs) -> Iterator[tuple[str, Confs]]:
        """Those of the routes' confs that differ from what holds for all of them."""
        for owner, effective in sorted(of_routes.items()):
            of_route = self.proxy.confs(self.proxy.policies.host_writers, effective)
            own = tuple(conf for conf in of_route if conf not in confs)
            if own:
                yield owner, own


def host_site(port: ServedPort, basis: HostBasis, routes: tuple[Route, ...]) -> GatewayHost:
    """What the virtual host of a hostname is built from."""
    return GatewayHost(
        table=basis.table,
        hostname=basis.routes.hostname,
        routes=routes,
        service=basis.service,
        sidecar=basis.sidecar,
        port=port.port,
        is_https=port.protocol == "HTTPS",
    )


def _names_of(rules: Iterable[RouteRule | None]) -> set[Name]:
    return {(route.type, route.name) for rule in rules if rule is not None for route in rule.contributors}

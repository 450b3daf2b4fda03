"""Every decision about the calls of a class of proxies, about an inbound, and about a proxy as a whole.

It also finds the items of routes that decide nothing, because no table of their kind is in force.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cp.insight.enforcement import only_with_mtls
from cp.insight.lint.any_decision import AnyDecision
from cp.insight.lint.decisions import (
    AdmissionDecision,
    ClientDecision,
    ConfDecision,
    DestinationDecision,
    RouteTableDecision,
)
from cp.insight.parts import DestinationParts
from cp.model.canonical import canonical_json
from cp.model.names import Destination
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE, ROUTE_KINDS, TCP_ROUTE
from cp.resources.world import World
from cp.rules import CombinedConf, InboundRules, PolicyItem, PolicyRules, levels, of_service
from cp.rules.merging import NOTHING, MergedConf, Origin
from cp.rules.routes import routes_of
from cp.translate.effective import Effective, Rules
from cp.translate.fragments import FragmentCache
from cp.translate.inbound import InboundResult
from cp.translate.outbound import OutboundResult
from cp.translate.proxy_class import ProxyClass
from cp.translate.view.services import protocol_of
from generators.proxy import Protocol

PASSTHROUGH: Final = "MeshPassthrough"

Defaults = Mapping[str, MergedConf]


@dataclass(frozen=True, slots=True)
class BlockedItem:
    """An item of a route that decides nothing for a destination."""

    item: PolicyItem
    destination: Destination
    by: tuple[Origin, ...] = ()
    """The routes that count instead; none if the destination does not speak HTTP."""


@dataclass(frozen=True, slots=True)
class ClassOutbounds:
    """What a class of proxies calls, with the rules for its outbounds."""

    world: World
    mesh: str
    rules: Rules
    proxy_class: ProxyClass
    defaults: Defaults
    parts: tuple[DestinationParts, ...]

    @property
    def callable_outbounds(self) -> Iterator[OutboundResult]:
        """The outbounds that can be called: a gRPC client calls only services that understand gRPC."""
        results = self.proxy_class.outbounds.values()
        return (result for result in results if result.outbound.names or not self.proxy_class.caller.is_grpc)

    def decisions(self) -> Iterator[AnyDecision]:
        """Over each route table, and of each kind of policy for each destination and each route to it."""
        for result in self.callable_outbounds:
            yield from self._tables(result)
        for parts in self.parts:
            yield from self._of_whole(parts) if parts.is_whole else self._of_part(parts)

    def of_destinations(self) -> Iterator[DestinationDecision]:
        """Every destination with one kind of policy, whichever parts of it are served."""
        for parts in self.parts:
            yield from self._of_part(parts)

    def blocked(self) -> Iterator[BlockedItem]:
        for result in self.callable_outbounds:
            destination, is_http = result.address.destination, self.in_force(result) == HTTP_ROUTE
            by = self._in_place_of_others(result) if is_http else ()
            kind = TCP_ROUTE if is_http else HTTP_ROUTE
            route_conf = self._route_conf(kind, destination)
            if route_conf is not None:
                yield from (BlockedItem(item, destination, by) for item in route_conf.items)

    def _in_place_of_others(self, result: OutboundResult) -> tuple[Origin, ...]:
        """The MeshHTTPRoutes for a destination, those without rules as well, which have no row."""
        owners = tuple(rule.origin for rule in result.route_rules.values())
        route_conf = self._route_conf(HTTP_ROUTE, result.address.destination)
        return owners or (() if route_conf is None else route_conf.origins)

    def in_force(self, result: OutboundResult) -> str | None:
        """The kind of routes that decides the route table of a destination; None if it has none."""
        destination = result.address.destination
        speaks_http = protocol_of(self.world, self.mesh, destination).is_http
        for kind in ROUTE_KINDS if speaks_http else (TCP_ROUTE,):
            if self._route_conf(kind, destination) is not None:
                return kind
        return None

    def _of_whole(self, parts: DestinationParts) -> Iterator[ConfDecision]:
        for of_kind in self._policies():
            for result in parts.outbounds:
                yield from self._of_service(of_kind, parts.destination, result.effective)
                yield from self._of_routes(of_kind, result).values()
            if not parts.outbounds and parts.backend is not None:
                yield from self._of_service(of_kind, parts.destination, parts.backend.effective)

    def _of_part(self, parts: DestinationParts) -> Iterator[DestinationDecision]:
        held = parts.outbounds[0].effective if parts.backend is None else parts.backend.effective
        for of_kind in self._policies():
            of_routes = {
                name: decision
                for result in parts.outbounds
                for name, decision in self._of_routes(of_kind, result).items()
            }
            for decision in self._of_service(of_kind, parts.destination, held, also_silent=bool(of_routes)):
                yield DestinationDecision(parts, decision, of_routes)

    def _of_service(
        self, of_kind: PolicyRules, destination: Destination, held: Effective, *, also_silent: bool = False
    ) -> Iterator[ConfDecision]:
        protocol = protocol_of(self.world, self.mesh, destination)
        of_levels = levels(of_kind, destination)
        if of_levels or also_silent:
            yield self._decision(of_kind, of_levels, held, protocol, destination)

    def _of_routes(self, of_kind: PolicyRules, result: OutboundResult) -> Mapping[str, ConfDecision]:
        """The decisions about the routes of an outbound, by the names that the outbound has for them."""
        destination, protocol = result.address.destination, result.outbound.protocol
        by_name = {
            name: levels(of_kind, destination, rule.contributors, rule.hash)
            for name, rule in result.route_rules.items()
        }
        return {
            name: self._decision(of_kind, of_levels, result.of_routes[name], protocol, destination)
            for name, of_levels in by_name.items()
            if of_levels
        }

    def _policies(self) -> Iterator[PolicyRules]:
        return (of_kind for kind, of_kind in self.rules.items() if of_kind.shape.to and kind not in ROUTE_KINDS)

    def _decision(
        self,
        of_kind: PolicyRules,
        of_levels: tuple[CombinedConf, ...],
        held: Effective,
        protocol: Protocol,
        destination: Destination,
    ) -> ConfDecision:
        kind = of_kind.kind
        default = self.defaults.get(kind.name)
        return ConfDecision(kind, of_levels, held.get(kind.name, NOTHING), default, protocol, destination)

    def _tables(self, result: OutboundResult) -> Iterator[RouteTableDecision]:
        kind, destination = self.in_force(result), result.address.destination
        route_conf = None if kind is None else self._route_conf(kind, destination)
        if kind is not None and route_conf is not None:
            hides = kind == HTTP_ROUTE and self._route_conf(TCP_ROUTE, destination) is not None
            rules = routes_of(route_conf.conf)
            yield RouteTableDecision(self.rules[kind].kind, route_conf, rules, destination, hides_others=hides)

    def _route_conf(self, kind: str, destination: Destination) -> CombinedConf | None:
        """The conf of the routes of a kind for a destination; None if there are none."""
        return of_service(self.rules[kind], destination) if kind in self.rules else None


@dataclass(frozen=True, slots=True)
class ProxyInbound:
    """An inbound of a proxy, with the rules that are for the proxy."""

    world: World
    rules: Rules
    dataplane: Resource
    index: int
    """Its place in the Dataplane."""

    reached: InboundResult
    fragments: FragmentCache

    @property
    def takes_tls(self) -> bool:
        return self.reached.inbound.tls is not None

    @property
    def has_failed(self) -> bool:
        return self.reached.fragment.failure is not None

    @property
    def key(self) -> Hashable:
        """Inbounds with equal keys have equal decisions."""
        return id(self.rules), self.index, self.reached.inbound.protocol, self.takes_tls

    def decisions(self, defaults: Defaults) -> Iterator[AnyDecision]:
        """Over all of its clients, and over some of them."""
        for kind, of_kind in self.rules.items():
            if of_kind.shape.side_by_side and self.takes_tls:
                yield AdmissionDecision(
                    self.world, self.dataplane.mesh, of_kind, self.index, self.reached, self.fragments
                )
            elif not of_kind.shape.single and not of_kind.shape.side_by_side:
                yield from self._of_kind(of_kind, defaults.get(kind))

    def _of_kind(self, of_kind: PolicyRules, default: MergedConf | None) -> Iterator[ConfDecision | ClientDecision]:
        kind, protocol = of_kind.kind, self.reached.inbound.protocol
        inbound_rules = of_kind.inbound(self.index)
        combined = inbound_rules.for_all
        if combined is not None and self._reaches(combined):
            held = self.reached.effective.get(kind.name, combined.conf)
            yield ConfDecision(kind, (combined,), held, default, protocol)
        if of_kind.shape.from_ and not of_kind.shape.from_as_rules:
            for rule in of_kind.from_(self.index).rules:
                yield ConfDecision(kind, (rule.combined,), rule.combined.conf, None, protocol)
        if of_kind.shape.fields_of_clients:
            yield from self._of_some(of_kind, inbound_rules, default) if self.takes_tls else ()
            return
        by_match = (confs for confs in _by_match(inbound_rules) if self._reaches(*confs))
        yield from (ClientDecision(kind, confs, protocol) for confs in by_match)

    def _of_some(
        self, of_kind: PolicyRules, inbound_rules: InboundRules, default: MergedConf | None
    ) -> Iterator[ConfDecision]:
        """What rules come to that are merged for each set of clients."""
        for combined in (clients_conf.combined for clients_conf in inbound_rules.for_some):
            held = combined.conf if default is None else of_kind.lay((default, combined.conf))
            yield ConfDecision(of_kind.kind, (combined,), held, default, self.reached.inbound.protocol)

    def _reaches(self, *confs: CombinedConf) -> bool:
        """Whether rules do something here: some do only where TLS is spoken."""
        return self.takes_tls or not any(needs_mtls(item) for combined in confs for item in combined.items)


def needs_mtls(item: PolicyItem) -> bool:
    """Whether an item has an effect only on inbounds that take TLS."""
    return any(part.covers(item.origin.path) for part in item.policy.derived(only_with_mtls))


def _by_match(rules: InboundRules) -> Iterable[tuple[CombinedConf, ...]]:
    """The confs of each match of clients. Several rules for one match are not merged: the first one counts."""
    by_match: dict[bytes, list[CombinedConf]] = {}
    for rule in rules.for_some:
        by_match.setdefault(canonical_json(rule.match), []).append(rule.combined)
    return map(tuple, by_match.values())


def of_proxy(rules: Rules, *, is_redirected: bool) -> Iterator[ConfDecision]:
    """The decisions about a proxy as a whole. Calls pass through it only if its machine redirects them."""
    for kind, of_kind in rules.items():
        if of_kind.shape.single and (combined := of_kind.proxy) is not None and (is_redirected or kind != PASSTHROUGH):
            yield ConfDecision(of_kind.kind, (combined,), combined.conf)

"""Every site of a class of proxies, and the items of routes that decide nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cp.insight.lint.sites import AnySite, ClientSite, PartSite, PolicySite, RouteTableSite
from cp.insight.parts import DestinationParts
from cp.model.canonical import canonical_json
from cp.model.names import Destination
from cp.resources.world import World
from cp.rules import CombinedConf, InboundRules, PolicyItem, PolicyRules, levels, of_service, routes
from cp.rules.merging import NOTHING, MergedConf, Origin
from cp.translate.effective import Effective, Rules
from cp.translate.inbound import InboundResult
from cp.translate.outbound import OutboundResult
from cp.translate.proxy_class import ProxyClass
from cp.translate.view.services import protocol_of
from generators.proxy import Protocol

HTTP_ROUTE: Final = "MeshHTTPRoute"
TCP_ROUTE: Final = "MeshTCPRoute"
ROUTES: Final = (HTTP_ROUTE, TCP_ROUTE)
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

    def sites(self) -> Iterator[AnySite]:
        for result in self.callable_outbounds:
            yield from self._tables(result)
        for parts in self.parts:
            yield from self._of_whole(parts) if parts.is_whole else self._of_part(parts)

    def of_destinations(self) -> Iterator[PartSite]:
        """Every destination with one kind of policy, whichever parts of it are served."""
        for parts in self.parts:
            yield from self._of_part(parts)

    def blocked(self) -> Iterator[BlockedItem]:
        for result in self.callable_outbounds:
            destination, is_http = result.address.destination, self.in_force(result) == HTTP_ROUTE
            by = self._in_place_of_others(result) if is_http else ()
            kind = TCP_ROUTE if is_http else HTTP_ROUTE
            for combined in self._candidates(kind, destination)[:1]:
                yield from (BlockedItem(item, destination, by) for item in combined.items)

    def _in_place_of_others(self, result: OutboundResult) -> tuple[Origin, ...]:
        """The MeshHTTPRoutes for a destination, those without rules as well, which have no row."""
        owners = tuple(rule.origin for rule in result.route_rules.values())
        candidates = self._candidates(HTTP_ROUTE, result.address.destination)
        return owners or tuple(origin for combined in candidates for origin in combined.origins)

    def in_force(self, result: OutboundResult) -> str | None:
        """The kind of routes that decides the route table of a destination; None if it has none."""
        destination = result.address.destination
        speaks_http = protocol_of(self.world, self.mesh, destination).is_http
        for kind in ROUTES if speaks_http else (TCP_ROUTE,):
            if kind in self.rules and routes(self.rules[kind], destination) is not None:
                return kind
        return None

    def _of_whole(self, parts: DestinationParts) -> Iterator[PolicySite]:
        for of_kind in self._policies():
            for result in parts.outbounds:
                yield from self._of_service(of_kind, parts.destination, result.effective)
                yield from self._of_routes(of_kind, result).values()
            if not parts.outbounds and parts.backend is not None:
                yield from self._of_service(of_kind, parts.destination, parts.backend.effective)

    def _of_part(self, parts: DestinationParts) -> Iterator[PartSite]:
        held = parts.outbounds[0].effective if parts.backend is None else parts.backend.effective
        for of_kind in self._policies():
            of_routes = {
                name: site for result in parts.outbounds for name, site in self._of_routes(of_kind, result).items()
            }
            for site in self._of_service(of_kind, parts.destination, held, also_silent=bool(of_routes)):
                yield PartSite(parts, site, of_routes)

    def _of_service(
        self, of_kind: PolicyRules, destination: Destination, held: Effective, *, also_silent: bool = False
    ) -> Iterator[PolicySite]:
        protocol = protocol_of(self.world, self.mesh, destination)
        of_levels = levels(of_kind, destination)
        if of_levels or also_silent:
            yield self._site(of_kind, of_levels, held, protocol, destination)

    def _of_routes(self, of_kind: PolicyRules, result: OutboundResult) -> Mapping[str, PolicySite]:
        """The sites of the routes of an outbound, by the owner of their rows."""
        destination, protocol = result.address.destination, result.outbound.protocol
        by_name = {
            name: levels(of_kind, destination, rule.contributors, rule.hash)
            for name, rule in result.route_rules.items()
        }
        return {
            name: self._site(of_kind, of_levels, result.of_routes[name], protocol, destination)
            for name, of_levels in by_name.items()
            if of_levels
        }

    def _policies(self) -> Iterator[PolicyRules]:
        return (of_kind for kind, of_kind in self.rules.items() if of_kind.shape.to and kind not in ROUTES)

    def _site(
        self,
        of_kind: PolicyRules,
        of_levels: tuple[CombinedConf, ...],
        held: Effective,
        protocol: Protocol,
        destination: Destination,
    ) -> PolicySite:
        kind = of_kind.kind
        default = self.defaults.get(kind.name)
        return PolicySite(kind, of_levels, held.get(kind.name, NOTHING), default, protocol, destination)

    def _tables(self, result: OutboundResult) -> Iterator[RouteTableSite]:
        kind, destination = self.in_force(result), result.address.destination
        if kind is not None:
            candidates = self._candidates(kind, destination)
            rules = routes(self.rules[kind], destination) or ()
            hides = kind == HTTP_ROUTE and bool(self._candidates(TCP_ROUTE, destination))
            yield RouteTableSite(self.rules[kind].kind, candidates, rules, destination, hides_others=hides)

    def _candidates(self, kind: str, destination: Destination) -> tuple[CombinedConf, ...]:
        """The combined conf of the routes of a kind for a destination; empty if there are none."""
        combined = of_service(self.rules[kind], destination) if kind in self.rules else None
        return () if combined is None else (combined,)


def of_inbound(rules: Rules, index: int, reached: InboundResult, defaults: Defaults) -> Iterator[AnySite]:
    """The sites of an inbound: for all of its clients, and for some of them."""
    protocol = reached.inbound.protocol
    for kind, of_kind in rules.items():
        if of_kind.shape.single:
            continue
        combined = of_kind.inbound(index).for_all
        if combined is not None:
            yield PolicySite(of_kind.kind, (combined,), reached.effective[kind], defaults.get(kind), protocol)
        if of_kind.shape.from_ and not of_kind.shape.from_as_rules:
            for rule in of_kind.from_(index).rules:
                yield PolicySite(of_kind.kind, (rule.combined,), rule.combined.conf, None, protocol)
        yield from (ClientSite(of_kind.kind, rules_, protocol) for rules_ in _by_match(of_kind.inbound(index)))


def _by_match(rules: InboundRules) -> Iterable[tuple[CombinedConf, ...]]:
    """The confs of each match of clients. Several rules for one match are not merged: the first one counts."""
    by_match: dict[bytes, list[CombinedConf]] = {}
    for rule in rules.with_matches:
        by_match.setdefault(canonical_json(rule.match), []).append(rule.combined)
    return map(tuple, by_match.values())


def of_proxy(rules: Rules, *, is_redirected: bool) -> Iterator[PolicySite]:
    """The sites of a proxy as a whole. Calls pass through it only if its machine redirects them."""
    for kind, of_kind in rules.items():
        if of_kind.shape.single and (combined := of_kind.proxy) is not None and (is_redirected or kind != PASSTHROUGH):
            yield PolicySite(of_kind.kind, (combined,), combined.conf)

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
from cp.translate.compiler import ProxyClass
from cp.translate.effective import Effective, Rules
from cp.translate.inbound import InboundResult
from cp.translate.outbound import OutboundResult
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
    """The routes that take its place; none where the destination does not speak HTTP."""


@dataclass(frozen=True, slots=True)
class ClassOutbounds:
    """What a class of proxies calls, with the rules of one of them."""

    world: World
    mesh: str
    rules: Rules
    bundle: ProxyClass
    defaults: Defaults
    parts: tuple[DestinationParts, ...]

    @property
    def entries(self) -> Iterator[OutboundResult]:
        """What can be called: a gRPC client knows only services that understand gRPC."""
        every = self.bundle.entries.values()
        return (entry for entry in every if entry.outbound.names or not self.bundle.caller.is_grpc)

    def sites(self) -> Iterator[AnySite]:
        for entry in self.entries:
            yield from self._tables(entry)
        for parts in self.parts:
            yield from self._of_whole(parts) if parts.is_whole else self._of_part(parts)

    def of_destinations(self) -> Iterator[PartSite]:
        """Every destination with one kind of policy, whichever parts of it are served."""
        for parts in self.parts:
            yield from self._of_part(parts)

    def blocked(self) -> Iterator[BlockedItem]:
        for entry in self.entries:
            destination, is_http = entry.listening.destination, self.in_force(entry) == HTTP_ROUTE
            by = self._in_place_of_others(entry) if is_http else ()
            kind = TCP_ROUTE if is_http else HTTP_ROUTE
            for combined in self._candidates(kind, destination)[:1]:
                yield from (BlockedItem(item, destination, by) for item in combined.items)

    def _in_place_of_others(self, entry: OutboundResult) -> tuple[Origin, ...]:
        """The routes of HTTP for a destination; one without rules has no row, and is there all the same."""
        owners = tuple(rule.origin for rule in entry.owners.values())
        candidates = self._candidates(HTTP_ROUTE, entry.listening.destination)
        return owners or tuple(origin for combined in candidates for origin in combined.origins)

    def in_force(self, entry: OutboundResult) -> str | None:
        """The kind of routes of which the table of a destination is made; None where it has none."""
        destination = entry.listening.destination
        speaks_http = protocol_of(self.world, self.mesh, destination).is_http
        for kind in ROUTES if speaks_http else (TCP_ROUTE,):
            if kind in self.rules and routes(self.rules[kind], destination) is not None:
                return kind
        return None

    def _of_whole(self, parts: DestinationParts) -> Iterator[PolicySite]:
        for of_kind in self._policies():
            for entry in parts.entries:
                yield from self._of_service(of_kind, parts.destination, entry.effective)
                yield from self._of_routes(of_kind, entry).values()
            if not parts.entries and parts.upstream is not None:
                yield from self._of_service(of_kind, parts.destination, parts.upstream.effective)

    def _of_part(self, parts: DestinationParts) -> Iterator[PartSite]:
        held = parts.entries[0].effective if parts.upstream is None else parts.upstream.effective
        for of_kind in self._policies():
            of_routes = {
                name: site for entry in parts.entries for name, site in self._of_routes(of_kind, entry).items()
            }
            for site in self._of_service(of_kind, parts.destination, held, also_silent=bool(of_routes)):
                yield PartSite(parts, site, of_routes)

    def _of_service(
        self, of_kind: PolicyRules, destination: Destination, held: Effective, *, also_silent: bool = False
    ) -> Iterator[PolicySite]:
        protocol = protocol_of(self.world, self.mesh, destination)
        found = levels(of_kind, destination)
        if found or also_silent:
            yield self._site(of_kind, found, held, protocol, destination)

    def _of_routes(self, of_kind: PolicyRules, entry: OutboundResult) -> Mapping[str, PolicySite]:
        """What is said of each of an outbound's routes, by `RouteRule.name`."""
        destination, protocol = entry.listening.destination, entry.outbound.protocol
        by_name = {
            name: levels(of_kind, destination, rule.contributors, rule.hash) for name, rule in entry.owners.items()
        }
        return {
            name: self._site(of_kind, found, entry.of_routes[name], protocol, destination)
            for name, found in by_name.items()
            if found
        }

    def _policies(self) -> Iterator[PolicyRules]:
        return (of_kind for kind, of_kind in self.rules.items() if of_kind.shape.to and kind not in ROUTES)

    def _site(
        self,
        of_kind: PolicyRules,
        found: tuple[CombinedConf, ...],
        held: Effective,
        protocol: Protocol,
        destination: Destination,
    ) -> PolicySite:
        kind = of_kind.kind
        default = self.defaults.get(kind.name)
        return PolicySite(kind, found, held.get(kind.name, NOTHING), default, protocol, destination)

    def _tables(self, entry: OutboundResult) -> Iterator[RouteTableSite]:
        kind, destination = self.in_force(entry), entry.listening.destination
        if kind is not None:
            candidates = self._candidates(kind, destination)
            rules = routes(self.rules[kind], destination) or ()
            hides = kind == HTTP_ROUTE and bool(self._candidates(TCP_ROUTE, destination))
            yield RouteTableSite(self.rules[kind].kind, candidates, rules, destination, hides_others=hides)

    def _candidates(self, kind: str, destination: Destination) -> tuple[CombinedConf, ...]:
        """What routes of a kind come to for a destination; empty if there is none."""
        found = of_service(self.rules[kind], destination) if kind in self.rules else None
        return () if found is None else (found,)


def of_inbound(rules: Rules, index: int, reached: InboundResult, defaults: Defaults) -> Iterator[AnySite]:
    """What holds for those who call an inbound: for all of them, and for some."""
    protocol = reached.inbound.protocol
    for kind, of_kind in rules.items():
        if of_kind.shape.single:
            continue
        found = of_kind.inbound(index).for_all
        if found is not None:
            yield PolicySite(of_kind.kind, (found,), reached.effective[kind], defaults.get(kind), protocol)
        if of_kind.shape.from_ and not of_kind.shape.from_as_rules:
            for rule in of_kind.from_(index).rules:
                yield PolicySite(of_kind.kind, (rule.combined,), rule.combined.conf, None, protocol)
        yield from (ClientSite(of_kind.kind, rules_, protocol) for rules_ in _by_match(of_kind.inbound(index)))


def _by_match(rules: InboundRules) -> Iterable[tuple[CombinedConf, ...]]:
    """What is said of the clients of each match. Several rules for the same one are not merged: the first counts."""
    found: dict[bytes, list[CombinedConf]] = {}
    for rule in rules.with_matches:
        found.setdefault(canonical_json(rule.match), []).append(rule.combined)
    return map(tuple, found.values())


def of_proxy(rules: Rules, *, is_redirected: bool) -> Iterator[PolicySite]:
    """What holds for a proxy as a whole. Where nothing is redirected to it, nothing passes through it either."""
    for kind, of_kind in rules.items():
        if of_kind.shape.single and (found := of_kind.proxy) is not None and (is_redirected or kind != PASSTHROUGH):
            yield PolicySite(of_kind.kind, (found,), found.conf)

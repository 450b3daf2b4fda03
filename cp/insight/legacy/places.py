"""Where legacy policies are for something on a proxy, whether they hold there, and why not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from cp.insight.legacy.conf_parts import ConfParts, Policies, is_by_tag
from cp.insight.legacy.values import ActingValues, LegacyValue
from cp.model.names import Key
from cp.model.paths import steps
from cp.resources.kinds import LegacySide
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.legacy import LegacyClient, LegacyMatch, age, legacy_matches, rank_at, side_of
from cp.rules.merging import Origin, Setting
from cp.translate.compiler import CompiledProxy
from cp.translate.effective import BUILT_IN, Rules, rules_of
from cp.translate.inbound import InboundResult
from cp.translate.view.proxies import inbounds

OUTRANKED: Final = "outranked"
OVERRIDDEN: Final = "overridden"
SILENT: Final = "silent"
NOT_CALLED: Final = "not-called"
MTLS_OFF: Final = "mtls-off"
UNFITTING: Final = "unfitting"
UNREACHED: Final = "unreached"
_JUDGING: Final = "TrafficPermission"
_ROUTE: Final = "TrafficRoute"


@dataclass(frozen=True, slots=True)
class LegacyPlace:
    """A service, an inbound or a proxy that a legacy policy is for."""

    policy: Resource
    where: str
    """In words: `to api`."""

    fault: str = ""
    """What keeps it from holding there: one of the constants above; empty if it holds."""

    reason: str = ""
    """The same in words."""

    values: tuple[LegacyValue, ...] = ()
    """What it sets there, unless another policy holds in its place."""

    @property
    def holds(self) -> bool:
        return not self.fault


class LegacyPlaces:
    """What the legacy policies of a World are for, from what proxies are served."""

    def __init__(self, policies: Policies, world: World) -> None:
        self.world = world
        self._policies = policies
        self._acting = ActingValues()

    def of_proxy(self, proxy: CompiledProxy, policy: Resource | None = None) -> Iterator[LegacyPlace]:
        """What the legacy policies are for that select a proxy, or one of them."""
        return chain(self.of_calls(proxy, policy), self.of_itself(proxy, policy))

    def of_calls(self, proxy: CompiledProxy, policy: Resource | None = None) -> Iterator[LegacyPlace]:
        """Those that are for what a proxy calls. They are equal for all proxies of a class that match the same."""
        parts = ConfParts(self.world, self._policies, proxy)
        for match in self._matches(proxy, policy):
            if side_of(match.policy) is LegacySide.OUTBOUND:
                yield from self._to_services(parts, match)
        services = frozenset(_services(proxy))
        for service, limit in proxy.proxy_class.rules.legacy.limits:
            if service in services and (policy is None or limit is policy):
                yield self._limited(parts, limit, service)

    def of_itself(self, proxy: CompiledProxy, policy: Resource | None = None) -> Iterator[LegacyPlace]:
        """Those that are for the proxy as a whole, or for the clients of its inbounds."""
        parts = ConfParts(self.world, self._policies, proxy)
        for match in self._matches(proxy, policy):
            side = side_of(match.policy)
            if side is LegacySide.PROXY:
                yield self._on_proxy(parts, match)
            elif side is LegacySide.INBOUND:
                yield from self._on_inbounds(proxy, match)

    def _matches(self, proxy: CompiledProxy, policy: Resource | None) -> Iterable[LegacyMatch]:
        matches = legacy_matches(self.world, proxy.dataplane)
        return (match for match in matches if policy is None or match.policy is policy)

    def _on_proxy(self, parts: ConfParts, match: LegacyMatch) -> LegacyPlace:
        policy, where = match.policy, "the proxy"
        holder = parts.proxy.proxy_class.rules.legacy.holder(match)
        if holder.policy is not policy:
            return LegacyPlace(policy, where, OUTRANKED, _outranked(match, holder, ""))
        values = self._acting.of_changes(policy.key, parts) or self._acting.of_parts(policy.key, parts.of_proxy())
        return _judged(parts.proxy, match, "", LegacyPlace(policy, where, values=values))

    def _to_services(self, parts: ConfParts, match: LegacyMatch) -> Iterator[LegacyPlace]:
        services = [service for service in _services(parts.proxy) if rank_at(match, service) is not None]
        for service in services:
            yield self._to_service(parts, match, service)
        if not services:
            yield LegacyPlace(match.policy, "", NOT_CALLED, "the proxy calls no service by tag that it is for")

    def _to_service(self, parts: ConfParts, match: LegacyMatch, service: str) -> LegacyPlace:
        policy, where = match.policy, f"to {service}"
        holder = parts.proxy.proxy_class.rules.legacy.holder(match, service)
        if holder.policy is not policy:
            return LegacyPlace(policy, where, OUTRANKED, _outranked(match, holder, service))
        routes = list(_routes(parts.proxy, service)) if policy.type == _ROUTE else []
        rows = tuple(_row(policy, origin) for origin in dict.fromkeys(routes) if origin.policy == policy.key)
        values = self._acting.of_parts(policy.key, parts.of_service(service))
        place = LegacyPlace(policy, where, values=(*rows, *values))
        return _judged(parts.proxy, match, service, place, routes)

    def _limited(self, parts: ConfParts, limit: Resource, service: str) -> LegacyPlace:
        """A RateLimit of an ExternalService, which those keep who call it."""
        values = self._acting.of_parts(limit.key, parts.of_service(service))
        place = LegacyPlace(limit, f"to {service}", values=values)
        if any(value.is_in_force for value in values):
            return place
        return replace(place, fault=SILENT, reason=_why_silent(values))

    def _on_inbounds(self, proxy: CompiledProxy, match: LegacyMatch) -> Iterator[LegacyPlace]:
        chosen = dict(match.inbounds)
        for (index, _), reached in zip(inbounds(proxy.dataplane), proxy.inbounds, strict=True):
            if index in chosen:
                yield self._on_inbound(proxy, match, index, reached)

    def _on_inbound(self, proxy: CompiledProxy, match: LegacyMatch, index: int, reached: InboundResult) -> LegacyPlace:
        policy, where = match.policy, f"at port {reached.inbound.port}"
        if policy.type == _JUDGING and reached.inbound.tls is None:
            return LegacyPlace(policy, where, MTLS_OFF, "without mTLS nobody is asked who calls")
        rules = rules_of(proxy.proxy_class.world, proxy.dataplane)  # those of its class are of one with other inbounds
        holder = rules.legacy.holder(match, index)
        shape = policy.kind.legacy
        if shape is not None and shape.holds_alone and holder.policy is not policy:
            return LegacyPlace(policy, where, OUTRANKED, _outranked(match, holder, index))
        values = tuple(self._of_clients(policy, reached))
        if any(value.is_in_force for value in values):
            return LegacyPlace(policy, where, values=values)
        names = dict.fromkeys(map(_named, _about_clients(rules, policy, index, reached)))
        if names:
            reason = f"{', '.join(names)} says what holds for the clients there"
            return LegacyPlace(policy, where, OVERRIDDEN, reason)
        return LegacyPlace(policy, where, SILENT, _why_silent(values), values)

    def _of_clients(self, policy: Resource, reached: InboundResult) -> Iterator[LegacyValue]:
        for kind, clients in reached.legacy.items():
            own = [client for client in clients if client.policy is policy]
            if own and self._policies[kind].judges_every_client:
                yield from map(_source, own)
            elif own:
                yield from self._acting.of_clients(self._policies[kind], reached, own)


def _services(proxy: CompiledProxy) -> Iterable[str]:
    """The services that a proxy calls by their tags, or to which its routes lead."""
    called = [result.address.destination for result in proxy.proxy_class.outbounds.values()]
    reached = [backend.destination for backend in proxy.proxy_class.backends.values()]
    return dict.fromkeys(destination.service for destination in (*called, *reached) if not destination.is_real)


def _routes(proxy: CompiledProxy, service: str) -> Iterator[Origin]:
    """The routes that a service has, as it is called by its tag."""
    for result in proxy.proxy_class.outbounds.values():
        if is_by_tag(result.address.destination, service):
            yield from (rule.origin for rule in result.route_rules.values())


def _row(policy: Resource, origin: Origin) -> LegacyValue:
    value: Any = policy.data
    for name in steps(origin.path):
        value = value[name]
    return LegacyValue(Setting(origin, value, origin.path))


def _source(client: LegacyClient) -> LegacyValue:
    """Some clients who may call."""
    origin = Origin(client.policy.key, client.policy.identity, "conf", path=client.place, source=client.policy.source)
    return LegacyValue(Setting(origin, dict(client.tags) or {"kuma.io/service": "*"}, client.place))


def _judged(
    proxy: CompiledProxy, match: LegacyMatch, service: str, place: LegacyPlace, routes: Sequence[Origin] = ()
) -> LegacyPlace:
    """A service or the proxy for which a policy holds: whether it says anything there that counts."""
    if any(value.is_in_force for value in place.values):
        return place
    if (kept_out := proxy.proxy_class.rules.legacy.next_holder(match, service)) is not None:
        source = kept_out.policy.source
        other = with_place(kept_out.policy.key, source.file, source.line(""))
        return replace(place, reason=f"keeps {other} from holding, and says nothing else that counts")
    stronger = [value.overridden_by.origin for value in place.values if value.overridden_by is not None]
    names = dict.fromkeys(_named(origin) for origin in (*stronger, *routes) if origin.part != BUILT_IN)
    if names:
        return replace(place, fault=OVERRIDDEN, reason=f"{', '.join(names)} says all that it does")
    return replace(place, fault=SILENT, reason=_why_silent(place.values))


def _why_silent(values: Iterable[LegacyValue]) -> str:
    reasons = list(dict.fromkeys(value.idle_reason for value in values if value.idle_reason))
    return "; ".join(reasons).removeprefix("has no effect: ") if reasons else "it says nothing that counts"


def _about_clients(rules: Rules, policy: Resource, index: int, reached: InboundResult) -> Iterator[Origin]:
    """The policies with a targetRef that are about the clients of an inbound in the place of a legacy one."""
    for kind, clients in rules.legacy.clients(index, reached.inbound.protocol).items():
        if kind in rules and any(client.policy is policy for client in clients):
            yield from (rule.item.origin for rule in rules[kind].inbound(index).rules)
            yield from (tagged.item.origin for tagged in rules[kind].from_(index).tagged)


def _outranked(match: LegacyMatch, holder: LegacyMatch, place: str | int) -> str:
    source = holder.policy.source
    name = with_place(holder.policy.key, source.file, source.line(""))
    if rank_at(match, place) != rank_at(holder, place):
        return f"{name} is more specific"
    if age(match.policy) != age(holder.policy):
        return f"{name} is as specific, and newer"
    return f"{name} is as specific and as old, and its name comes first"


def _named(origin: Origin) -> str:
    return with_place(origin.policy, origin.file, origin.line)


def with_place(policy: Key, file: str, line: int) -> str:
    return f"{policy.type} {policy.name}{f' ({file}:{line})' if file else ''}"

"""`LegacyRules`: what the legacy policies that select a proxy come to."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cp.model.dependency import EVERYTHING, NOTHING, ChangeScope, Name
from cp.model.failure import Failure
from cp.model.memo import ByIdentity, Memo
from cp.model.paths import step
from cp.model.remembered import remembered
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.kinds import LegacySide
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.legacy.limits import NO_LIMITS, Limits, limits_of_calls
from cp.rules.legacy.matching import LegacyMatch, Matches, legacy_matches, side_of
from cp.rules.legacy.policy_confs import Confs, PolicyConfs, confs_of_policy
from cp.rules.legacy.precedence import by_kind, holder_at, holders_on_inbound, rank_at
from cp.rules.legacy.selectors import ANY, ByService, age, selectors_of
from cp.rules.merging import MergedConf

LegacyDecisions: TypeAlias = tuple[tuple[LegacyMatch, PolicyConfs | None], ...]
"""Policies that select a proxy, each with what it comes to, which can change without them."""

LegacyOfCalls: TypeAlias = tuple[Matches, Limits]
"""The policies that decide over what a proxy calls, and the RateLimits that it counts by."""


@dataclass(frozen=True, slots=True, eq=False)
class LegacyClient:
    """What a legacy policy says of some clients of an inbound."""

    policy: Resource
    tags: Mapping[str, str]
    """Those that a client needs; none: it is for every client."""

    conf: MergedConf
    place: str
    """The path of its selector in the document."""

    @property
    def match(self) -> Mapping[str, Any]:
        """The conditions on clients, as policies with a targetRef have them."""
        return {"tags": dict(sorted(self.tags.items()))} if self.tags else {}


class LegacyRules:
    """What the legacy policies that select a proxy come to, worked out when it is asked for. Equal only to itself."""

    def __init__(
        self,
        matches: Matches,
        confs: Mapping[Resource, PolicyConfs],
        kinds: Container[str] | None = None,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.outbounds = tuple(match for match in matches if side_of(match.policy) is not LegacySide.INBOUND)
        """The policies that decide over what the proxy calls, and over the proxy as a whole."""

        self.inbounds = tuple(match for match in matches if side_of(match.policy) is not LegacySide.OUTBOUND)
        self.limits = limits
        """The RateLimits that hold for calls of ExternalServices."""

        self._matches = matches
        self._confs = confs
        self._kinds = kinds
        self._of_services: dict[tuple[str, str], Confs] = {}
        self._holders: dict[tuple[str, str | int], tuple[LegacyMatch, ...]] = {}

    @property
    def decisions_on_calls(self) -> LegacyDecisions:
        """What decides over what the proxy calls, and over the proxy as a whole."""
        return tuple((match, self._confs.get(match.policy)) for match in self.outbounds)

    @remembered
    def decisions_on_inbounds(self) -> LegacyDecisions:
        """What decides over the inbounds: equal as long as the same policies come to the same."""
        return tuple((match, self._confs.get(match.policy)) for match in self.inbounds)

    @remembered
    def policies_of_calls(self) -> LegacyOfCalls:
        """By whom it is decided over what the proxy calls: equal as long as they are the same policies."""
        return self.outbounds, self.limits

    def __bool__(self) -> bool:
        return bool(self.outbounds or self.inbounds or self.limits)

    def among(self, kinds: Container[str]) -> LegacyRules:
        """The same, of which outbounds and the proxy as a whole are told only what comes to policies of some kinds.

        What holds for the clients of inbounds is told whole.
        """
        return LegacyRules(self._matches, self._confs, kinds, self.limits) if self else self

    def of_service(self, service: str, protocol: str) -> Confs:
        """What holds for a service that is called by its tag, and for the proxy that calls."""
        call = (service, protocol)
        if call not in self._of_services:
            candidates = self._by_destination.candidates([service])
            winners = [holder_at(of_kind, service) for of_kind in by_kind(candidates, LegacySide.OUTBOUND)]
            self._of_services[call] = {**self.of_proxy, **self._together(winners, protocol)}
        return self._of_services[call]

    def of_service_outside(self, service: str) -> Confs:
        """What holds at the caller of an ExternalService, as nobody behind it could see to that."""
        kinds, limit = self._kinds, dict(self.limits).get(service)
        confs = {} if limit is None else self._confs[limit].at_caller
        return {kind: conf for kind, conf in confs.items() if kinds is None or kind in kinds}

    @remembered
    def _by_destination(self) -> ByService[LegacyMatch]:
        """The policies of outbounds, by the services that their destinations name."""
        return ByService((match, selectors_of(match.policy.data, "destinations")) for match in self.outbounds)

    @remembered
    def of_proxy(self) -> Confs:
        """What holds for the proxy as a whole."""
        return self._together((holder_at(of_kind) for of_kind in by_kind(self.outbounds, LegacySide.PROXY)), "")

    def clients(self, index: int, protocol: str) -> Mapping[str, tuple[LegacyClient, ...]]:
        """What holds for the clients of an inbound, by kind of policy with a targetRef: the first that fits holds."""
        of_kinds: dict[str, tuple[LegacyClient, ...]] = {}
        for of_kind in by_kind(self.inbounds, LegacySide.INBOUND):
            for policy in holders_on_inbound(of_kind, index):
                for kind, conf in self._confs[policy].of(protocol).items():
                    of_kinds[kind] = (*of_kinds.get(kind, ()), *_of_sources(policy, conf))
        return of_kinds

    def holder(self, of: LegacyMatch, place: str | int = "") -> LegacyMatch:
        """Who holds where a policy is for something: itself, or another one of its kind.

        `place` is a service or, of those about clients, the index of an inbound.
        """
        return next(iter(self._first_two(of.policy.type, place)), of)

    def next_holder(self, of: LegacyMatch, place: str | int = "") -> LegacyMatch | None:
        """Who would hold there without a policy; None if nobody would."""
        first_two = self._first_two(of.policy.type, place)
        return next((match for match in first_two if match.policy is not of.policy), None)

    def _first_two(self, kind: str, place: str | int) -> tuple[LegacyMatch, ...]:
        """Who holds of a kind, and who would without it. All are ranked once, whoever asks."""
        key = kind, place
        if key not in self._holders:
            of_kind = [match for match in self._for(place) if match.policy.type == kind]
            ranked = [
                (rank, age(match.policy), match) for match in of_kind if (rank := rank_at(match, place)) is not None
            ]
            # The sort is stable: of equals the first by name comes first.
            ranked.sort(key=lambda ranking: ranking[:2], reverse=True)
            self._holders[key] = tuple(match for _, _, match in ranked[:2])
        return self._holders[key]

    def _for(self, place: str | int) -> Iterable[LegacyMatch]:
        """The policies that can be for a service, an inbound by its index, or the proxy."""
        if isinstance(place, int):
            return self.inbounds
        return self._by_destination.candidates([place]) if place else self.outbounds

    def _together(self, winners: Iterable[Resource | None], protocol: str) -> Confs:
        confs = (self._confs[policy].of(protocol) for policy in winners if policy is not None)
        kinds = self._kinds
        return {kind: conf for of_policy in confs for kind, conf in of_policy.items() if kinds is None or kind in kinds}


NO_LEGACY: Final = LegacyRules((), {})


def legacy_rules(world: World, dataplane: Resource) -> LegacyRules:
    """What the legacy policies of a proxy come to. Proxies that are alike in that get the same object."""
    matches, limits = legacy_matches(world, dataplane), limits_of_calls(world, dataplane)
    return world.recall(_Rules, (ByIdentity(matches), limits)) if matches or limits else NO_LEGACY


_RulesKey: TypeAlias = tuple[ByIdentity[Matches], Limits]


class _Rules(Memo[World, _RulesKey, LegacyRules]):
    def basis(self, source: World, key: _RulesKey) -> tuple[PolicyConfs | None, ...]:
        return tuple(confs_of_policy(source, policy.key) for policy in _policies(key))

    def work_out(self, source: World, key: _RulesKey) -> LegacyRules:
        of_policies = zip(_policies(key), self.basis(source, key), strict=True)
        confs = {policy: confs for policy, confs in of_policies if confs is not None}
        return LegacyRules(key[0].value, confs, limits=key[1])


def _policies(key: _RulesKey) -> tuple[Resource, ...]:
    return (*(match.policy for match in key[0].value), *(limit for _, limit in key[1]))


def failures_of_decisions(decisions: LegacyDecisions) -> tuple[Failure, ...]:
    """The policies of which it could not be worked out what they come to, by faults of ours."""
    return tuple(confs.failure for _, confs in decisions if confs is not None and confs.failure is not None)


def tells_clients_apart(policy: Resource) -> bool:
    """Whether a policy acts for some clients alone, who have to tell their tags for that."""
    sources = selectors_of(policy.data, "sources")
    names_clients = bool(sources) and all(any(value != ANY for value in selector.values()) for selector in sources)
    return names_clients and policy.kind.legacy is not None and not policy.kind.legacy.holds_alone


def scope_of_legacy(before: LegacyRules, now: LegacyRules) -> ChangeScope:
    """The names of all services over which other legacy policies decide than before."""
    if before is now or before.policies_of_calls == now.policies_of_calls:
        return NOTHING
    names: set[Name] = {(SERVICE_TAG, service) for service, _ in set(before.limits) ^ set(now.limits)}
    for match in set(before.outbounds) ^ set(now.outbounds):
        selectors = selectors_of(match.policy.data, "destinations")
        services = {selector.get(SERVICE_TAG, ANY) for selector in selectors}
        if side_of(match.policy) is LegacySide.PROXY or ANY in services:
            return EVERYTHING
        names |= {(SERVICE_TAG, service) for service in services}
    return ChangeScope(frozenset(names))


def _of_sources(policy: Resource, conf: MergedConf) -> Iterator[LegacyClient]:
    for index, selector in enumerate(selectors_of(policy.data, "sources")):
        tags = {name: value for name, value in selector.items() if value != ANY}
        yield LegacyClient(policy, tags, conf, step("sources", index))

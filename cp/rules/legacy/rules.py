"""`LegacyRules`: what the legacy policies that select a proxy come to."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from cp.model.dependency import EVERYTHING, NOTHING, ChangeScope, Name
from cp.model.failure import Failure, failure
from cp.model.memo import ByIdentity, Memo
from cp.model.names import Key
from cp.model.paths import step
from cp.model.remembered import remembered
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.kinds import Kinds, LegacySide
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.items import recipe
from cp.rules.legacy.limits import NO_LIMITS, Limits, limits_of_calls
from cp.rules.legacy.matching import LegacyMatch, Matches, legacy_matches, side_of
from cp.rules.legacy.selectors import ANY, ByService, Rank, best_rank, rank, selectors_of, strongest
from cp.rules.merging import Conf, Layer, MergedConf, Origin, merge

Confs: TypeAlias = Mapping[str, MergedConf]
"""What legacy policies come to, by the kind of policy with a targetRef that says the same."""

_LEVELS: Final = MappingProxyType(
    {LegacySide.OUTBOUND: "service", LegacySide.INBOUND: "inbound", LegacySide.PROXY: "proxy"}
)
"""What a policy is for, as explanations name it."""

NO_WORD: Final[Conf] = MappingProxyType({})

LegacyDecisions: TypeAlias = "tuple[tuple[LegacyMatch, PolicyConfs | None], ...]"
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
    def of_calls(self) -> LegacyDecisions:
        """What decides over what the proxy calls."""
        return tuple((match, self._confs.get(match.policy)) for match in self.outbounds)

    @remembered
    def on_inbounds(self) -> LegacyDecisions:
        """What decides over the inbounds: equal as long as the same policies come to the same."""
        return tuple((match, self._confs.get(match.policy)) for match in self.inbounds)

    @remembered
    def on_calls(self) -> LegacyOfCalls:
        """What decides over what the proxy calls."""
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
            winners = [_winner(of_kind, service) for of_kind in _by_kind(candidates, LegacySide.OUTBOUND)]
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
        return self._together((_best(of_kind) for of_kind in _by_kind(self.outbounds, LegacySide.PROXY)), "")

    def clients(self, index: int, protocol: str) -> Mapping[str, tuple[LegacyClient, ...]]:
        """What holds for the clients of an inbound, by kind of policy with a targetRef: the first that fits holds."""
        of_kinds: dict[str, tuple[LegacyClient, ...]] = {}
        for of_kind in _by_kind(self.inbounds, LegacySide.INBOUND):
            for policy in _holding(of_kind, index):
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
            ranked.sort(
                key=lambda ranking: ranking[:2], reverse=True
            )  # stable: of equals the first by name comes first
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
        return tuple(source.recall(_ConfsOfPolicies, policy.key) for policy in _policies(key))

    def work_out(self, source: World, key: _RulesKey) -> LegacyRules:
        of_policies = zip(_policies(key), self.basis(source, key), strict=True)
        confs = {policy: confs for policy, confs in of_policies if confs is not None}
        return LegacyRules(key[0].value, confs, limits=key[1])


def _policies(key: _RulesKey) -> tuple[Resource, ...]:
    return (*(match.policy for match in key[0].value), *(limit for _, limit in key[1]))


class PolicyConfs:
    """What one legacy policy comes to, for each protocol. Equal only to itself.

    What cannot be worked out, by a fault of ours, is what the policy came to before or, where that is not known,
    nothing: the policy keeps its place, and others theirs (record 0044).
    """

    def __init__(
        self, policy: Resource, mesh: Mapping[str, Any], kinds: Kinds, last_good: PolicyConfs | None = None
    ) -> None:
        self._policy = policy
        self._mesh = mesh
        self._kinds = kinds
        self._last_good = last_good
        self._of_protocols: dict[str, Confs] = {}
        self.failure: Failure | None = None
        """Why what it was asked for so far could not be worked out."""

    def of(self, protocol: str) -> Confs:
        if protocol not in self._of_protocols:
            self._of_protocols[protocol] = self._read(
                partial(self._confs, protocol), lambda last_good: last_good.of(protocol)
            )
        return self._of_protocols[protocol]

    @remembered
    def at_caller(self) -> Confs:
        """What it comes to where its clients see to it themselves."""
        of_caller = partial(self._confs, "http", "service", {"atCaller": True})
        return self._read(of_caller, lambda last_good: last_good.at_caller)

    def to_fall_back_on(self) -> PolicyConfs | None:
        """What the next version of the policy falls back on. It holds no version before it."""
        if self.failure is None:
            return PolicyConfs(self._policy, self._mesh, self._kinds)
        return self._last_good

    def _read(
        self, confs: Callable[[], Iterator[tuple[str, MergedConf]]], of_last_good: Callable[[PolicyConfs], Confs]
    ) -> Confs:
        try:
            return dict(confs())
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this policy's
            self.failure = failure_of_policy(self._policy, error)
        if self._last_good is None:
            return {}
        self.failure = self.failure.keeping()
        return of_last_good(self._last_good)

    def _confs(self, protocol: str, level: str = "", word: Conf = NO_WORD) -> Iterator[tuple[str, MergedConf]]:
        policy = self._policy
        level = level or _LEVELS[side_of(policy)]
        origin = Origin(policy.key, policy.identity, "conf", level=level, path="conf", source=policy.source)
        for legacy in policy.kind.legacy.confs(policy.data, self._mesh, protocol) if policy.kind.legacy else ():
            conf = {**legacy.conf, **word}
            layer = Layer(conf, origin, "conf", conf, legacy.places)
            shape = self._kinds[legacy.kind].policy
            yield legacy.kind, merge((layer,)) if shape is None else merge((layer,), recipe(shape))


class _ConfsOfPolicies(Memo[World, Key, PolicyConfs | None]):
    """What each legacy policy comes to. Some refer to what their Mesh says."""

    def basis(self, source: World, key: Key) -> tuple[Resource | None, Mapping[str, Any]]:
        policy, mesh = source.get(key), source.mesh(key.mesh)
        shape = None if policy is None else policy.kind.legacy
        fields = () if shape is None or mesh is None or not shape.reads else (shape.reads,)
        return policy, {} if mesh is None else {name: mesh.data[name] for name in fields if name in mesh.data}

    def work_out(self, source: World, key: Key) -> PolicyConfs | None:
        policy, mesh = self.basis(source, key)
        earlier = self.earlier(key)
        last_good = None if earlier is None else earlier.to_fall_back_on()
        return None if policy is None else PolicyConfs(policy, mesh, source.kinds, last_good)


def failure_of_policy(policy: Resource, error: Exception) -> Failure:
    return replace(failure(error, f"{policy.type} {policy.name}"), policies=(policy.key,))


def failures_of_decisions(decisions: LegacyDecisions) -> tuple[Failure, ...]:
    """The policies of which it could not be worked out what they come to, by faults of ours."""
    return tuple(confs.failure for _, confs in decisions if confs is not None and confs.failure is not None)


def legacy_confs(world: World, mesh: str) -> Iterator[tuple[Resource, Confs]]:
    """What each legacy policy of a mesh comes to for services of HTTP, whomever it selects."""
    return ((policy, confs.of("http")) for policy, confs in _all_confs(world, mesh))


def legacy_failures(world: World, mesh: str) -> Iterator[tuple[Resource, Failure]]:
    """The legacy policies of a mesh of which it could not be worked out what they come to, whomever they select."""
    for policy, confs in _all_confs(world, mesh):
        confs.of("http")
        if confs.failure is not None:
            yield policy, confs.failure


def _all_confs(world: World, mesh: str) -> Iterator[tuple[Resource, PolicyConfs]]:
    tables = (world.table(kind.name, mesh) for kind in world.kinds.values() if kind.legacy is not None)
    for policy in (policy for table in tables for policy in table):
        confs = world.recall(_ConfsOfPolicies, policy.key)
        if confs is not None:
            yield policy, confs


def tells_clients_apart(policy: Resource) -> bool:
    """Whether a policy acts for some clients alone, who have to tell their tags for that."""
    sources = selectors_of(policy.data, "sources")
    names_clients = bool(sources) and all(any(value != ANY for value in selector.values()) for selector in sources)
    return names_clients and policy.kind.legacy is not None and not policy.kind.legacy.holds_alone


def scope_of_legacy(before: LegacyRules, now: LegacyRules) -> ChangeScope:
    """The names of all services over which other legacy policies decide than before."""
    if before is now or before.on_calls == now.on_calls:
        return NOTHING
    names: set[Name] = {(SERVICE_TAG, service) for service, _ in set(before.limits) ^ set(now.limits)}
    for match in set(before.outbounds) ^ set(now.outbounds):
        selectors = selectors_of(match.policy.data, "destinations")
        services = {selector.get(SERVICE_TAG, ANY) for selector in selectors}
        if side_of(match.policy) is LegacySide.PROXY or ANY in services:
            return EVERYTHING
        names |= {(SERVICE_TAG, service) for service in services}
    return ChangeScope(frozenset(names))


def rank_at(match: LegacyMatch, place: str | int = "") -> Rank | None:
    """How specific a policy is for a service, an inbound by its index, or the proxy; None if it is not for it."""
    if isinstance(place, int):
        return dict(match.inbounds).get(place)
    if side_of(match.policy) is LegacySide.PROXY:
        return match.rank
    of_destination = best_rank(selectors_of(match.policy.data, "destinations"), [{SERVICE_TAG: place}])
    return None if of_destination is None else match.rank.plus(of_destination)


def _by_kind(matches: Iterable[LegacyMatch], side: LegacySide) -> Iterator[list[LegacyMatch]]:
    of_kinds: dict[str, list[LegacyMatch]] = {}
    for match in matches:
        if side_of(match.policy) is side:
            of_kinds.setdefault(match.policy.type, []).append(match)
    yield from of_kinds.values()


def _winner(matches: Iterable[LegacyMatch], service: str) -> Resource | None:
    """The policy that holds for a service. Its tag is all that destinations are compared with, as in Kuma."""
    tags = [{SERVICE_TAG: service}]
    ranked = [
        (match.rank.plus(of_destination), age(match.policy), match.policy)
        for match in matches
        if (of_destination := best_rank(selectors_of(match.policy.data, "destinations"), tags)) is not None
    ]
    return strongest(ranked)


def _best(matches: Iterable[LegacyMatch]) -> Resource | None:
    ranked = [(match.rank, age(match.policy), match.policy) for match in matches]
    return strongest(ranked)


def _holding(matches: Iterable[LegacyMatch], index: int) -> Iterator[Resource]:
    """The policies that hold on an inbound: the best, or all where each is for clients of its own."""
    ranked = [
        (rank_of_inbound, age(match.policy), match.policy)
        for match in matches
        for chosen, rank_of_inbound in match.inbounds
        if chosen == index
    ]
    shape = ranked[0][2].kind.legacy if ranked else None
    if shape is None:
        return
    if shape.holds_alone:
        winner = strongest(ranked)
        if winner is not None:
            yield winner
        return
    by_source = sorted(ranked, key=lambda ranking: (_rank_of_source(ranking[2]), ranking[1]), reverse=True)
    yield from (policy for _, _, policy in by_source)


def _rank_of_source(policy: Resource) -> Rank:
    sources = selectors_of(policy.data, "sources")
    return rank(sources[0]) if sources else Rank()


def age(policy: Resource) -> str:
    """When a policy was made: of equals the newest holds. Of equally old ones it is the first by name, as in Kuma.

    They stand in the order of their names, and neither `max` nor `sorted` changes that.
    """
    return policy.source.created


def _of_sources(policy: Resource, conf: MergedConf) -> Iterator[LegacyClient]:
    for index, selector in enumerate(selectors_of(policy.data, "sources")):
        tags = {name: value for name, value in selector.items() if value != ANY}
        yield LegacyClient(policy, tags, conf, step("sources", index))

"""Every field of every policy that holds at some place, with who set it and who did not get their way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cp.insight.explain import effects
from cp.insight.explain.effects import Build, FieldEffect
from cp.insight.explain.model import BUILT_IN, CLUSTER, LISTENER, ROUTE, FieldValue, ValueOrigin
from cp.policies import Policies, Policy
from cp.resources.caller import Caller
from cp.resources.world import World
from cp.rules.merging import Conf, MergedConf, MergedField, Origin, Setting
from cp.translate.backend import BackendResult
from cp.translate.effective import BUILT_IN as BUILT_IN_PART
from cp.translate.effective import Effective
from cp.translate.inbound import InboundResult
from cp.translate.outbound import OutboundResult
from cp.translate.view.backend_refs import resolved_data
from generators.proxy import Endpoints, Route

_INBOUND = "inbound"
_PROXY = "proxy"
_SAME = "makes no difference: it would be the same without it"


@dataclass(frozen=True, slots=True)
class ConfPlace:
    """One place at which a policy has an effective conf, and what it makes of it there."""

    at: str
    policy: Policy[Any]
    merged: MergedConf
    make: Build

    def effect(self, path: str) -> FieldEffect:
        return effects.effect(self.make, self.merged.value, path)


def of_request(
    policies: Policies, world: World, mesh: str, entry: OutboundResult, row: Route | None
) -> tuple[ConfPlace, ...]:
    """The places of an outbound that a request passes: its row of the route table, and the listener."""
    whole = _whole(entry)
    own = whole if row is None else entry.of_routes.get(row.owner, whole)
    return tuple(_resolving(place, world, mesh) for place in _of_request(policies, entry, row, own, whole))


def _resolving(place: ConfPlace, world: World, mesh: str) -> ConfPlace:
    """References are resolved before a conf gets to a policy."""
    return replace(place, make=lambda conf: place.make(dict(resolved_data(world, mesh, conf))))


def _whole(entry: OutboundResult) -> Effective:
    """What holds for a listener: for TCP that is what holds for its one route."""
    if entry.outbound.protocol.is_http:
        return entry.effective
    return entry.of_routes.get(entry.outbound.routes[0].owner, entry.effective)


def _of_request(
    policies: Policies, entry: OutboundResult, row: Route | None, own: Effective, whole: Effective
) -> Iterator[ConfPlace]:
    for policy in _speaking(policies, {**whole, **own}):
        of_row, of_whole = own.get(policy.kind.name), whole.get(policy.kind.name)
        if not entry.outbound.protocol.is_http or row is None or of_row is None:
            own_conf = None
        elif of_whole is not None and of_row.canonical == of_whole.canonical:
            own_conf = None
            yield ConfPlace(ROUTE, policy, of_row, effects.of_row(policy, entry, row))
        else:
            own_conf = of_row.value
            yield ConfPlace(ROUTE, policy, of_row, effects.of_own_row(policy, entry, row, _conf(of_whole)))
        if of_whole is not None:
            some_row = row or entry.outbound.routes[0]
            yield ConfPlace(LISTENER, policy, of_whole, effects.of_listener(policy, entry, some_row, own_conf))


def _conf(merged: MergedConf | None) -> Conf:
    return {} if merged is None else merged.value


def of_backend(
    policies: Policies, upstream: BackendResult, endpoints: Endpoints, caller: Caller
) -> tuple[ConfPlace, ...]:
    return tuple(
        ConfPlace(CLUSTER, policy, conf, effects.of_cluster(policy, upstream, endpoints, caller))
        for policy in _speaking(policies, upstream.effective)
        if (conf := upstream.effective.get(policy.kind.name)) is not None
    )


def of_inbound(policies: Policies, reached: InboundResult) -> tuple[ConfPlace, ...]:
    return tuple(
        ConfPlace(_INBOUND, policy, conf, effects.of_inbound(policy, reached))
        for policy in _speaking(policies, reached.effective)
        if (conf := reached.effective.get(policy.kind.name)) is not None
    )


def _speaking(policies: Policies, effective: Effective) -> Iterator[Policy[Any]]:
    """Policies that may have something to say about a call; what passes by destinations is not about any of them."""
    about_calls = (policy for policy in policies if not policy.is_route and type(policy).passes is Policy.passes)
    return (policy for policy in about_calls if policy.kind.name in effective)


def acting(places: Iterable[ConfPlace]) -> Iterator[FieldValue]:
    """The fields that do something, each at the first place where it does."""
    seen: set[tuple[str, str]] = set()
    for place in places:
        for path, field in place.merged.fields.items():
            key = (place.policy.kind.name, path)
            if key not in seen and place.effect(path) is FieldEffect.ACTS:
                seen.add(key)
                yield _value(place, field)


def taken_away(places: Iterable[ConfPlace]) -> Iterator[FieldValue]:
    """The fields that are not there because of somebody's null."""
    seen: set[tuple[str, str]] = set()
    for place in places:
        for path, field in place.merged.removed.items():
            if (place.policy.kind.name, path) not in seen:
                seen.add((place.policy.kind.name, path))
                yield _value(place, field, "removed")


def idle(
    places: Sequence[ConfPlace], clusters: Sequence[ConfPlace], why: Callable[[str, str], str]
) -> Iterator[FieldValue]:
    """The fields that somebody set for a request, and that do nothing for it, nor in the clusters that it reaches.

    Each with why that is so, by the kind of the policy and the path of the field.
    """
    found: dict[tuple[str, str], tuple[ConfPlace, MergedField]] = {}
    for place in places:
        for path, field in place.merged.fields.items():
            found.setdefault((place.policy.kind.name, path), (place, field))
    for (kind, path), (place, field) in found.items():
        there = (one for one in (*places, *clusters) if one.policy.kind.name == kind and path in one.merged.fields)
        best = max((one.effect(path) for one in there), key=_order)
        if best is not FieldEffect.ACTS and field.winner.origin.part != BUILT_IN_PART:
            yield _value(place, field, _SAME if best is FieldEffect.SAME else why(kind, path))


def _order(one: FieldEffect) -> int:
    return (FieldEffect.NONE, FieldEffect.SAME, FieldEffect.ACTS).index(one)


def _value(place: ConfPlace, field: MergedField, note: str = "") -> FieldValue:
    said, *over = (said_by(one) for one in (field.winner, *field.losers))
    return FieldValue(place.policy.kind.name, field.path, said, tuple(over), "" if note else place.at, note)


def said_by(setting: Setting) -> ValueOrigin:
    origin = setting.origin
    if origin.part == BUILT_IN_PART:
        return ValueOrigin(setting.value, BUILT_IN)
    item = origin.part if origin.part == "default" else f"{origin.part}[{origin.index}]"
    removed_by = None if setting.removed_by is None else said_by(setting.removed_by)
    return ValueOrigin(
        setting.value, _level(origin), origin.policy, item, setting.path, origin.file, setting.line, removed_by
    )


def _level(origin: Origin) -> str:
    return origin.level or (_PROXY if origin.part == "default" else _INBOUND)


def find(values: Iterable[FieldValue], policy: str, path: str) -> FieldValue | None:
    return next((one for one in values if (one.policy, one.path) == (policy, path)), None)

"""The confs that apply to a call, and their fields: whether each has an effect, who set it, and whom that overrides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cp.insight.effects import Build, FieldEffect, effect, of_cluster
from cp.insight.explain import effects
from cp.insight.explain.model import BUILT_IN, CLUSTER, LISTENER, ROUTE, FieldValue, ValueOrigin
from cp.insight.meaning import has_meaning
from cp.policies import Policies, Policy
from cp.resources.caller import Caller
from cp.resources.world import World
from cp.rules import meets
from cp.rules.merging import Conf, MergedConf, MergedField, Origin, Setting
from cp.translate.backend import BackendResult
from cp.translate.effective import BUILT_IN as BUILT_IN_PART
from cp.translate.effective import Effective
from cp.translate.inbound import InboundResult
from cp.translate.outbound import OutboundResult
from cp.translate.view.backend_refs import resolved_data
from generators.proxy import Endpoints, Protocol, Route

INBOUND = "inbound"
_PROXY = "proxy"
_NO_DIFFERENCE = "makes no difference: it would be the same without it"


@dataclass(frozen=True, slots=True)
class AppliedConf:
    """The effective conf of one policy for one Envoy resource, and what the policy builds from it there."""

    served_in: str
    policy: Policy[Any]
    merged: MergedConf
    build: Build

    def effect(self, path: str) -> FieldEffect:
        return effect(self.build, self.merged.value, path)


def confs_of_request(
    policies: Policies, world: World, mesh: str, result: OutboundResult, row: Route | None
) -> tuple[AppliedConf, ...]:
    """The confs that apply to a request in its row of the route table and in the listener."""
    listener_confs = _listener_confs(result)
    row_confs = listener_confs if row is None else result.of_routes.get(row.owner, listener_confs)
    return tuple(
        with_references_resolved(conf, world, mesh)
        for conf in _confs_of_request(policies, result, row, row_confs, listener_confs)
    )


def with_references_resolved(applied: AppliedConf, world: World, mesh: str) -> AppliedConf:
    """The same conf, built after its references are resolved, as when it is served."""
    return replace(applied, build=lambda conf: applied.build(dict(resolved_data(world, mesh, conf))))


def _listener_confs(result: OutboundResult) -> Effective:
    """The effective confs of a listener: for TCP those of its only route."""
    if result.outbound.protocol.is_http:
        return result.effective
    return result.of_routes.get(result.outbound.routes[0].owner, result.effective)


def _confs_of_request(
    policies: Policies, result: OutboundResult, row: Route | None, row_confs: Effective, listener_confs: Effective
) -> Iterator[AppliedConf]:
    for policy in _policies_of_calls(policies, {**listener_confs, **row_confs}):
        row_conf, listener_conf = row_confs.get(policy.kind.name), listener_confs.get(policy.kind.name)
        if not result.outbound.protocol.is_http or row is None or row_conf is None:
            own_row_conf = None
        elif listener_conf is not None and row_conf.canonical == listener_conf.canonical:
            own_row_conf = None
            yield AppliedConf(ROUTE, policy, row_conf, effects.of_row(policy, result, row))
        else:
            own_row_conf = row_conf.value
            yield AppliedConf(ROUTE, policy, row_conf, effects.of_own_row(policy, result, row, _conf(listener_conf)))
        if listener_conf is not None:
            listener_row = row or result.outbound.routes[0]
            yield AppliedConf(
                LISTENER, policy, listener_conf, effects.of_listener(policy, result, listener_row, own_row_conf)
            )


def _conf(merged: MergedConf | None) -> Conf:
    return {} if merged is None else merged.value


def confs_of_backend(
    policies: Policies, backend: BackendResult, endpoints: Endpoints, caller: Caller
) -> tuple[AppliedConf, ...]:
    return tuple(
        AppliedConf(CLUSTER, policy, conf, of_cluster(policy, backend, endpoints, caller))
        for policy in _policies_of_calls(policies, backend.effective)
        if (conf := backend.effective.get(policy.kind.name)) is not None
    )


@dataclass(frozen=True, slots=True)
class ShownNames:
    """What a caller shows over TLS: the URIs of its certificate, and the server name that it asks for."""

    uris: tuple[str, ...]
    server_name: str


def confs_of_inbound(policies: Policies, inbound: InboundResult, shown: ShownNames | None) -> tuple[AppliedConf, ...]:
    """The confs for a caller: what holds for it goes before what holds for all. One in plain text shows nothing."""
    return tuple(
        applied
        for policy in _policies_of_calls(policies, inbound.effective)
        for applied in (*_of_client(policy, inbound, shown), *_of_all_clients(policy, inbound))
    )


def _of_client(policy: Policy[Any], inbound: InboundResult, shown: ShownNames | None) -> Iterator[AppliedConf]:
    if shown is None:
        return
    for match, conf in inbound.by_client.get(policy.kind.name, ()):
        if match and meets(match, shown.uris, shown.server_name):
            yield AppliedConf(INBOUND, policy, conf, effects.of_client(policy, inbound, match))
            return


def _of_all_clients(policy: Policy[Any], inbound: InboundResult) -> Iterator[AppliedConf]:
    if (conf := inbound.effective.get(policy.kind.name)) is not None:
        yield AppliedConf(INBOUND, policy, conf, effects.of_inbound(policy, inbound))


def _policies_of_calls(policies: Policies, effective: Effective) -> Iterator[Policy[Any]]:
    """The policies about calls that have an effective conf; routes, and policies for captured calls, are left out."""
    about_calls = (policy for policy in policies if not policy.is_route and not policy.is_for_captured_calls)
    return (policy for policy in about_calls if policy.kind.name in effective)


def acting_values(confs: Iterable[AppliedConf]) -> Iterator[FieldValue]:
    """The fields with an effect, each from the first conf in which it has one."""
    seen: set[tuple[str, str]] = set()
    for conf in confs:
        for path, field in conf.merged.fields.items():
            key = (conf.policy.kind.name, path)
            if key not in seen and conf.effect(path) is FieldEffect.ACTS:
                seen.add(key)
                yield _field_value(conf, field)


def removed_values(confs: Iterable[AppliedConf]) -> Iterator[FieldValue]:
    """The fields that a null removed."""
    seen: set[tuple[str, str]] = set()
    for conf in confs:
        for path, field in conf.merged.removed.items():
            if (conf.policy.kind.name, path) not in seen:
                seen.add((conf.policy.kind.name, path))
                yield _field_value(conf, field, "removed")


def idle_values(
    confs: Sequence[AppliedConf], cluster_confs: Sequence[AppliedConf], reason_of: Callable[[AppliedConf, str], str]
) -> Iterator[FieldValue]:
    """The fields that an item sets and that have no effect, neither on the request nor in the clusters it reaches.

    `reason_of` says why, given the conf and the path of the field.
    """
    fields: dict[tuple[str, str], tuple[AppliedConf, MergedField]] = {}
    for conf in confs:
        for path, field in conf.merged.fields.items():
            fields.setdefault((conf.policy.kind.name, path), (conf, field))
    for (kind, path), (conf, field) in fields.items():
        candidates = (
            candidate
            for candidate in (*confs, *cluster_confs)
            if candidate.policy.kind.name == kind and path in candidate.merged.fields
        )
        strongest = max((candidate.effect(path) for candidate in candidates), key=_strength)
        if strongest is not FieldEffect.ACTS and field.winner.origin.part != BUILT_IN_PART:
            yield _field_value(conf, field, _NO_DIFFERENCE if strongest is FieldEffect.SAME else reason_of(conf, path))


def unheard(conf: AppliedConf, path: str, protocol: Protocol) -> str:
    """Why nothing becomes of a field: it is for other protocols, or what it says is so without it.

    A default that stands alone builds nothing, and has a meaning all the same.
    """
    if has_meaning(conf.policy, path, protocol, conf.merged.fields):
        return _NO_DIFFERENCE
    return f"has no meaning where {protocol} is spoken"


def _strength(effect: FieldEffect) -> int:
    return (FieldEffect.NONE, FieldEffect.SAME, FieldEffect.ACTS).index(effect)


def _field_value(conf: AppliedConf, field: MergedField, note: str = "") -> FieldValue:
    winner, *losers = (value_origin(setting) for setting in (field.winner, *field.losers))
    return FieldValue(conf.policy.kind.name, field.path, winner, tuple(losers), "" if note else conf.served_in, note)


def value_origin(setting: Setting) -> ValueOrigin:
    origin = setting.origin
    if origin.part == BUILT_IN_PART:
        return ValueOrigin(setting.value, BUILT_IN)
    removed_by = None if setting.removed_by is None else value_origin(setting.removed_by)
    return ValueOrigin(
        setting.value, _level(origin), origin.policy, origin.item, setting.path, origin.file, setting.line, removed_by
    )


def _level(origin: Origin) -> str:
    return origin.level or (_PROXY if origin.part == "default" else INBOUND)


def find(values: Iterable[FieldValue], policy: str, path: str) -> FieldValue | None:
    return next((value for value in values if (value.policy, value.path) == (policy, path)), None)

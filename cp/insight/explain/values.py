"""The confs that apply to a call, and their fields: whether each has an effect, who set it, and whom that overrides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cp.insight import whole
from cp.insight.effects import Build, FieldEffect, effect, of_cluster
from cp.insight.explain import effects
from cp.insight.explain.model import BUILT_IN, CLUSTER, LISTENER, ROUTE, FieldValue, ValueOrigin
from cp.insight.meaning import has_meaning
from cp.insight.whole import NOBODY, WRITTEN_OVER, ServedRow, WholeBuild
from cp.policies import Policies, Policy
from cp.resources.caller import Caller
from cp.resources.world import World
from cp.rules import meets
from cp.rules.merging import Conf, MergedConf, MergedField, Origin, Setting, put, without
from cp.translate.backend import BackendResult
from cp.translate.effective import BUILT_IN as BUILT_IN_PART
from cp.translate.effective import Effective, has_hook
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
    whole: WholeBuild | None = None
    """What all policies together build of it; None where none writes over what another one wrote."""

    def effect(self, path: str) -> FieldEffect:
        if self.whole is not None and has_hook(self.policy, "finish"):  # by itself it has nothing to change
            return FieldEffect.ACTS if self._acts(path, self.whole.without(NOBODY)) else FieldEffect.NONE
        by_itself = effect(self.build, self.merged.value, path)
        acts = by_itself is FieldEffect.ACTS or self._acts(path, self.build)
        if acts and self.writers_over(path):
            return FieldEffect.WRITTEN_OVER
        return FieldEffect.ACTS if acts else by_itself

    def writers_over(self, path: str) -> tuple[str, ...]:
        """The types of the policies that write over a field."""
        return () if self.whole is None else self.whole.writers_over(self.merged.value, path)

    def _acts(self, path: str, make: Build) -> bool:
        """Whether something else would be built without a field, or if the weaker value held that it overrides."""
        conf, served = self.merged.value, make(self.merged.value)
        losers = self.merged.fields[path].losers
        weaker = next((loser for loser in losers if loser.removed_by is None), None)
        if weaker is not None and make(put(conf, path, weaker.value)) != served:
            return True
        return make(without(conf, path)) != served


def confs_of_request(  # noqa: PLR0913  # all on which they depend
    policies: Policies,
    world: World,
    mesh: str,
    result: OutboundResult,
    row: Route | None,
    *,
    served: ServedRow | None,
) -> tuple[AppliedConf, ...]:
    """The confs that apply to a request in its row of the route table, served at some place, and in the listener."""
    listener_confs = _listener_confs(result)
    row_confs = listener_confs if row is None else result.of_routes.get(row.owner, listener_confs)
    return tuple(
        with_references_resolved(conf, world, mesh)
        for conf in _confs_of_request(policies, result, row, row_confs, listener_confs, served=served)
    )


def with_references_resolved(applied: AppliedConf, world: World, mesh: str) -> AppliedConf:
    """The same conf, built after its references are resolved, as when it is served."""
    whole = applied.whole
    if whole is not None:
        make = whole.make
        whole = replace(whole, make=lambda conf, left_out: make(dict(resolved_data(world, mesh, conf)), left_out))
    return replace(applied, build=lambda conf: applied.build(dict(resolved_data(world, mesh, conf))), whole=whole)


def _listener_confs(result: OutboundResult) -> Effective:
    """The effective confs of a listener: for TCP those of its only route."""
    if result.outbound.protocol.is_http:
        return result.effective
    return result.of_routes.get(result.outbound.routes[0].owner, result.effective)


def _confs_of_request(  # noqa: PLR0913  # as above
    policies: Policies,
    result: OutboundResult,
    row: Route | None,
    row_confs: Effective,
    listener_confs: Effective,
    *,
    served: ServedRow | None,
) -> Iterator[AppliedConf]:
    for policy in _policies_of_calls(policies, {**listener_confs, **row_confs}):
        row_conf, listener_conf = row_confs.get(policy.kind.name), listener_confs.get(policy.kind.name)
        if not result.outbound.protocol.is_http or row is None or row_conf is None:
            own_row_conf = None
        elif listener_conf is not None and row_conf.canonical == listener_conf.canonical:
            own_row_conf = None
            of_all = whole.of_row(policies, policy, result, served, row.owner, is_own=False)
            yield AppliedConf(ROUTE, policy, row_conf, effects.of_row(policy, result, row), of_all)
        else:
            own_row_conf = row_conf.value
            of_all = whole.of_row(policies, policy, result, served, row.owner, is_own=True)
            by_itself = effects.of_own_row(policy, result, row, _conf(listener_conf))
            yield AppliedConf(ROUTE, policy, row_conf, by_itself, of_all)
        if listener_conf is not None:
            listener_row = row or result.outbound.routes[0]
            by_itself = effects.of_listener(policy, result, listener_row, own_row_conf)
            of_all = whole.of_listener(policies, policy, result)
            yield AppliedConf(LISTENER, policy, listener_conf, by_itself, of_all)


def _conf(merged: MergedConf | None) -> Conf:
    return {} if merged is None else merged.value


def confs_of_backend(
    policies: Policies, backend: BackendResult, endpoints: Endpoints, caller: Caller
) -> tuple[AppliedConf, ...]:
    return tuple(
        AppliedConf(
            CLUSTER,
            policy,
            conf,
            of_cluster(policy, backend, endpoints, caller),
            whole.of_cluster(policies, policy, backend, endpoints, caller),
        )
        for policy in _policies_of_calls(policies, backend.effective)
        if (conf := backend.effective.get(policy.kind.name)) is not None
    )


@dataclass(frozen=True, slots=True)
class ShownNames:
    """What a caller shows over TLS: the URIs of its certificate, and the server name that it asks for."""

    uris: tuple[str, ...]
    server_name: str


def confs_of_inbound(
    policies: Policies, inbound: InboundResult, shown: ShownNames | None, all_policies: Policies
) -> tuple[AppliedConf, ...]:
    """The confs of some policies for a caller: what holds for it goes before what holds for all.

    A caller in plain text shows nothing. `all_policies` may write over what those write.
    """
    return tuple(
        applied
        for policy in _policies_of_calls(policies, inbound.effective)
        for applied in (*_of_client(policy, inbound, shown), *_of_all_clients(all_policies, policy, inbound))
    )


def _of_client(policy: Policy[Any], inbound: InboundResult, shown: ShownNames | None) -> Iterator[AppliedConf]:
    if shown is None:
        return
    for match, conf in inbound.by_client.get(policy.kind.name, ()):
        if match and meets(match, shown.uris, shown.server_name):
            yield AppliedConf(INBOUND, policy, conf, effects.of_client(policy, inbound, match))
            return


def _of_all_clients(policies: Policies, policy: Policy[Any], inbound: InboundResult) -> Iterator[AppliedConf]:
    if (conf := inbound.effective.get(policy.kind.name)) is not None:
        of_all = whole.of_inbound(policies, policy, inbound)
        yield AppliedConf(INBOUND, policy, conf, effects.of_inbound(policy, inbound), of_all)


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


def is_written_over(value: FieldValue) -> bool:
    """Whether it would hold if no other policy wrote something else in its place."""
    return value.note.endswith(WRITTEN_OVER)


def values_of_inbound(confs: Sequence[AppliedConf]) -> tuple[FieldValue, ...]:
    """The fields with an effect, and those that would have one if no other policy wrote over them."""
    idle = idle_values(confs, (), lambda _, __: "")
    return (*acting_values(confs), *filter(is_written_over, idle))


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
        effects_of_field = {candidate.effect(path): candidate for candidate in candidates}
        strongest = max(effects_of_field, key=_strength)
        if strongest is FieldEffect.WRITTEN_OVER:
            yield _field_value(conf, field, whole.written_over(effects_of_field[strongest].writers_over(path)))
        elif strongest is not FieldEffect.ACTS and field.winner.origin.part != BUILT_IN_PART:
            yield _field_value(conf, field, _NO_DIFFERENCE if strongest is FieldEffect.SAME else reason_of(conf, path))


def unheard(conf: AppliedConf, path: str, protocol: Protocol) -> str:
    """Why nothing becomes of a field: it is for other protocols, or what it says is so without it.

    A default that stands alone builds nothing, and has a meaning all the same.
    """
    if has_meaning(conf.policy, path, protocol, conf.merged.fields):
        return _NO_DIFFERENCE
    return f"has no meaning where {protocol} is spoken"


def _strength(effect: FieldEffect) -> int:
    return (FieldEffect.NONE, FieldEffect.SAME, FieldEffect.WRITTEN_OVER, FieldEffect.ACTS).index(effect)


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

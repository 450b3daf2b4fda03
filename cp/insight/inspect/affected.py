"""The effects of one policy: the proxies that it selects, and which of its values are in force on each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from cp.insight.inspect.idle import IdleReasons
from cp.insight.inspect.scopes import ConfScope, confs_by_scope
from cp.insight.legacy import (
    VIRTUAL_OUTBOUND,
    LegacyPlace,
    LegacyPlaces,
    LegacyValue,
    NamedPlaces,
    gateway_route_places,
    knows_names,
    whole,
    written_path,
    written_values,
)
from cp.model.checkpoint import Checkpoint, checked, never_stopped, pass_checkpoint
from cp.model.failure import WHOLE, Failure, has_fault, made_or_failure
from cp.model.memo import ByIdentity
from cp.model.names import Key
from cp.model.secret_data import redacted
from cp.policies import discover
from cp.resources.kinds import Kind
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.legacy import legacy_matches, legacy_rules
from cp.rules.legacy.gateway_routes import GATEWAY_ROUTE, is_selected
from cp.rules.matching import ByKind, match
from cp.rules.matching.profile import sections, tags_of_listeners
from cp.rules.merging import MergedField, Setting
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.view.gateways import gateway_of_proxy
from cp.translate.view.proxies import outbounds

_DATAPLANE: Final = "Dataplane"
_FAILED: Final = "Failed"
_OVER_LIMIT: Final = "Over limit"
"""The states of a connected proxy some part of which is not built. Files know of no other state."""

_REMOVES_NOTHING: Final = "has no effect: there is no weaker item for the same target that sets it"


@dataclass(frozen=True, slots=True)
class PolicyEffect:
    """One value that a policy sets in one scope of a proxy, and the setting that overrides it, if there is one."""

    scope: ConfScope | str
    """What it is for; of a legacy policy, in words."""

    path: str
    setting: Setting
    overridden_by: Setting | None = None
    removed_settings: tuple[Setting, ...] | None = None
    """The settings that a null removes; None if the value is not a null."""

    replacement: Setting | None = None
    """The setting that holds in place of those that a null removes."""

    idle_reason: str = ""
    """Why it has no effect although nothing overrides it; empty if it has one."""

    @property
    def removes_nothing(self) -> bool:
        """Whether it is a null for which there is nothing to remove."""
        return self.removed_settings == ()

    @property
    def is_overridden(self) -> bool:
        return self.overridden_by is not None and not self.removes_nothing


@dataclass(frozen=True, slots=True)
class AffectedProxy:
    """One proxy that a policy selects."""

    dataplane: Key
    effects: tuple[PolicyEffect, ...]
    failure: Failure | None = None
    """The fault of ours for which nobody can tell what it does there."""

    unbuilt: tuple[Failure, ...] = ()
    """The parts of the proxy that are not built: values for such a part are not in effect."""

    @property
    def effects_in_force(self) -> tuple[PolicyEffect, ...]:
        return tuple(effect for effect in self.effects if not effect.is_overridden and not effect.idle_reason)

    @property
    def overridden_effects(self) -> tuple[PolicyEffect, ...]:
        """The values that another setting overrides, or that a null removed."""
        return tuple(effect for effect in self.effects if effect.is_overridden)

    @property
    def idle_effects(self) -> tuple[PolicyEffect, ...]:
        """The values without effect that nothing overrides, such as a null for which there is nothing to remove."""
        return tuple(effect for effect in self.effects if effect.idle_reason)

    @property
    def data(self) -> dict[str, Any]:
        return {
            "type": self.dataplane.type,
            "mesh": self.dataplane.mesh,
            "name": self.dataplane.name,
            "survives": redacted([_effect_data(effect) for effect in self.effects_in_force]),
            "overridden": redacted([_effect_data(effect) for effect in self.overridden_effects]),
            "withoutEffect": redacted([_effect_data(effect) for effect in self.idle_effects]),
            **({} if self.failure is None else {"failure": self.failure.unknown}),
            **({"status": _FAILED if has_fault(self.unbuilt) else _OVER_LIMIT} if self.unbuilt else {}),
        }


EffectsOrFailure: TypeAlias = tuple[PolicyEffect, ...] | Failure
"""What a policy does on a proxy, or the fault of ours for which nobody can tell."""


@dataclass(frozen=True, slots=True)
class SelectedProxy:
    """A proxy that a policy selects, with all that it matched; the effects are not worked out yet."""

    dataplane: Resource
    by_kind: ByKind


def selects_proxies(kind: Kind) -> bool:
    """Whether resources of a kind are policies, of which it can be told what they do on each proxy."""
    return kind.policy is not None or is_legacy(kind)


def is_legacy(kind: Kind) -> bool:
    """Whether it is a kind of Kuma's first versions that acts on proxies, whatever it selects."""
    return kind.legacy is not None or kind.name in {GATEWAY_ROUTE, VIRTUAL_OUTBOUND}


def selected_proxies(world: World, policy: Resource, checkpoint: Checkpoint = never_stopped) -> Iterator[SelectedProxy]:
    """Every proxy that a policy selects.

    Proxies that policies cannot tell apart share one `ByKind`, which is searched once.
    """
    if is_legacy(policy.kind):
        yield from _selected_by_legacy(world, policy, checkpoint)
        return
    selections: dict[int, tuple[ByKind, bool]] = {}
    for dataplane in checked(world.table(_DATAPLANE, policy.mesh), checkpoint):
        by_kind = match(world, dataplane)
        if id(by_kind) not in selections:  # an id() is unique only while its object lives, so the value keeps it alive
            selections[id(by_kind)] = (by_kind, _has_matched(by_kind, policy))
        if selections[id(by_kind)][1]:
            yield SelectedProxy(dataplane, by_kind)


def selection_counts(world: World, mesh: str, checkpoint: Checkpoint = never_stopped) -> Mapping[Key, int]:
    """How many proxies each policy of a mesh selects; those that select none are left out.

    Proxies that policies cannot tell apart share one `ByKind`, which is looked through once.
    """
    sharing: Counter[int] = Counter()
    selections: dict[int, ByKind] = {}
    for dataplane in checked(world.table(_DATAPLANE, mesh), checkpoint):
        by_kind = match(world, dataplane)
        selections[id(by_kind)] = by_kind  # this keeps it alive, and so its id its own
        sharing[id(by_kind)] += 1
    counts: Counter[Key] = Counter()
    for id_, by_kind in selections.items():
        policies = {matched.policy.key for of_kind in by_kind.values() for matched in of_kind}
        counts.update(dict.fromkeys(policies, sharing[id_]))
    for kind in filter(is_legacy, world.kinds.values()):
        for policy in world.table(kind.name, mesh):
            counts[policy.key] = sum(1 for _ in _selected_by_legacy(world, policy, checkpoint))
    return counts


def legacy_policies(world: World, dataplane: Resource) -> Iterator[Resource]:
    """Those that select a proxy, whatever they do there."""
    for kind in filter(is_legacy, world.kinds.values()):
        selects = _selects_by_legacy(kind)
        yield from (policy for policy in world.table(kind.name, dataplane.mesh) if selects(world, policy, dataplane))


def _selects_by_legacy(kind: Kind) -> Callable[[World, Resource, Resource], bool]:
    if kind.name == VIRTUAL_OUTBOUND:
        return lambda _world, _outbound, dataplane: knows_names(dataplane)
    return _has_bound_listener if kind.name == GATEWAY_ROUTE else _has_legacy_match


def _selected_by_legacy(world: World, policy: Resource, checkpoint: Checkpoint) -> Iterator[SelectedProxy]:
    selects = _selects_by_legacy(policy.kind)
    for dataplane in checked(world.table(_DATAPLANE, policy.mesh), checkpoint):
        if selects(world, policy, dataplane):
            yield SelectedProxy(dataplane, match(world, dataplane))


def _has_legacy_match(world: World, policy: Resource, dataplane: Resource) -> bool:
    is_matched = any(match.policy is policy for match in legacy_matches(world, dataplane))
    return is_matched or any(limit is policy for _, limit in legacy_rules(world, dataplane).limits)


def _has_bound_listener(world: World, route: Resource, dataplane: Resource) -> bool:
    return any(is_selected(route, tags) for tags in tags_of_listeners(world, dataplane))


def affected_proxies(
    world: World,
    policy: Resource,
    proxies: Iterable[SelectedProxy] | None = None,
    checkpoint: Checkpoint = never_stopped,
) -> Iterator[AffectedProxy]:
    """The proxies that a policy selects, or the given ones among them, with its effects on each.

    Proxies with equal keys have equal effects, which are worked out for the first of them. Whether a proxy can be
    compiled is asked of each.
    """
    selected = selected_proxies(world, policy, checkpoint) if proxies is None else proxies
    if is_legacy(policy.kind):
        yield from _affected_by_legacy(world, policy, selected, checkpoint)
        return
    compiler = Compiler(discover())
    idle_reasons = IdleReasons(compiler, world, policy)
    effects: dict[tuple[object, ...], EffectsOrFailure] = {}
    for proxy in checked(selected, checkpoint):
        compiled = compiler.proxy_or_failure(world, proxy.dataplane)
        if isinstance(compiled, Failure):
            yield _affected(proxy.dataplane.key, compiled)
            continue
        key = (*_sharing_key(world, proxy), *idle_reasons.sharing_key(proxy.dataplane))
        if key not in effects:
            of_proxy = checked(_effects(world, proxy.dataplane, policy, idle_reasons), checkpoint)
            effects[key] = _made(of_proxy)
        yield _affected(proxy.dataplane.key, effects[key], of=compiled)


def _affected_by_legacy(
    world: World, policy: Resource, proxies: Iterable[SelectedProxy], checkpoint: Checkpoint
) -> Iterator[AffectedProxy]:
    compiler = Compiler(discover())
    places = LegacyPlaces(compiler.policies, world)
    of_itself = NamedPlaces(world, policy.mesh).of_proxy if policy.type == VIRTUAL_OUTBOUND else places.of_itself
    of_calls: dict[tuple[object, ...], EffectsOrFailure] = {}
    for proxy in checked(proxies, checkpoint):
        compiled = compiler.proxy_or_failure(world, proxy.dataplane)
        if isinstance(compiled, Failure):
            yield _affected(proxy.dataplane.key, compiled)
            continue
        of_class = ByIdentity(compiled.proxy_class), ByIdentity(legacy_matches(world, proxy.dataplane))
        if of_class not in of_calls:
            of_calls[of_class] = _made(_effects_of_places(_places_of_class(places, compiled, policy)))
        own = _made(_effects_of_places(of_itself(compiled, policy)))
        yield _affected(proxy.dataplane.key, of_calls[of_class], own, of=compiled)


def _made(effects: Iterable[PolicyEffect]) -> EffectsOrFailure:
    """To find out what a value does, something is built that nobody is served, and that can fail as well."""
    return made_or_failure(partial(tuple[PolicyEffect, ...], effects), WHOLE)


def _affected(dataplane: Key, *effects: EffectsOrFailure, of: CompiledProxy | None = None) -> AffectedProxy:
    failure = next((part for part in effects if isinstance(part, Failure)), None)
    if failure is not None:
        return AffectedProxy(dataplane, (), failure)
    first, *more = (part for part in effects if not isinstance(part, Failure))
    unbuilt = () if of is None else of.failures
    return AffectedProxy(dataplane, sum(more, first), unbuilt=unbuilt)  # one that is alone is shared


def _places_of_class(places: LegacyPlaces, proxy: CompiledProxy, policy: Resource) -> Iterator[LegacyPlace]:
    """What a policy is for that is equal for all proxies of a class."""
    if policy.type == GATEWAY_ROUTE:
        return gateway_route_places(places.world, proxy, policy)
    return places.of_calls(proxy, policy)


def _effects_of_places(places: Iterable[LegacyPlace]) -> Iterator[PolicyEffect]:
    return (effect for place in places for effect in _effects_of_place(place))


def _effects_of_place(place: LegacyPlace) -> Iterator[PolicyEffect]:
    """The values of a legacy policy at a place; all that it says as one, where it says nothing else that counts."""
    if place.fault and not place.values:
        yield _effect_of_value(place, whole(place.policy, reason=place.reason))
    if place.holds and not any(value.is_in_force for value in place.values):
        yield _effect_of_value(place, whole(place.policy))
    yield from (_effect_of_value(place, value) for value in written_values(place.policy, place.values))


def _effect_of_value(place: LegacyPlace, value: LegacyValue) -> PolicyEffect:
    path = written_path(place.policy, value)
    return PolicyEffect(place.where, path, value.setting, value.overridden_by, idle_reason=value.idle_reason)


def _sharing_key(world: World, proxy: SelectedProxy) -> tuple[object, ...]:
    """The facts about a proxy that decide which confs it has: what it matched, its ports, its destinations
    and its MeshGateway.

    `IdleReasons.sharing_key` has the facts that decide which of them have an effect.
    """
    ports = tuple(section.get("port") for section in sections(proxy.dataplane))
    addresses = outbounds(world, proxy.dataplane)
    calls = tuple(dict.fromkeys((address.destination, bool(address.names)) for address in addresses))
    return id(proxy.by_kind), ports, calls, gateway_of_proxy(world, proxy.dataplane)


def _has_matched(by_kind: ByKind, policy: Resource) -> bool:
    return any(matched.policy is policy for matched in by_kind.get(policy.type, ()))


def _effects(world: World, dataplane: Resource, policy: Resource, idle_reasons: IdleReasons) -> Iterator[PolicyEffect]:
    of_scopes = confs_by_scope(world, dataplane, policy.kind, idle_reasons.gateway(dataplane))
    fitting = ((scope, merged) for scope, merged in of_scopes if not idle_reasons.is_about_clusters_alone(scope))
    for scope, merged in (*fitting, *idle_reasons.confs_by_routes(dataplane)):
        for field in {**merged.nulls, **merged.removed, **merged.fields}.values():
            for effect in _effects_of_field(scope, field, policy.key):
                yield (
                    effect
                    if effect.is_overridden
                    else replace(
                        effect, idle_reason=_idle_reason(idle_reasons, dataplane, scope, effect, merged.fields)
                    )
                )


def _idle_reason(
    idle_reasons: IdleReasons,
    dataplane: Resource,
    scope: ConfScope,
    effect: PolicyEffect,
    conf_fields: Mapping[str, MergedField],
) -> str:
    """Why a value without a stronger one has no effect. That it is not enforced goes before any other reason."""
    removed = effect.removed_settings[0] if effect.removed_settings and effect.replacement is None else None
    reason = idle_reasons.reason(
        dataplane, scope, effect.path, effect.setting, conf_fields=conf_fields, removed=removed
    )
    reason = reason or idle_reasons.reason_of_switch(effect.path, effect.setting, conf_fields)
    return reason or (_REMOVES_NOTHING if effect.removes_nothing else "")


def _effects_of_field(scope: ConfScope, field: MergedField, policy: Key) -> Iterator[PolicyEffect]:
    """The effects of a policy on one field: its strongest value, to which its other values lose, and all its nulls."""
    winner = field.winner if field.value is not None else None
    settings = (*(() if winner is None else (winner,)), *field.losers)
    own_setting = next((setting for setting in settings if setting.origin.policy == policy), None)
    if own_setting is not None:
        yield PolicyEffect(
            scope, field.path, own_setting, None if own_setting is winner else own_setting.removed_by or winner
        )
    for removal in field.removals:
        if removal.null.origin.policy == policy:
            yield PolicyEffect(scope, field.path, removal.null, removal.overridden_by, removal.removed, winner)


def _effect_data(effect: PolicyEffect) -> dict[str, Any]:
    pass_checkpoint()
    data: dict[str, Any] = {
        "where": str(effect.scope),
        "field": effect.path,
        "value": effect.setting.value,
        "file": effect.setting.origin.file,
        "line": effect.setting.line,
    }
    if effect.overridden_by is not None:
        data["by"] = _setting_data(effect.overridden_by)
    if effect.removed_settings:
        data["removes"] = [_setting_data(setting) for setting in effect.removed_settings]
        if effect.replacement is not None:
            data["then"] = _setting_data(effect.replacement)
    if effect.idle_reason:
        data["reason"] = effect.idle_reason
    return data


def _setting_data(setting: Setting) -> dict[str, Any]:
    key = setting.origin.policy
    position = {"level": setting.origin.level, "file": setting.origin.file, "line": setting.line}
    return {"type": key.type, "mesh": key.mesh, "name": key.name, "value": setting.value, **position}

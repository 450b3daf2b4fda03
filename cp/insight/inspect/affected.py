"""The effects of one policy: the proxies that it selects, and which of its values are in force on each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from cp.insight.inspect.idle import IdleReasons
from cp.insight.inspect.scopes import ConfScope, confs_by_scope
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.names import Key
from cp.policies import discover
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.matching import ByKind, match
from cp.rules.matching.profile import sections
from cp.rules.merging import MergedField, Setting
from cp.translate.compiler import Compiler
from cp.translate.view.proxies import outbounds

_DATAPLANE: Final = "Dataplane"
_REMOVES_NOTHING: Final = "has no effect: there is no weaker item for the same target that sets it"


@dataclass(frozen=True, slots=True)
class PolicyEffect:
    """One value that a policy sets in one scope of a proxy, and the setting that overrides it, if there is one."""

    scope: ConfScope
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
            "survives": [_effect_data(effect) for effect in self.effects_in_force],
            "overridden": [_effect_data(effect) for effect in self.overridden_effects],
            "withoutEffect": [_effect_data(effect) for effect in self.idle_effects],
        }


@dataclass(frozen=True, slots=True)
class SelectedProxy:
    """A proxy that a policy selects, with all that it matched; the effects are not worked out yet."""

    dataplane: Resource
    by_kind: ByKind


def selected_proxies(world: World, policy: Resource, checkpoint: Checkpoint = never_stopped) -> Iterator[SelectedProxy]:
    """Every proxy that a policy selects.

    Proxies that policies cannot tell apart share one `ByKind`, which is searched once.
    """
    selections: dict[int, tuple[ByKind, bool]] = {}
    for dataplane in checked(world.table(_DATAPLANE, policy.mesh), checkpoint):
        by_kind = match(world, dataplane)
        if id(by_kind) not in selections:  # an id() is unique only while its object lives, so the value keeps it alive
            selections[id(by_kind)] = (by_kind, _has_matched(by_kind, policy))
        if selections[id(by_kind)][1]:
            yield SelectedProxy(dataplane, by_kind)


def affected_proxies(
    world: World,
    policy: Resource,
    proxies: Iterable[SelectedProxy] | None = None,
    checkpoint: Checkpoint = never_stopped,
) -> Iterator[AffectedProxy]:
    """The proxies that a policy selects, or the given ones among them, with its effects on each.

    Proxies with equal keys have equal effects, which are worked out for the first of them.
    """
    effects: dict[tuple[object, ...], tuple[PolicyEffect, ...]] = {}
    idle_reasons = IdleReasons(Compiler(discover()), world, policy)
    selected = selected_proxies(world, policy, checkpoint) if proxies is None else proxies
    for proxy in checked(selected, checkpoint):
        key = (*_sharing_key(world, proxy), *idle_reasons.sharing_key(proxy.dataplane))
        if key not in effects:
            effects[key] = tuple(checked(_effects(world, proxy.dataplane, policy, idle_reasons), checkpoint))
        yield AffectedProxy(proxy.dataplane.key, effects[key])


def _sharing_key(world: World, proxy: SelectedProxy) -> tuple[object, ...]:
    """The facts about a proxy that decide which confs it has: what it matched, its ports and its destinations.

    `IdleReasons.sharing_key` has the facts that decide which of them have an effect.
    """
    ports = tuple(section.get("port") for section in sections(proxy.dataplane))
    addresses = outbounds(world, proxy.dataplane)
    calls = tuple(dict.fromkeys((address.destination, bool(address.names)) for address in addresses))
    return id(proxy.by_kind), ports, calls


def _has_matched(by_kind: ByKind, policy: Resource) -> bool:
    return any(matched.policy is policy for matched in by_kind.get(policy.type, ()))


def _effects(world: World, dataplane: Resource, policy: Resource, idle_reasons: IdleReasons) -> Iterator[PolicyEffect]:
    for scope, merged in (*confs_by_scope(world, dataplane, policy.kind), *idle_reasons.confs_by_routes(dataplane)):
        for field in {**merged.nulls, **merged.removed, **merged.fields}.values():
            for effect in _effects_of_field(scope, field, policy.key):
                yield (
                    effect
                    if effect.is_overridden
                    else replace(effect, idle_reason=_idle_reason(idle_reasons, dataplane, effect, merged.fields))
                )


def _idle_reason(
    idle_reasons: IdleReasons, dataplane: Resource, effect: PolicyEffect, conf_fields: Iterable[str]
) -> str:
    """Why a value without a stronger one has no effect. That it is not enforced goes before any other reason."""
    removed = effect.removed_settings[0] if effect.removed_settings and effect.replacement is None else None
    reason = idle_reasons.reason(
        dataplane, effect.scope, effect.path, effect.setting, conf_fields=conf_fields, removed=removed
    )
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

"""Values about a part of a destination that is not served: its cluster, or its listener with its routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.decisions import item_of
from cp.insight.lint.gateway_decisions import GatewayDecision
from cp.insight.lint.survey import MeshSurvey
from cp.insight.parts import DestinationParts
from cp.model.checkpoint import checked
from cp.model.names import Key
from cp.model.violation import Finding
from cp.rules.merging import Setting
from cp.translate.effective import BUILT_IN, Effective

_Value: TypeAlias = tuple[Key, str]
_Held: TypeAlias = tuple[str, str, Setting]
"""A kind of policy, a field of its conf, and who set it."""


def elsewhere(survey: MeshSurvey) -> Iterator[Finding]:
    """Fields about a missing part at every destination where they hold, if other fields of the item have an effect."""
    all_parts = [parts for outbounds in survey.outbounds for parts in outbounds.parts]
    acting = {_value(setting) for parts in all_parts if parts.is_whole for _, _, setting in _held(parts)}
    acting |= {_value(setting) for setting in _at_gateways(survey)}
    missing: dict[_Value, tuple[Setting, DestinationParts]] = {}
    for parts in checked(all_parts, survey.checkpoint):
        for kind, path, setting in () if parts.is_whole else _held(parts):
            if setting.origin.part == BUILT_IN or _value(setting) in acting:
                continue
            if parts.acts_on_unserved_part_only(kind, path):
                missing.setdefault(_value(setting), (setting, parts))
            else:
                acting.add(_value(setting))
    for (key, path), (setting, parts) in missing.items():
        policy = survey.world.get(key)
        has_effect = key in survey.effects.effective and item_of(setting.origin) in survey.effects.effective_items
        if policy is not None and has_effect and (key, path) not in acting:
            yield finding_about(
                policy, FindingReason("routed-elsewhere", f"this value has no effect: {parts.why}", path, parts.hint)
            )


def _at_gateways(survey: MeshSurvey) -> Iterator[Setting]:
    """The values that hold at some gateway. Of those without an effect there, it is told that nothing differs."""
    decisions = (decision for decision in survey.decisions if isinstance(decision, GatewayDecision))
    return (field.winner for decision in decisions for field in decision.merged.fields.values())


def _held(parts: DestinationParts) -> Iterator[_Held]:
    of_cluster: Effective = {} if parts.backend is None else parts.backend.effective
    for effective in (of_cluster, *(result.effective for result in parts.outbounds)):
        for kind, merged in effective.items():
            yield from ((kind, path, merged_field.winner) for path, merged_field in merged.fields.items())
    for result in parts.outbounds if parts.is_whole else ():
        for of_route in result.of_routes.values():
            for kind, merged in of_route.items():
                yield from ((kind, path, merged_field.winner) for path, merged_field in merged.fields.items())


def _value(setting: Setting) -> _Value:
    return setting.origin.policy, setting.path

"""Values about a part of a service that is not served: its cluster, or its listener and routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from cp.insight.lint.codes import FindingReason, found
from cp.insight.lint.sites import item_of
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
    """Fields that are about a missing part wherever they hold, of items whose other fields have an effect."""
    every = [parts for outbounds in survey.outbounds for parts in outbounds.parts]
    acting = {_value(setting) for parts in every if parts.is_whole for _, _, setting in _held(parts)}
    missing: dict[_Value, tuple[Setting, DestinationParts]] = {}
    for parts in checked(every, survey.checkpoint):
        for kind, path, setting in () if parts.is_whole else _held(parts):
            if setting.origin.part == BUILT_IN or _value(setting) in acting:
                continue
            if parts.acts_on_unserved_part_only(kind, path):
                missing.setdefault(_value(setting), (setting, parts))
            else:
                acting.add(_value(setting))
    for (key, path), (setting, parts) in missing.items():
        policy = survey.world.get(key)
        has_effect = key in survey.effective and item_of(setting.origin) in survey.effective_items
        if policy is not None and has_effect and (key, path) not in acting:
            yield found(
                policy, FindingReason("routed-elsewhere", f"this value has no effect: {parts.why}", path, parts.hint)
            )


def _held(parts: DestinationParts) -> Iterator[_Held]:
    of_cluster: Effective = {} if parts.upstream is None else parts.upstream.effective
    for effective in (of_cluster, *(entry.effective for entry in parts.entries)):
        for kind, merged in effective.items():
            yield from ((kind, path, one.winner) for path, one in merged.fields.items())
    for entry in parts.entries if parts.is_whole else ():
        for of_route in entry.of_routes.values():
            for kind, merged in of_route.items():
                yield from ((kind, path, one.winner) for path, one in merged.fields.items())


def _value(setting: Setting) -> _Value:
    return setting.origin.policy, setting.path

"""Values for a service that hold for no request, because each of its routes has its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cp.insight.lint.codes import FindingReason, found
from cp.insight.lint.reasons import said
from cp.insight.lint.survey import MeshSurvey
from cp.insight.lint.targets import called
from cp.model.names import Destination, Key
from cp.model.violation import Finding
from cp.rules.merging import MergedField, Origin
from cp.translate.effective import BUILT_IN
from cp.translate.outbound import OutboundResult

_OF_REQUESTS: Final = frozenset({"MeshTimeout", "MeshRetry", "MeshLoadBalancingStrategy"})
"""Policies whose fields for routes are for requests alone, and not for the listener as well."""

_Value: TypeAlias = tuple[Key, str]


@dataclass(slots=True)
class _Seen:
    """A value, where it was found hidden, and by whom."""

    destination: Destination
    by: dict[str, None] = field(default_factory=dict)
    holds: bool = False


def hidden(scene: MeshSurvey) -> Iterator[Finding]:
    """Values that are hidden at every service for which they are written."""
    seen: dict[_Value, _Seen] = {}
    for outbounds in scene.outbounds:
        for entry in outbounds.bundle.entries.values():
            _look(scene, entry, seen)
    for (key, path), one in seen.items():
        policy = scene.world.get(key)
        if policy is not None and not one.holds:
            text = f"holds for no request to {called(one.destination)}: each of its routes has its own value, from "
            yield found(
                policy, FindingReason("hidden-by-route", text + ", ".join(one.by), path, "remove it, or theirs")
            )


def _look(scene: MeshSurvey, entry: OutboundResult, seen: dict[_Value, _Seen]) -> None:
    for kind in _OF_REQUESTS & entry.effective.keys():
        fields = scene.policies[kind].route_fields
        for path, one in entry.effective[kind].fields.items():
            if one.winner.origin.part != BUILT_IN and _is_one_of(path, fields):
                key = (one.winner.origin.policy, one.winner.path)
                mine = seen.setdefault(key, _Seen(entry.listening.destination))
                rivals = _rivals(entry, kind, path, one)
                mine.holds |= rivals is None
                mine.by |= dict.fromkeys(map(said, rivals or ()))


def _rivals(entry: OutboundResult, kind: str, path: str, one: MergedField) -> tuple[Origin, ...] | None:
    """Who sets the field for each of the routes; None where somebody does not, or not all rows are of routes."""
    if not entry.outbound.protocol.is_http or not all(row.owner for row in entry.outbound.routes):
        return None
    confs = (entry.of_routes[row.owner].get(kind) for row in entry.outbound.routes)
    fields = [None if conf is None else conf.fields.get(path) for conf in confs]
    rivals = tuple(found.winner.origin for found in fields if found is not None and found.winner != one.winner)
    return rivals if len(rivals) == len(fields) else None


def _is_one_of(path: str, fields: Iterable[str]) -> bool:
    return any(f"{path}.".startswith((f"{one}.", f"{one}[")) for one in fields)

"""Who else sets what an item sets: why it is overridden, or why what it says would hold without it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cp.insight.lint.any_decision import AnyDecision
from cp.insight.lint.codes import FindingReason
from cp.insight.lint.decisions import (
    AdmissionDecision,
    ClientDecision,
    ConfDecision,
    DestinationDecision,
    RouteTableDecision,
    UnitOf,
    item_of,
    policy_of,
)
from cp.insight.lint.gateway_decisions import GatewayTableDecision
from cp.insight.lint.wording import listed, origin_name
from cp.model.wording import few
from cp.rules import PolicyItem
from cp.rules.merging import MergedField, Removal, Setting

_FEW: Final = 3
_TableDecision: TypeAlias = RouteTableDecision | GatewayTableDecision


@dataclass(slots=True)
class _Rivals:
    """Who else sets the fields that an item sets: with another value, or with the same one."""

    unit_of: UnitOf
    """`policy_of` where items of one policy are no rivals, else `item_of`."""

    overriding: dict[str, dict[str, None]] = field(default_factory=dict)
    """The fields with another value, by who sets it."""

    agreeing: dict[str, dict[str, None]] = field(default_factory=dict)
    """The fields with the same value, by who sets it."""

    def add(self, whose: str, paths: Iterable[str], *, is_same: bool) -> None:
        (self.agreeing if is_same else self.overriding).setdefault(whose, {}).update(dict.fromkeys(paths))


def overridden_or_redundant(item: PolicyItem, decisions: Sequence[AnyDecision], *, as_whole: bool) -> FindingReason:
    """The reason where others set what an item sets. `as_whole` says that its policy as a whole has no effect."""
    rivals = _rivals_of(item, decisions, policy_of if as_whole else item_of)
    if rivals.overriding:
        hint = "remove it, or write it for fewer proxies than what overrides it"
        return FindingReason("overridden", _overridden(rivals, decisions), item.layer.path, hint)
    text = f"what it says would hold without it{f' ({listed(rivals.agreeing)} says so)' if rivals.agreeing else ''}"
    if not rivals.agreeing and any(isinstance(decision, AdmissionDecision) for decision in decisions):
        text = "no weaker item of `from` allows whom it denies, and it takes back nothing else"
    return FindingReason("redundant", text, item.layer.path, "remove it, or leave it as a reminder")


def _rivals_of(item: PolicyItem, decisions: Sequence[AnyDecision], unit_of: UnitOf) -> _Rivals:
    rivals = _Rivals(unit_of)
    for decision in decisions_if_whole(decisions):
        if isinstance(decision, RouteTableDecision | GatewayTableDecision):
            _compare_rows(item, decision, rivals)
        elif isinstance(decision, ClientDecision):
            _compare_first(item, decision, rivals)
        else:
            _compare(item, decision, rivals)
    return rivals


def _overridden(rivals: _Rivals, decisions: Iterable[AnyDecision]) -> str:
    """Who overrides which fields. Each of several rivals does so for other decisions."""
    if all(isinstance(decision, RouteTableDecision | GatewayTableDecision) for decision in decisions):
        return f"stronger routes with the same matches take its place: {listed(rivals.overriding)}"
    of_each = [f"{_fields(paths)} overridden by {whose}" for whose, paths in rivals.overriding.items()]
    if len(of_each) == 1 and not rivals.agreeing:
        return f"{of_each[0]}, wherever it holds"
    redundant = "; what else it says would hold without it" if rivals.agreeing else ""
    more = f" and by {len(of_each) - _FEW} more" if len(of_each) > _FEW else ""
    return f"at one place or another {'; '.join(of_each[:_FEW])}{more}{redundant}"


def decisions_if_whole(
    decisions: Iterable[AnyDecision],
) -> Iterator[ConfDecision | ClientDecision | _TableDecision]:
    """What decides about an item if both parts of each destination were served, and clients were told apart by tags."""
    for decision in decisions:
        if isinstance(decision, DestinationDecision):
            yield from decision.decisions
        elif isinstance(decision, AdmissionDecision):
            yield from decision.subsets
        else:
            yield decision


def _compare(item: PolicyItem, decision: ConfDecision, rivals: _Rivals) -> None:
    for merged_field in {**decision.merged.nulls, **decision.merged.removed, **decision.merged.fields}.values():
        values = (setting for setting in (merged_field.winner, *merged_field.losers) if setting.value is not None)
        own = next((setting for setting in values if setting.origin == item.origin), None)
        null = next((removal for removal in merged_field.removals if removal.null.origin == item.origin), None)
        if own is not None:
            _add(rivals, merged_field.path, own, _rival(merged_field, own, rivals.unit_of))
        elif null is not None:
            _add(rivals, merged_field.path, null.null, _winner_over_null(null, rivals.unit_of))


def _add(rivals: _Rivals, path: str, own: Setting, rival: Setting | None) -> None:
    if rival is not None:
        takes_away = rival.value is None and own.value is not None
        whose = origin_name(rival.origin, rival.line)
        rivals.add(f"a null of {whose}" if takes_away else whose, [path], is_same=rival.value == own.value)


def _winner_over_null(removal: Removal, unit_of: UnitOf) -> Setting | None:
    """The value that is stronger than a null; None if there is none, or if the null removed nothing."""
    over = removal.overridden_by if removal.removed else None
    return None if over is None or unit_of(over.origin) == unit_of(removal.null.origin) else over


def _rival(merged_field: MergedField, setting: Setting, unit_of: UnitOf) -> Setting | None:
    """The setting that wins over a setting; if it wins itself, another one with the same value."""
    unit = unit_of(setting.origin)
    over = setting.removed_by or merged_field.winner
    if unit_of(over.origin) != unit:
        return over
    rivals = (loser for loser in merged_field.losers if unit_of(loser.origin) != unit)
    return next((rival for rival in rivals if rival.value == setting.value), None)


def _compare_rows(item: PolicyItem, decision: _TableDecision, rivals: _Rivals) -> None:
    """Of the routes with the same matches the strongest one owns the row."""
    conf: Mapping[str, Any] = item.layer.conf
    own_matches = [list(rule.get("matches") or ()) for rule in conf.get("rules", ())]
    for rule in decision.rules:
        if rule.origin != item.origin and (not own_matches or list(rule.matches) in own_matches):
            rivals.add(origin_name(rule.origin), [], is_same=False)


def _compare_first(item: PolicyItem, decision: ClientDecision, rivals: _Rivals) -> None:
    own_conf = item.layer.conf
    for combined in decision.confs_in_order:
        if item.origin not in combined.origins:
            rivals.add(origin_name(combined.items[0].origin), own_conf, is_same=combined.conf.value == own_conf)


def _fields(paths: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(paths))
    return f"{few([f'`{path}`' for path in distinct])} {'is' if len(distinct) == 1 else 'are'}"

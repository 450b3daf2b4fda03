"""The rows of an outbound's route table: whose each is, where it is written, and why it took the request or did not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cp.insight.explain.model import ExplainedRow, ValueOrigin
from cp.insight.explain.words import less_specific, why_not
from cp.insight.simulate import Outcome, RowTrial
from cp.model.names import Key
from cp.model.paths import step
from cp.resources.world import World
from cp.rules import RouteRule, by_specificity, routes
from cp.translate.effective import Rules
from cp.translate.outbound import OutboundResult
from generators.proxy import Route

_ONLY: Final = "a connection has no other route"


@dataclass(frozen=True, slots=True)
class WrittenMatch:
    """A row as somebody wrote it: a match of a rule."""

    match: Mapping[str, Any]
    rule: RouteRule


def rows(world: World, rules: Rules, entry: OutboundResult, outcome: Outcome) -> tuple[ExplainedRow, ...]:
    if not entry.outbound.protocol.is_http:
        return tuple(_only(world, rule) for rule in _tcp(entry))
    made = _made(entry, outcome)
    written = _written(rules, entry)
    by_row = {index: written.get(of) for index, of in made.items()}
    first = outcome.row
    winner = by_row.get(first.index) if first is not None else None
    found = (_row(world, one, first, by_row.get(one.index), winner) for one in outcome.rows)
    return tuple(replace(row, patched=row.index not in made) for row in found)


def _only(world: World, rule: RouteRule) -> ExplainedRow:
    """The row of a table that has no other: connections have one route."""
    place = _of_rule(world, rule)
    return ExplainedRow(0, rule.origin.policy, place, beside=(), asks=(), matches=True, taken=True, why=_ONLY)


def taken(entry: OutboundResult, outcome: Outcome) -> Route | None:
    """The row that took the call, as it was before it became Envoy's; None if none did, or a patch wrote it."""
    if not entry.outbound.protocol.is_http:
        return entry.outbound.routes[0]
    of = None if outcome.row is None else _made(entry, outcome).get(outcome.row.index)
    return None if of is None else entry.outbound.routes[of]


def _made(entry: OutboundResult, outcome: Outcome) -> Mapping[int, int]:
    """Which row of ours each row of the table was made from. Patches can write others between them."""
    if outcome.virtual_host != entry.outbound.service:
        return {}
    ours = _by_name([row.name for row in entry.outbound.routes])
    served = _by_name([row.name for row in outcome.rows])
    same = (name for name, places in served.items() if len(places) == len(ours.get(name, ())))
    return {there: here for name in same for there, here in zip(served[name], ours[name], strict=True)}


def _by_name(names: Sequence[str]) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        found.setdefault(name, []).append(index)
    return found


def _row(
    world: World, tried: RowTrial, taken: RowTrial | None, own: WrittenMatch | None, winner: WrittenMatch | None
) -> ExplainedRow:
    return ExplainedRow(
        index=tried.index,
        owner=None if own is None else own.rule.origin.policy,
        place=None if own is None else place_of(world, own),
        beside=() if own is None else _beside(own.rule),
        asks=tried.conditions,
        matches=tried.matches,
        taken=tried is taken,
        why=_why(tried, taken, own, winner),
    )


def _beside(rule: RouteRule) -> tuple[Key, ...]:
    return tuple(dict.fromkeys(origin.policy for origin in rule.origins if origin.policy != rule.origin.policy))


def _why(tried: RowTrial, taken: RowTrial | None, own: WrittenMatch | None, winner: WrittenMatch | None) -> str:
    if tried is taken:
        return "the first that takes the request"
    if tried.matches is False:
        return why_not(tried.conditions)
    if tried.matches is None:
        return "whether it takes the request cannot be told"
    reason = less_specific(None if own is None else own.match, None if winner is None else winner.match)
    return f"takes it too, and comes later: {reason}"


def _written(rules: Rules, entry: OutboundResult) -> Mapping[int, WrittenMatch]:
    """What each row was made from. Rows that nobody wrote are not in it."""
    for of_kind in rules.values():
        found = by_specificity(_routes(rules, of_kind.kind.name, entry))
        if _are_made_from(entry, found):
            return {index: WrittenMatch(match, rule) for index, (match, rule) in enumerate(found)}
    return {}


def _routes(rules: Rules, kind: str, entry: OutboundResult) -> Sequence[RouteRule]:
    is_route = any(rule.owner.type == kind for rule in entry.owners.values())
    return routes(rules[kind], entry.listening.destination) or () if is_route else ()


def _are_made_from(entry: OutboundResult, found: Sequence[tuple[Mapping[str, Any], RouteRule]]) -> bool:
    return 0 < len(found) <= len(entry.outbound.routes) and entry.outbound.protocol.is_http


def _tcp(entry: OutboundResult) -> Iterator[RouteRule]:
    """The rule of a TCP route, if there is one."""
    return (rule for owner, rule in entry.owners.items() if owner == entry.outbound.routes[0].owner)


def place_of(world: World, written: WrittenMatch) -> ValueOrigin:
    """Where a match stands in the document of its route."""
    place = _of_rule(world, written.rule)
    index = next((at for at, one in enumerate(written.rule.matches) if one is written.match), 0)
    path = step(step(place.path, "matches"), index)
    return replace(place, path=path, line=written.rule.origin.source.line(path))


def _of_rule(world: World, rule: RouteRule) -> ValueOrigin:
    origin = rule.origin
    policy = world.get(origin.policy)
    path = origin.path if policy is None else _path(policy.data, rule)
    return ValueOrigin(
        None, origin.level, origin.policy, f"to[{origin.index}]", path, origin.file, origin.source.line(path)
    )


def _path(data: Mapping[str, Any], rule: RouteRule) -> str:
    """The path of a rule: of those with its matches the first, as that one counts."""
    listed = data["to"][rule.origin.index].get("rules") or ()
    at = next((at for at, one in enumerate(listed) if list(one.get("matches") or ()) == list(rule.matches)), None)
    return rule.origin.path if at is None else step(step(rule.origin.path, "rules"), at)

"""Rules of routes that no request reaches."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.decisions import RouteTableDecision
from cp.insight.lint.gateway_decisions import GatewayTableDecision
from cp.insight.lint.survey import MeshSurvey
from cp.insight.lint.wording import origin_name
from cp.model.checkpoint import checked, pass_checkpoint
from cp.model.names import Key
from cp.model.paths import step
from cp.model.violation import Finding
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE
from cp.rules import RouteRule, by_specificity
from cp.rules.items import items

Match: TypeAlias = Mapping[str, Any]
_Row: TypeAlias = tuple[Match, RouteRule]
_MatchPath: TypeAlias = tuple[Key, str]

_ANYTHING: Final = ("PathPrefix", "/")
_PLAIN: Final = re.compile(r"[A-Za-z0-9/_-]*")
_REPEATED: Final = "?*{"


@dataclass(slots=True)
class _MatchState:
    """What becomes of a match in all route tables that contain it."""

    is_reached: bool = False
    taken_by: RouteRule | None = None
    """The rule that takes its requests, in one of these tables."""


def unreachable(survey: MeshSurvey) -> Iterator[Finding]:
    """Matches that an earlier match hides in every route table that contains them."""
    states: dict[_MatchPath, _MatchState] = {}
    paths = _RulePaths()
    for decision in survey.decisions:
        if isinstance(decision, RouteTableDecision) and decision.kind.name == HTTP_ROUTE:
            _add_table(survey, by_specificity(decision.rules), states, paths)
        elif isinstance(decision, GatewayTableDecision) and decision.kind.name == HTTP_ROUTE:
            for rows in decision.tables.values():
                _add_table(survey, rows, states, paths)
    for (key, path), state in states.items():
        policy = survey.world.get(key)
        if policy is not None and not state.is_reached and state.taken_by is not None:
            text = f"an earlier match takes every request of this one: {_by(state.taken_by)}"
            hint = "give it the path of the other, which makes it the more specific one; or remove it"
            yield finding_about(policy, FindingReason("unreachable-route", text, path, hint))


def repeated(survey: MeshSurvey) -> Iterator[Finding]:
    """Rules with the matches of an earlier rule of the same item: of the two the first counts."""
    for policy in survey.world.of_type(HTTP_ROUTE):
        for item in items(policy).to:
            rules = policy.data["to"][item.index].get("rules") or []
            for index, first in _repeats(rules):
                path = step(step(item.origin.path, "rules"), index)
                text = f"rules[{first}] has the same matches and counts, field by field"
                yield finding_about(policy, FindingReason("unreachable-route", text, path, "make one rule of the two"))


def covers(first: Match, second: Match) -> bool:
    """Whether whatever fits the second match fits the first, as far as paths do."""
    method = first.get("method")
    fields = ("headers", "queryParams")
    return method in {None, second.get("method")} and all(
        condition in (second.get(name) or ()) for name in fields for condition in first.get(name) or ()
    )


def paths_over(match: Match) -> Iterator[tuple[str, str]]:
    """The paths, as matches write them, that take whatever the path of this match takes."""
    kind, value = _path(match)
    if kind != "PathPrefix":
        yield kind, value
    inside = _literal(value) if kind == "RegularExpression" else value
    yield from (("PathPrefix", prefix) for prefix in _prefixes(inside, is_open=kind == "RegularExpression"))


def matches_key(matches: Sequence[Match]) -> str:
    """A text that is the same for the same matches."""
    return json.dumps(list(matches), sort_keys=True, default=str)


def _add_table(
    survey: MeshSurvey, rows: Iterable[_Row], states: dict[_MatchPath, _MatchState], paths: _RulePaths
) -> None:
    earlier: dict[tuple[str, str], list[_Row]] = {}
    for match, rule in checked(rows, pass_checkpoint):
        covering = (row for path in paths_over(match) for row in earlier.get(path, ()) if covers(row[0], match))
        taker = next(covering, None)
        policy = survey.world.get(rule.origin.policy)
        if policy is not None:
            state = states.setdefault((policy.key, _match_path(paths.of(policy, rule), match, rule)), _MatchState())
            state.is_reached |= taker is None
            state.taken_by = state.taken_by or (None if taker is None else taker[1])
        earlier.setdefault(_path(match), []).append((match, rule))


def _match_path(rule_path: str, match: Match, rule: RouteRule) -> str:
    index = next((index for index, candidate in enumerate(rule.matches) if candidate is match), 0)
    return step(step(rule_path, "matches"), index)


class _RulePaths:
    """The paths of rules in their documents: each is that of the first rule that has the same matches."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._indexes: dict[tuple[Key, int], Mapping[str, int]] = {}

    def of(self, policy: Resource, rule: RouteRule) -> str:
        if id(rule) not in self._paths:  # decisions keep all rules
            index = self._indexes_of(policy, rule.origin.index).get(matches_key(rule.matches), 0)
            self._paths[id(rule)] = step(step(rule.origin.path, "rules"), index)
        return self._paths[id(rule)]

    def _indexes_of(self, policy: Resource, item: int) -> Mapping[str, int]:
        key = policy.key, item
        if key not in self._indexes:
            keys = [matches_key(rule.get("matches") or ()) for rule in policy.data["to"][item].get("rules") or ()]
            self._indexes[key] = {matches: index for index, matches in reversed([*enumerate(keys)])}
        return self._indexes[key]


def _by(rule: RouteRule) -> str:
    matches = " or ".join(_shown(match) for match in rule.matches[:3])
    return f"{matches} of {origin_name(rule.origin)}"


def _shown(match: Match) -> str:
    kind, value = _path(match)
    return f"`{kind} {value}`"


def _path(match: Match) -> tuple[str, str]:
    path = match.get("path") or {}
    return (path["type"], path.get("value") or "") if path.get("type") else _ANYTHING


def _prefixes(path: str, *, is_open: bool) -> Iterator[str]:
    """Prefixes that take a path. Of one that goes on nobody knows how, its last segment may not be whole."""
    segments = path.strip("/").split("/") if path.strip("/") else []
    for count in range(len(segments) - is_open * (not path.endswith("/")), 0, -1):
        yield "/" + "/".join(segments[:count])
    yield "/"


def _literal(pattern: str) -> str:
    """How every text begins that an expression takes."""
    plain = _PLAIN.match(pattern)
    text = "" if plain is None or "|" in pattern else plain[0]
    return text[:-1] if pattern[len(text) : len(text) + 1] in _REPEATED and text != pattern else text


def _repeats(rules: Sequence[Match]) -> Iterator[tuple[int, int]]:
    """The indexes of rules that repeat the matches of an earlier rule, each with the index of that rule."""
    first_indexes: dict[str, int] = {}
    for index, rule in enumerate(rules):
        matches = rule.get("matches") or ()
        first = first_indexes.setdefault(matches_key(matches), index)
        if matches and first < index:
            yield index, first

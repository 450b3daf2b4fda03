"""Rules of routes that take no request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cp.insight.lint.codes import FindingReason, found
from cp.insight.lint.reasons import blocked_reason, said
from cp.insight.lint.sites import RouteTableSite
from cp.insight.lint.survey import MeshSurvey
from cp.insight.lint.walk import HTTP_ROUTE
from cp.model.names import Key
from cp.model.paths import step
from cp.model.violation import Finding
from cp.resources.resource import Resource
from cp.rules import RouteRule, by_specificity
from cp.rules.items import items

Match: TypeAlias = Mapping[str, Any]
_Row: TypeAlias = tuple[Match, RouteRule]
_Place: TypeAlias = tuple[Key, str]

_ANYTHING: Final = ("PathPrefix", "/")
_PLAIN: Final = re.compile(r"[A-Za-z0-9/_-]*")
_REPEATED: Final = "?*{"


@dataclass(slots=True)
class _Seen:
    """What became of a match in the tables that it is in."""

    is_reached: bool = False
    by: RouteRule | None = None


def unreachable(survey: MeshSurvey) -> Iterator[Finding]:
    """Matches that come too late, in every table that they are in."""
    seen: dict[_Place, _Seen] = {}
    for site in survey.sites:
        if isinstance(site, RouteTableSite) and site.kind.name == HTTP_ROUTE:
            _look(survey, by_specificity(site.rules), seen)
    for (key, path), one in seen.items():
        policy = survey.world.get(key)
        if policy is not None and not one.is_reached and one.by is not None:
            text = f"an earlier match takes every request of this one: {_by(one.by)}"
            hint = "give it the path of the other, which makes it the more specific one; or remove it"
            yield found(policy, FindingReason("unreachable-route", text, path, hint))


def repeated(survey: MeshSurvey) -> Iterator[Finding]:
    """Rules with the matches of an earlier rule of the same item: of the two the first counts."""
    for policy in survey.world:
        for item in items(policy).to if policy.type == HTTP_ROUTE else ():
            rules = policy.data["to"][item.index].get("rules") or []
            for index, first in _repeats(rules):
                path = step(step(item.origin.path, "rules"), index)
                text = f"rules[{first}] has the same matches and counts, field by field"
                yield found(policy, FindingReason("unreachable-route", text, path, "make one rule of the two"))


def blocked(survey: MeshSurvey) -> Iterator[Finding]:
    """Items of routes that decide nothing for a destination, of routes that have an effect elsewhere."""
    for one in survey.blocked:
        policy = one.item.policy
        if policy in survey.judged_set and policy.key in survey.effective:
            yield found(policy, blocked_reason(one.item, [one]))


def covers(first: Match, second: Match) -> bool:
    """Whether whatever fits the second match fits the first, as far as paths do."""
    method = first.get("method")
    fields = ("headers", "queryParams")
    return method in {None, second.get("method")} and all(
        one in (second.get(name) or ()) for name in fields for one in first.get(name) or ()
    )


def paths_over(match: Match) -> Iterator[tuple[str, str]]:
    """The paths, as matches write them, that take whatever the path of this match takes."""
    kind, value = _path(match)
    if kind != "PathPrefix":
        yield kind, value
    inside = _literal(value) if kind == "RegularExpression" else value
    yield from (("PathPrefix", prefix) for prefix in _prefixes(inside, is_open=kind == "RegularExpression"))


def _look(survey: MeshSurvey, rows: Iterable[_Row], seen: dict[_Place, _Seen]) -> None:
    earlier: dict[tuple[str, str], list[_Row]] = {}
    for match, rule in rows:
        over = (row for path in paths_over(match) for row in earlier.get(path, ()) if covers(row[0], match))
        taker = next(over, None)
        policy = survey.world.get(rule.origin.policy)
        if policy is not None:
            one = seen.setdefault((policy.key, _place(policy, match, rule)), _Seen())
            one.is_reached |= taker is None
            one.by = one.by or (None if taker is None else taker[1])
        earlier.setdefault(_path(match), []).append((match, rule))


def _place(policy: Resource, match: Match, rule: RouteRule) -> str:
    """Where a match stands: in the first rule that has the same ones."""
    listed: Sequence[Match] = policy.data["to"][rule.origin.index].get("rules") or ()
    at = next((at for at, one in enumerate(listed) if list(one.get("matches") or ()) == list(rule.matches)), 0)
    index = next((index for index, one in enumerate(rule.matches) if one is match), 0)
    return step(step(step(step(rule.origin.path, "rules"), at), "matches"), index)


def _by(rule: RouteRule) -> str:
    matches = " or ".join(_shown(match) for match in rule.matches[:3])
    return f"{matches} of {said(rule.origin)}"


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
    """Rules with an earlier one with the same matches, and that one."""
    matches = [list(rule.get("matches") or ()) for rule in rules]
    for index, one in enumerate(matches):
        if one and (first := matches.index(one)) < index:
            yield index, first

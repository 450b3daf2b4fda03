"""Conditions of routes in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cp.insight.simulate import RouteCondition
from cp.rules import specificity

_VERBS: Final = {
    "Exact": "is not",
    "PathPrefix": "is not within",
    "Prefix": "does not begin with",
    "Suffix": "does not end with",
    "Contains": "does not contain",
    "RegularExpression": "does not match",
    "Range": "is not",
}
_MORE_SPECIFIC: Final = (
    "it asks for less of the path",
    "its path is the shorter",
    "it asks for no method",
    "it asks for fewer headers",
    "it asks for fewer query parameters",
)


def asks(conditions: Iterable[RouteCondition]) -> str:
    """What a row asks for, in one line."""
    return ", ".join(_asks(one) for one in conditions)


def _asks(one: RouteCondition) -> str:
    inverted = "not " if one.inverted else ""
    if one.kind in {"Present", "Absent"}:
        return f"{inverted}{one.of} {one.kind}"
    if one.of == "path":
        return f"{inverted}{one.kind} {one.wanted}"
    return f"{inverted}{one.of} {one.wanted}" if one.kind == "Exact" else f"{inverted}{one.of} {one.kind} {one.wanted}"


def why_not(conditions: Iterable[RouteCondition]) -> str:
    """What of a row a request does not meet."""
    return ", ".join(_why_not(one) for one in conditions if one.holds is False)


def _why_not(one: RouteCondition) -> str:
    if one.given is None:
        return f"there is no {one.of}"
    if one.kind == "Absent":
        return f"there is a {one.of}"
    if one.inverted:
        return f"{one.of} `{one.given}` is what must not be"
    return f"{one.of} `{one.given}` {_VERBS.get(one.kind, 'is not')} `{one.wanted}`"


def less_specific(row: Mapping[str, Any] | None, winner: Mapping[str, Any] | None) -> str:
    """Why a row comes after the one that won."""
    if row is None or winner is None:
        return "it is for all that no other row takes"
    pairs = zip(specificity(row), specificity(winner), _MORE_SPECIFIC, strict=True)
    found = next((reason for mine, its, reason in pairs if mine != its), None)
    return found or "it asks for as much, and its policy or rule is the weaker"

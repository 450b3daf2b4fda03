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
    inverted = "not " if one.is_inverted else ""
    if one.kind in {"Present", "Absent"}:
        return f"{inverted}{one.subject} {one.kind}"
    if one.subject == "path":
        return f"{inverted}{one.kind} {one.pattern}"
    return (
        f"{inverted}{one.subject} {one.pattern}"
        if one.kind == "Exact"
        else f"{inverted}{one.subject} {one.kind} {one.pattern}"
    )


def why_not(conditions: Iterable[RouteCondition]) -> str:
    """What of a row a request does not meet."""
    return ", ".join(_why_not(one) for one in conditions if one.holds is False)


def _why_not(one: RouteCondition) -> str:
    if one.value is None:
        return f"there is no {one.subject}"
    if one.kind == "Absent":
        return f"there is a {one.subject}"
    if one.is_inverted:
        return f"{one.subject} `{one.value}` is what must not be"
    return f"{one.subject} `{one.value}` {_VERBS.get(one.kind, 'is not')} `{one.pattern}`"


def less_specific(row: Mapping[str, Any] | None, winner: Mapping[str, Any] | None) -> str:
    """Why a row comes after the one that won."""
    if row is None or winner is None:
        return "it is for all that no other row takes"
    pairs = zip(specificity(row), specificity(winner), _MORE_SPECIFIC, strict=True)
    found = next((reason for mine, its, reason in pairs if mine != its), None)
    return found or "it asks for as much, and its policy or rule is the weaker"

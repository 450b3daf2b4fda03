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


def unmet_conditions(conditions: Iterable[RouteCondition]) -> str:
    """The conditions of a row that a request does not meet."""
    return ", ".join(_unmet_condition(condition) for condition in conditions if condition.holds is False)


def _unmet_condition(condition: RouteCondition) -> str:
    if condition.value is None:
        return f"there is no {condition.subject}"
    if condition.kind == "Absent":
        return f"there is a {condition.subject}"
    if condition.is_inverted:
        return f"{condition.subject} `{condition.value}` is what must not be"
    return f"{condition.subject} `{condition.value}` {_VERBS.get(condition.kind, 'is not')} `{condition.pattern}`"


def precedence_reason(row: Mapping[str, Any] | None, winner: Mapping[str, Any] | None) -> str:
    """Why a row comes after the row that took the request."""
    if row is None or winner is None:
        return "it is for all that no other row takes"
    pairs = zip(specificity(row), specificity(winner), _MORE_SPECIFIC, strict=True)
    reason = next((reason for row_rank, winner_rank, reason in pairs if row_rank != winner_rank), None)
    return reason or "it asks for as much, and its policy or rule is the weaker"

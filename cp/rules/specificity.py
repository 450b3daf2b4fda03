"""Which route wins when several match a request (9.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from cp.rules.routes import RouteRule

Specificity: TypeAlias = tuple[int, ...]

_TYPES: Final = {"Exact": 0, "PathPrefix": 1, "RegularExpression": 2}


def specificity(match: Mapping[str, Any]) -> Specificity:
    """How much a match asks for, the most specific first: path, its type, its length, method, headers, parameters."""
    path = match.get("path")
    return (
        0 if path is not None else 1,
        *_of_path(path or {}),
        0 if match.get("method") is not None else 1,
        -len(match.get("headers") or ()),
        -len(match.get("queryParams") or ()),
    )


def _of_path(path: Mapping[str, Any]) -> tuple[int, int]:
    """The longer of two prefixes or expressions comes first; two exact paths are never both right."""
    kind = _TYPES.get(path.get("type") or "", len(_TYPES))
    return kind, 0 if kind == 0 else -len(str(path.get("value") or "").encode())


def by_specificity(rules: Iterable[RouteRule]) -> tuple[tuple[Mapping[str, Any], RouteRule], ...]:
    """Every match with its rule, in the order in which they are tried. Equals stay in the order of the rules."""
    found = [(match, rule) for rule in rules for match in rule.matches]
    return tuple(sorted(found, key=lambda one: specificity(one[0])))

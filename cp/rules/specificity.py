"""Which route wins when several match a request (docs/concepts/routes.md#which-route-takes-a-request)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from cp.rules.routes import RouteRule

Specificity: TypeAlias = tuple[int, ...]

_TYPES: Final = {"Exact": 0, "PathPrefix": 1, "RegularExpression": 2}
_ANY_PATH: Final = (3, 0)


def specificity(match: Mapping[str, Any]) -> Specificity:
    """How much a match asks for, the most specific first: path, its type, its length, method, headers, parameters."""
    return (
        *_of_path(match.get("path") or {}),
        0 if match.get("method") is not None else 1,
        -len(match.get("headers") or ()),
        -len(match.get("queryParams") or ()),
    )


def _of_path(path: Mapping[str, Any]) -> tuple[int, int]:
    """The longer of two prefixes or expressions comes first; two exact paths are never both right.

    The prefix `/` says nothing of the path, as if there were none: it would leave no request to whatever comes later.
    """
    kind, value = path.get("type"), str(path.get("value") or "")
    if kind is None or (kind == "PathPrefix" and value in {"", "/"}):
        return _ANY_PATH
    return _TYPES[kind], 0 if kind == "Exact" else -len(value.encode())


def by_specificity(rules: Iterable[RouteRule]) -> tuple[tuple[Mapping[str, Any], RouteRule], ...]:
    """Every match with its rule, in the order in which they are tried. Equals stay in the order of the rules."""
    found = [(match, rule) for rule in rules for match in rule.matches]
    return tuple(sorted(found, key=lambda one: specificity(one[0])))

"""Which route wins when several match a request (docs/concepts/routes.md#which-route-takes-a-request)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from cp.rules.routes import RouteRule

Specificity: TypeAlias = tuple[int, ...]

_TYPES: Final = {"Exact": 0, "PathPrefix": 1, "RegularExpression": 2}
_ANY_PATH: Final = (3, 0)


def specificity(match: Mapping[str, Any]) -> Specificity:
    """The sort key of a match, the most specific first: type and length of the path, method, headers, parameters."""
    return (
        *_of_path(match.get("path") or {}),
        0 if match.get("method") is not None else 1,
        -len(match.get("headers") or ()),
        -len(match.get("queryParams") or ()),
    )


def _of_path(path: Mapping[str, Any]) -> tuple[int, int]:
    """The longer of two prefixes or expressions comes first. Of two exact paths, a request can match only one.

    The prefix `/` matches every path, so it counts as no path: in front, it would leave no request to later rules.
    """
    kind, value = path.get("type"), str(path.get("value") or "")
    if kind is None or (kind == "PathPrefix" and value in {"", "/"}):
        return _ANY_PATH
    return _TYPES[kind], 0 if kind == "Exact" else -len(value.encode())


def by_specificity(rules: Iterable[RouteRule]) -> tuple[tuple[Mapping[str, Any], RouteRule], ...]:
    """Every match with its rule, in the order in which Envoy tries them. Equals stay in the order of the rules."""
    pairs = [(match, rule) for rule in rules for match in rule.matches]
    return tuple(sorted(pairs, key=lambda pair: () if pair[1].is_in_order else specificity(pair[0])))

"""The rows of a route table, which of them takes a call, and what stands behind its references to backends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from tests.oracle.destinations import (
    MISSING,
    UNCLEAR,
    Destination,
    exists,
    means,
    of_tags,
    port_of_one,
    ports,
    services,
)
from tests.oracle.matching import Item, items
from tests.oracle.reading import Data, Documents, Resource

_KINDS_OF_PATH: Final = ("Exact", "PathPrefix", "RegularExpression", "")
_ROOT: Final = {"type": "PathPrefix", "value": "/"}


@dataclass(frozen=True)
class Call:
    address: str
    port: int
    method: str = "GET"
    path: str = "/"
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Row:
    """One match of a rule, and what the rule says. Without an owner it is the service's own, for all that is left."""

    match: Data
    owner: Resource | None = None
    redirect: Data | None = None
    refs: tuple[tuple[Resource, Data], ...] = ()
    """The references, each with the policy that it was written in."""

    contributors: tuple[Resource, ...] = ()
    """The routes of which something is left in the rule, the strongest first (record 0039)."""


@dataclass(eq=False)
class _Rule:
    owner: Resource
    matches: list[dict[str, Any]]
    default: dict[str, Any] = field(default_factory=dict)
    suppliers: dict[str, Resource] = field(default_factory=dict)
    """Whose each value is."""


def route_items(documents: Documents, kind: str, proxy: Resource, destination: Destination) -> list[Item]:
    """The items of routes for a destination, the strongest first."""
    of_kind = items(documents, kind, proxy, by_tag=destination.service is None)
    return [item for item in reversed(of_kind) if means(documents, item.policy, item.target, destination)]


def rows(documents: Documents, proxy: Resource, destination: Destination) -> list[Row]:
    """The table in the order in which its rows are tried; the last is for all that no other row takes."""
    rows = [row for rule in _rules(documents, proxy, destination) for row in _rows(rule)]
    if not any(_is_for_all(row.match) for row in rows):
        rows.append(Row({"path": _ROOT}))
    return sorted(rows, key=lambda row: specificity(row.match))


def _rules(documents: Documents, proxy: Resource, destination: Destination) -> list[_Rule]:
    """Rules with the same matches are one rule, of the strongest route; what it leaves out others say.

    `filters` and `backendRefs` are replaced as a whole. Inside one item the first of two such rules wins.
    """
    rules: dict[str, _Rule] = {}
    for item in route_items(documents, "MeshHTTPRoute", proxy, destination):
        for written in item.conf or []:
            matches = [completed(match) for match in written.get("matches") or [{}]]
            rule = rules.setdefault(json.dumps(matches, sort_keys=True), _Rule(item.policy, matches))
            default = written.get("default") or {}
            rule.suppliers = {**dict.fromkeys(default, item.policy), **rule.suppliers}
            rule.default = {**default, **rule.default}
    return list(rules.values())


def completed(match: Data) -> dict[str, Any]:
    """A header is compared exactly where nothing else is said."""
    headers = [{"type": "Exact", **header} for header in match.get("headers") or []]
    return {**match, **({"headers": headers} if headers else {})}


def _rows(rule: _Rule) -> Iterator[Row]:
    redirect = [
        filter_["requestRedirect"]
        for filter_ in rule.default.get("filters") or []
        if filter_["type"] == "RequestRedirect"
    ]
    refs = rule.default.get("backendRefs") or []
    supplied = tuple((rule.suppliers["backendRefs"], ref) for ref in refs)
    contributors = tuple(dict.fromkeys([rule.owner, *reversed(rule.suppliers.values())]))
    leads_to = redirect[0] if redirect else None
    yield from (Row(match, rule.owner, leads_to, supplied, contributors) for match in rule.matches)


def _is_for_all(match: Data) -> bool:
    return dict(match) in ({}, {"path": _ROOT})


def specificity(match: Data) -> tuple[int, ...]:
    """Kuma 2.14: the kind of the path, its length, a method, headers, parameters; then the order as it is.

    `PathPrefix: /` counts as no path (differences from Kuma, What is built for Envoy).
    """
    path = match.get("path") or _ROOT
    kind = "" if path == _ROOT else path["type"]
    length = 0 if kind in {"", "Exact"} else len(path["value"])
    counts = (len(match.get("headers") or []), len(match.get("queryParams") or []))
    return (_KINDS_OF_PATH.index(kind), -length, 0 if match.get("method") else 1, *(-count for count in counts))


def takes(match: Data, call: Call) -> bool:
    """Whether a match takes a call. All of its parts have to."""
    headers, query = dict(call.headers), dict(call.query)
    return (
        _takes_path(match.get("path") or _ROOT, call.path)
        and match.get("method", call.method) == call.method
        and all(_takes_header(header, headers.get(header["name"])) for header in _once(match.get("headers") or []))
        and all(query.get(parameter["name"]) == parameter["value"] for parameter in match.get("queryParams") or [])
    )


def _once(conditions: list[Data]) -> list[Data]:
    """Of several for one header the first counts (Gateway API, HTTPRouteMatch)."""
    return list({condition["name"]: condition for condition in reversed(conditions)}.values())


def _takes_header(header: Data, sent: str | None) -> bool:
    kind, value = header.get("type", "Exact"), str(header.get("value", ""))
    if sent is None or kind in {"Present", "Absent"}:
        return bool((sent is None) == (kind == "Absent"))
    if kind == "Prefix":
        return sent.startswith(value)
    return bool(re.fullmatch(value, sent) if kind == "RegularExpression" else sent == value)


def _takes_path(path: Data, called: str) -> bool:
    """A prefix ends at a segment (record 0020), and an expression is for the whole path."""
    kind, path_value = path["type"], path["value"]
    if kind == "Exact":
        return bool(called == path_value)
    if kind == "PathPrefix":
        return bool(path_value in {"/", called} or called.startswith(f"{path_value}/"))
    return re.fullmatch(path_value, called) is not None


def _weight(ref: Data) -> int:
    """Return the weight of a backendRef: a null in a list removes nothing, and means the default."""
    weight = ref.get("weight")
    return 1 if weight is None else int(weight)


def shares(
    documents: Documents, called: Destination, refs: tuple[tuple[Resource, Data], ...]
) -> dict[Destination | str, Fraction]:
    """How much of the calls each backend gets. What is missing costs its own share alone (record 0018)."""
    if not refs:
        return {_or_missing(called): Fraction(1)}
    weights = [(_or_missing(backend(documents, called, policy, ref)), _weight(ref)) for policy, ref in refs]
    total = sum(weight for _, weight in weights)
    shares: dict[Destination | str, Fraction] = {}
    for lead, weight in weights:
        if weight:
            shares[lead] = shares.get(lead, Fraction(0)) + Fraction(weight, total)
    return shares or {MISSING: Fraction(1)}


def _or_missing(backend: Destination | str) -> Destination | str:
    """A service outside without endpoints cannot be called."""
    return MISSING if isinstance(backend, Destination) and not backend.can_be_called else backend


def backend(documents: Documents, called: Destination, policy: Resource, ref: Data) -> Destination | str:
    """A port of a real service, or all that carries a tag: a MeshService without a port is the tag of that name."""
    if ref["kind"] == "MeshServiceSubset":
        return _tagged(documents, {"kuma.io/service": ref["name"], **ref["tags"]})
    if ref["kind"] == "MeshService" and "port" not in ref:
        return _without_port(documents, called, policy, ref)
    return port_of_one(services(documents, policy, ref), ref) or MISSING


def _without_port(documents: Documents, called: Destination, policy: Resource, ref: Data) -> Destination | str:
    """For a call by tag a tag, as in document 004. Else the port with the name of the one that was called, or with its
    number, or the only one (matching and merging, Where routes come from); and where there is none of these, a tag.
    """
    named_services = services(documents, policy, ref) if called.service else []
    if len(named_services) > 1:
        return UNCLEAR
    all_ports = list(ports(named_services))
    by_name = [port for port in all_ports if port.section == called.section]
    by_number = [port for port in all_ports if port.port == called.port]
    if by_name or by_number:
        return (by_name or by_number)[0]
    return all_ports[0] if len(all_ports) == 1 else _tagged(documents, {"kuma.io/service": ref["name"]})


def _tagged(documents: Documents, tags: dict[str, str]) -> Destination | str:
    return of_tags(documents, tags) if exists(documents, tags) else MISSING

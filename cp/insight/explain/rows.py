"""The rows of an outbound's route table: whose each is, where it is written, and why it took the request or not.

Three tables are brought together: the rows that Envoy is served, the routes of the outbound that they were built from,
and the matches in the documents. The first two are joined by name, the last two by position: `by_specificity` sorts the
matches here as it did when the outbound was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cp.insight.explain.model import ExplainedRow, ValueOrigin
from cp.insight.explain.words import precedence_reason, unmet_conditions
from cp.insight.simulate import Outcome, RowTrial
from cp.model.names import Key
from cp.model.paths import step
from cp.resources.targets import ROUTE_KINDS
from cp.resources.world import World
from cp.rules import RouteRule, by_specificity, routes, routes_of
from cp.rules.legacy.gateway_routes import GATEWAY_ROUTE, place_of_rule
from cp.translate.effective import Rules
from cp.translate.outbound import OutboundResult
from generators.proxy import Route

_IN_ORDER: Final = "the rules of a TrafficRoute are tried as they stand"
_ONLY_ROUTE: Final = "a connection has no other route"


@dataclass(frozen=True, slots=True)
class WrittenMatch:
    """The match in a document from which a row was made, and its rule."""

    match: Mapping[str, Any]
    rule: RouteRule
    hostname: str = ""
    """On a gateway, the pattern of hostnames of the route."""


def explained_rows(world: World, rules: Rules, result: OutboundResult, outcome: Outcome) -> tuple[ExplainedRow, ...]:
    outbound = result.outbound
    if not outbound.protocol.is_http:
        return tuple(only_row(world, rule) for rule in _tcp_rules(result))
    return rows_of_table(world, outcome, outbound.service, outbound.routes, _written_matches(rules, result))


def rows_of_table(
    world: World,
    outcome: Outcome,
    virtual_host: str,
    routes_of_host: Sequence[Route],
    written_matches: Mapping[int, WrittenMatch],
) -> tuple[ExplainedRow, ...]:
    """The rows of a virtual host as they are served. It was built from routes, and these from matches in documents."""
    indexes = route_indexes(virtual_host, routes_of_host, outcome)
    matches_by_row = {index: written_matches.get(of) for index, of in indexes.items()}
    taken_row = outcome.row
    winning_match = matches_by_row.get(taken_row.index) if taken_row is not None else None
    explained = (
        _explained_row(world, trial, taken_row, matches_by_row.get(trial.index), winning_match)
        for trial in outcome.rows
    )
    return tuple(replace(row, is_patched=row.index not in indexes) for row in explained)


def only_row(world: World, rule: RouteRule) -> ExplainedRow:
    """The row of a connection, which has no other."""
    origin = _rule_origin(world, rule)
    return ExplainedRow(
        0,
        rule.origin.policy,
        origin,
        weaker_contributors=(),
        conditions=(),
        matches=True,
        is_taken=True,
        why=_ONLY_ROUTE,
    )


def row_without_rule() -> ExplainedRow:
    """Return the row of connections for which no route resource has a rule: all go to the destination."""
    return ExplainedRow(
        0, None, None, weaker_contributors=(), conditions=(), matches=True, is_taken=True, why=_ONLY_ROUTE
    )


def taken_route(result: OutboundResult, outcome: Outcome) -> Route | None:
    """The outbound's route from which the row that took the call was built; None if no row did, or a patch wrote it."""
    if not result.outbound.protocol.is_http:
        return result.outbound.routes[0]
    return taken_of(outcome, result.outbound.service, result.outbound.routes)


def taken_of(outcome: Outcome, virtual_host: str, routes_of_host: Sequence[Route]) -> Route | None:
    """The route of a virtual host from which the row that took the call was built."""
    indexes = route_indexes(virtual_host, routes_of_host, outcome)
    route_index = None if outcome.row is None else indexes.get(outcome.row.index)
    return None if route_index is None else routes_of_host[route_index]


def route_indexes(virtual_host: str, routes_of_host: Sequence[Route], outcome: Outcome) -> Mapping[int, int]:
    """The index of the route from which each served row was built. Patches can add rows, remove and rename them.

    Rows are matched by name, and several of one name in order. If a patch changed how many rows have a name, none of
    them can be told apart, and they count as the patch's.
    """
    if outcome.virtual_host != virtual_host:
        return {}
    own_rows = _indexes_by_name([row.name for row in routes_of_host])
    served_rows = _indexes_by_name([row.name for row in outcome.rows])
    shared_names = (name for name, indexes in served_rows.items() if len(indexes) == len(own_rows.get(name, ())))
    return {
        served_index: own_index
        for name in shared_names
        for served_index, own_index in zip(served_rows[name], own_rows[name], strict=True)
    }


def _indexes_by_name(names: Sequence[str]) -> Mapping[str, list[int]]:
    indexes: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        indexes.setdefault(name, []).append(index)
    return indexes


def _explained_row(
    world: World,
    trial: RowTrial,
    taken_row: RowTrial | None,
    written: WrittenMatch | None,
    winning_match: WrittenMatch | None,
) -> ExplainedRow:
    return ExplainedRow(
        index=trial.index,
        owner=None if written is None else written.rule.origin.policy,
        origin=None if written is None else match_origin(world, written),
        weaker_contributors=() if written is None else _weaker_contributors(written.rule),
        conditions=trial.conditions,
        matches=trial.matches,
        is_taken=trial is taken_row,
        why=_reason(trial, taken_row, written, winning_match),
        hostname="" if written is None else written.hostname,
    )


def _weaker_contributors(rule: RouteRule) -> tuple[Key, ...]:
    return tuple(dict.fromkeys(origin.policy for origin in rule.origins if origin.policy != rule.origin.policy))


def _reason(
    trial: RowTrial, taken_row: RowTrial | None, written: WrittenMatch | None, winning_match: WrittenMatch | None
) -> str:
    if trial is taken_row:
        return "the first that takes the request"
    if trial.matches is False:
        return unmet_conditions(trial.conditions)
    if trial.matches is None:
        return "whether it takes the request cannot be told"
    if written is not None and winning_match is not None and written.hostname != winning_match.hostname:
        return "takes it too, and comes later: it is for wider hostnames"
    if written is not None and written.rule.is_in_order:
        return f"takes it too, and comes later: {_IN_ORDER}"
    reason = precedence_reason(
        None if written is None else written.match, None if winning_match is None else winning_match.match
    )
    return f"takes it too, and comes later: {reason}"


def _written_matches(rules: Rules, result: OutboundResult) -> Mapping[int, WrittenMatch]:
    """The match from which each route of an outbound was made, by index; none for the route to the service itself."""
    for route_rules in (*(_route_rules(rules, kind, result) for kind in rules), _legacy_rules(rules, result)):
        pairs = by_specificity(route_rules)
        if _are_made_from(result, pairs):
            return {index: WrittenMatch(match, rule) for index, (match, rule) in enumerate(pairs)}
    return {}


def _route_rules(rules: Rules, kind: str, result: OutboundResult) -> Sequence[RouteRule]:
    is_route = any(rule.owner.type == kind for rule in result.route_rules.values())
    return routes(rules[kind], result.address.destination) or () if is_route else ()


def _legacy_rules(rules: Rules, result: OutboundResult) -> Sequence[RouteRule]:
    """The rules of the TrafficRoute for an outbound, if it is that which gives it its routes."""
    owners = {rule.origin.policy for rule in result.route_rules.values() if rule.is_in_order}
    legacy = rules.legacy.of_service(result.address.destination.service, result.outbound.protocol) if owners else {}
    tables = (routes_of(conf) for kind, conf in legacy.items() if kind in ROUTE_KINDS)
    return next((table for table in tables if table and table[0].origin.policy in owners), ())


def _are_made_from(result: OutboundResult, pairs: Sequence[tuple[Mapping[str, Any], RouteRule]]) -> bool:
    return 0 < len(pairs) <= len(result.outbound.routes) and result.outbound.protocol.is_http


def _tcp_rules(result: OutboundResult) -> Iterator[RouteRule]:
    """The rule of the outbound's TCP route, if there is one."""
    return (rule for owner, rule in result.route_rules.items() if owner == result.outbound.routes[0].owner)


def match_origin(world: World, written: WrittenMatch) -> ValueOrigin:
    """Where a match is written in the document of its route."""
    origin = _rule_origin(world, written.rule)
    if written.rule.is_in_order:
        return origin
    index = next((position for position, match in enumerate(written.rule.matches) if match is written.match), 0)
    path = step(step(origin.path, "matches"), index)
    return replace(origin, path=path, line=written.rule.origin.source.line(path))


def _rule_origin(world: World, rule: RouteRule) -> ValueOrigin:
    origin = rule.origin
    if rule.is_in_order:
        path = rule.backends_path.rpartition(".")[0]
        line = origin.source.line(path)
        return ValueOrigin(None, origin.level, origin.policy, path, path, origin.file, line)
    policy = world.get(origin.policy)
    if policy is not None and policy.type == GATEWAY_ROUTE:
        path, part = place_of_rule(policy, rule.matches), origin.path
    else:
        path, part = origin.path if policy is None else _rule_path(policy.data, rule), f"to[{origin.index}]"
    return ValueOrigin(None, origin.level, origin.policy, part, path, origin.file, origin.source.line(path))


def _rule_path(data: Mapping[str, Any], rule: RouteRule) -> str:
    """The path of a rule in its document. Of several rules with equal matches the first one counts."""
    rules = data["to"][rule.origin.index].get("rules") or ()
    position = next(
        (
            position
            for position, rule_data in enumerate(rules)
            if list(rule_data.get("matches") or ()) == list(rule.matches)
        ),
        None,
    )
    return rule.origin.path if position is None else step(step(rule.origin.path, "rules"), position)

"""Values for a service that hold for no request, because each of its routes has a value of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.gateway_decisions import GatewayDecision
from cp.insight.lint.survey import MeshSurvey
from cp.insight.lint.wording import destination_name, origin_name
from cp.model.names import Destination, Key
from cp.model.violation import Finding
from cp.rules.merging import MergedField, Origin
from cp.translate.effective import BUILT_IN
from cp.translate.outbound import OutboundResult

_Value: TypeAlias = tuple[Key, str]


@dataclass(slots=True)
class _ServiceValue:
    """A value for a service, with a destination at which routes hide it, and the policies of those routes."""

    destination: Destination
    hidden_by: dict[str, None] = field(default_factory=dict)
    holds: bool = False
    """Whether it holds for some request to some destination."""


def hidden(survey: MeshSurvey) -> Iterator[Finding]:
    """Values that are hidden at every service for which they are written."""
    values: dict[_Value, _ServiceValue] = {}
    for outbounds in survey.outbounds:
        for outbound in outbounds.proxy_class.outbounds.values():
            _add_values(survey, outbound, values)
    for decision in survey.decisions:
        if isinstance(decision, GatewayDecision):
            _add_gateway(decision, values)
    for (key, path), value in values.items():
        policy = survey.world.get(key)
        if policy is not None and not value.holds:
            name = destination_name(value.destination)
            text = f"holds for no request to {name}: each of its routes has its own value, from "
            hint = "remove it, or theirs"
            yield finding_about(policy, FindingReason("hidden-by-route", text + ", ".join(value.hidden_by), path, hint))


def _add_values(survey: MeshSurvey, outbound: OutboundResult, values: dict[_Value, _ServiceValue]) -> None:
    for kind, merged in outbound.effective.items():
        policy = survey.policies[kind]
        for path, merged_field in merged.fields.items() if policy.is_hidden_by_routes else ():
            winner = merged_field.winner
            if winner.origin.part != BUILT_IN and _is_within(path, policy.route_fields):
                key = (winner.origin.policy, winner.path)
                value = values.setdefault(key, _ServiceValue(outbound.address.destination))
                rivals = _rivals(outbound, kind, path, merged_field)
                value.holds |= rivals is None
                value.hidden_by |= dict.fromkeys(map(origin_name, rivals or ()))


def _add_gateway(decision: GatewayDecision, values: Mapping[_Value, _ServiceValue]) -> None:
    """On a gateway a value holds wherever it is not overridden: no listener has a value that its routes hide."""
    for merged_field in decision.merged.fields.values():
        value = values.get((merged_field.winner.origin.policy, merged_field.winner.path))
        if value is not None:
            value.holds = True


def _rivals(outbound: OutboundResult, kind: str, path: str, merged_field: MergedField) -> tuple[Origin, ...] | None:
    """The origin of each route's value for the field; None where a route has none, or not all rows are of routes."""
    rows = outbound.outbound.routes
    if not outbound.outbound.protocol.is_http or not all(row.owner for row in rows):
        return None
    confs = (outbound.of_routes[row.owner].get(kind) for row in rows)
    fields = [None if conf is None else conf.fields.get(path) for conf in confs]
    winners = (field_.winner for field_ in fields if field_ is not None)
    rivals = tuple(winner.origin for winner in winners if winner != merged_field.winner)
    return rivals if len(rivals) == len(fields) else None


def _is_within(path: str, fields: Iterable[str]) -> bool:
    return any(f"{path}.".startswith((f"{name}.", f"{name}[")) for name in fields)

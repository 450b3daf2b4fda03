"""Why a route does nothing at the listeners of a builtin gateway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cp.insight.lint.any_decision import AnyDecision
from cp.insight.lint.codes import FindingReason
from cp.insight.lint.gateway_decisions import GatewayTableDecision
from cp.insight.lint.routes import matches_key
from cp.insight.lint.survey import MeshSurvey
from cp.model.hosts import common
from cp.model.paths import step
from cp.resources.resource import Resource
from cp.resources.targets import GATEWAY, HTTP_ROUTE, ROUTE_KINDS, TCP_ROUTE
from cp.rules import PolicyItem
from cp.rules.matching import top_of
from cp.translate.view.gateways import ServedListener, ServedPort

_SHOWN: Final = 5
"""Of the hostnames of listeners, which may be thousands."""


def of_listeners(survey: MeshSurvey, item: PolicyItem) -> FindingReason | None:
    """The reason where none of the listeners that a route selects takes its type, or its hostnames."""
    if not is_for_gateways(item.policy):
        return None
    selected = selected_listeners(survey, item.policy)
    fitting = fitting_listeners(item.policy, selected)
    if selected and not fitting:
        return _of_wrong_type(item.policy, selected[0][0])
    lost = list(hostnames_not_taken(item, fitting))
    return lost[0] if lost and len(lost) == len(item.layer.conf.get("hostnames") or ()) else None


def of_table(item: PolicyItem, decisions: Sequence[AnyDecision]) -> FindingReason | None:
    """The reason where requests never come to a route, because routes for narrower hostnames take every one."""
    tables = [decision for decision in decisions if isinstance(decision, GatewayTableDecision)]
    if not tables or len(tables) < len(decisions) or not (item.layer.conf.get("rules") or item.layer.conf):
        return None
    if any(table.leaves_out for table in tables):
        return None
    own = {matches_key(rule.get("matches") or ()) for rule in item.layer.conf.get("rules") or ()}
    met = (rule for table in tables for rule in table.rules)
    if any(not own or matches_key(rule.matches) in own for rule in met):
        return None
    text = "routes for the same or for narrower hostnames take every request"
    path = step(item.origin.path, "hostnames")
    return FindingReason("unreachable-route", text, path, "give it a narrower hostname, or remove it")


def is_for_gateways(policy: Resource) -> bool:
    return policy.type in ROUTE_KINDS and top_of(policy).kind == GATEWAY


def selected_listeners(survey: MeshSurvey, policy: Resource) -> list[tuple[ServedPort, ServedListener]]:
    """The listeners that a policy selects, and that are served."""
    return [
        (port, listener)
        for gateway, indexes in survey.selected_listeners.get(policy, {}).items()
        for port in survey.gateways[gateway].served.ports
        for listener in port.listeners
        if listener.index in indexes
    ]


def fitting_listeners(policy: Resource, listeners: Iterable[tuple[ServedPort, ServedListener]]) -> list[ServedListener]:
    """Those of some listeners that have routes of the type of a policy."""
    return [listener for port, listener in listeners if port.is_http is (policy.type == HTTP_ROUTE)]


def hostnames_not_taken(item: PolicyItem, listeners: Sequence[ServedListener]) -> Iterator[FindingReason]:
    """The hostnames of a route that none of some listeners takes."""
    taken = tuple(dict.fromkeys(listener.hostname for listener in listeners))
    wild, known = tuple(name for name in taken if "*" in name), frozenset(taken)
    for index, hostname in enumerate(item.layer.conf.get("hostnames") or () if taken else ()):
        name = hostname.lower()
        # A pattern has listeners within it, a name has those that cover it alone.
        within = taken if "*" in name else wild
        if name not in known and not any(common(pattern, name) for pattern in within):
            path = step(step(item.origin.path, "hostnames"), index)
            text = f"none of the listeners takes {hostname}: they are for {_first_of(taken)}"
            hint = "give a listener this hostname, or a pattern that it fits"
            yield FindingReason("hostname-not-taken", text, path, hint)


def _first_of(hostnames: Sequence[str]) -> str:
    shown = ", ".join(hostnames[:_SHOWN])
    return shown if len(hostnames) <= _SHOWN else f"{shown} and {len(hostnames) - _SHOWN} others"


def _of_wrong_type(policy: Resource, port: ServedPort) -> FindingReason:
    fitting = TCP_ROUTE if policy.type == HTTP_ROUTE else HTTP_ROUTE
    text = f"a {policy.type} has no meaning at the listeners that it selects, which are for {port.protocol}"
    return FindingReason(
        "no-meaning", text, "spec.targetRef", f"write a {fitting}, or select other listeners by `tags`"
    )

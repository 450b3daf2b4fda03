"""Routes that decide nothing for a destination, because it speaks another protocol or has routes of the other kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.insight.lint.walk import BlockedItem
from cp.insight.lint.wording import destination_name, listed, origin_name, where_protocol_is_said
from cp.model.paths import step
from cp.model.violation import Finding
from cp.rules import PolicyItem


def blocked(survey: MeshSurvey) -> Iterator[Finding]:
    """Items of routes that decide nothing for a destination, of routes that have an effect elsewhere."""
    for blocked_item in survey.blocked:
        policy = blocked_item.item.policy
        if policy in survey.judged_set and policy.key in survey.effects.effective:
            yield finding_about(policy, blocked_reason(blocked_item.item, [blocked_item]))


def blocked_reason(item: PolicyItem, blocked: Sequence[BlockedItem]) -> FindingReason:
    """A route that decides nothing for its destination."""
    path, service = step(item.origin.path, "targetRef"), destination_name(blocked[0].destination)
    if blocked[0].by:
        by = listed(origin_name(origin) for origin in blocked[0].by)
        hint = "say the same in a MeshHTTPRoute, or remove one of them"
        return FindingReason(
            "shadowed-route", f"for {service} the MeshHTTPRoute counts, and not this one: {by}", path, hint
        )
    where = where_protocol_is_said(blocked[0].destination)
    hint = f"if it speaks HTTP, say so in {where}; else write a MeshTCPRoute"
    return FindingReason(
        "no-meaning", f"a {item.policy.type} has no meaning for {service}, which speaks tcp", path, hint
    )

"""Policies whose tags divide clients or services into more groups than can be computed."""

from __future__ import annotations

from collections.abc import Iterator

from cp.insight.lint.codes import FindingReason, found
from cp.insight.lint.survey import MeshSurvey
from cp.model.violation import Finding
from cp.resources.resource import Resource
from cp.rules import PolicyRules

_HINT = "tell fewer apart by tags, or divide the proxies among several policies by the top-level `targetRef`"


def too_many(survey: MeshSurvey) -> Iterator[Finding]:
    """Policies of one kind that select a proxy are computed together, so none of them is in force on it."""
    seen: set[tuple[Resource, str]] = set()
    for rules in survey.too_much:
        part = "from" if rules.shape.from_ and rules.from_().has_too_many_parts else "to"
        for policy in (matched.policy for matched in rules.matched if matched.policy.data.get(part)):
            if (policy, part) not in seen:
                seen.add((policy, part))
                yield found(policy, FindingReason("too-many-clients", _text(rules, part), f"spec.{part}", _HINT))


def _text(rules: PolicyRules, part: str) -> str:
    whom = "clients" if part == "from" else "services"
    all_policies = f"by their tags, the {rules.kind.name}s of a proxy together"
    return f"not in force: {all_policies} tell apart more sorts of {whom} than can be worked out"

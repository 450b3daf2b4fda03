"""Policies that tell more sorts of clients or services apart than can be worked out."""

from __future__ import annotations

from collections.abc import Iterator

from cp.insight.lint.codes import FindingReason, found
from cp.insight.lint.survey import MeshSurvey
from cp.model.violation import Finding
from cp.resources.resource import Resource
from cp.rules import PolicyRules

_HINT = "tell fewer apart by tags, or divide the proxies among several policies by the top-level `targetRef`"


def too_many(scene: MeshSurvey) -> Iterator[Finding]:
    """The parts of all policies of a kind that select a proxy are worked out together, so all of them are left out."""
    seen: set[tuple[Resource, str]] = set()
    for rules in scene.too_much:
        part = "from" if rules.shape.from_ and rules.from_().has_too_many_parts else "to"
        for policy in (matched.policy for matched in rules.matched if matched.policy.data.get(part)):
            if (policy, part) not in seen:
                seen.add((policy, part))
                yield found(policy, FindingReason("too-many-clients", _text(rules, part), f"spec.{part}", _HINT))


def _text(rules: PolicyRules, part: str) -> str:
    whom = "clients" if part == "from" else "services"
    every = f"by their tags, the {rules.kind.name}s of a proxy together"
    return f"not in force: {every} tell apart more sorts of {whom} than can be worked out"

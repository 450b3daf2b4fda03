"""What mTLS, or that there is none, means for the policies of a mesh."""

from __future__ import annotations

from collections.abc import Iterator

from cp.insight.enforcement import parts_without_mtls
from cp.insight.lint.codes import NO_EFFECT, FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.model.violation import Finding


def off(survey: MeshSurvey) -> Iterator[Finding]:
    """Policies that need mTLS, in meshes that have none; of the judged ones the rule `idle` tells it."""
    for policy in survey.world:
        if policy.kind.policy is not None and policy not in survey.judged_set:
            for part in parts_without_mtls(survey.world, policy):
                text = f"{NO_EFFECT}: {part.sentence}"
                yield finding_about(policy, FindingReason("mtls-off", text, part.path or policy.kind.root, part.hint))

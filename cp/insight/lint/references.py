"""References in the confs of policies: those to nothing, and those to what the policy cannot use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.model.violation import Finding
from cp.resources.resource import Resource
from cp.resources.schema import near
from cp.resources.world import Table
from cp.translate.view.backend_refs import references as references_of
from cp.translate.view.backend_refs import referred

_BY_GRPC: Final = frozenset({"MeshAccessLog"})
"""Policies whose telemetry Envoy sends by gRPC and in no other way."""


def references(survey: MeshSurvey) -> Iterator[Finding]:
    for policy in survey.world:
        if policy.kind.policy is not None:
            for path, reference in references_of(policy.data, policy.kind.root):
                table = survey.world.table(reference["kind"], policy.mesh)
                if (why := _reason(policy, path, reference, table)) is not None:
                    yield finding_about(policy, why)


def _reason(policy: Resource, path: str, reference: Mapping[str, Any], table: Table) -> FindingReason | None:
    resource = referred(table, reference)
    if resource is None:
        labels = sorted((reference.get("labels") or {}).items())
        wanted_name = str(reference.get("name") or " ".join(f"{label}={value}" for label, value in labels))
        hint = (
            near(wanted_name, [candidate.display_name for candidate in table]) or "create it, or correct the reference"
        )
        return FindingReason(
            "refers-to-nothing", f"there is no {reference['kind']} {wanted_name}: nothing is sent", path, hint
        )
    if policy.type in _BY_GRPC and resource.spec.protocol == "http":
        text = f"has no effect: Envoy sends logs by gRPC, and {resource.type} {resource.display_name} takes HTTP"
        return FindingReason("does-not-apply", text, path, "refer to one with `protocol: grpc`")
    return None

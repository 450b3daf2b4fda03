"""References in the confs of policies: those to nothing, and those to what the policy cannot use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cp.insight.lint.codes import FindingReason, found
from cp.insight.lint.survey import MeshSurvey
from cp.model.violation import Finding
from cp.resources.resource import Resource
from cp.resources.schema import near
from cp.resources.world import Table
from cp.translate.view.backend_refs import references as every
from cp.translate.view.backend_refs import referred

_BY_GRPC: Final = frozenset({"MeshAccessLog"})
"""Policies whose telemetry Envoy sends by gRPC and in no other way."""


def references(survey: MeshSurvey) -> Iterator[Finding]:
    for policy in survey.world:
        if policy.kind.policy is not None:
            for path, reference in every(policy.data, policy.kind.root):
                table = survey.world.table(reference["kind"], policy.mesh)
                if (why := _reason(policy, path, reference, table)) is not None:
                    yield found(policy, why)


def _reason(policy: Resource, path: str, reference: Mapping[str, Any], table: Table) -> FindingReason | None:
    resource = referred(table, reference)
    if resource is None:
        labels = sorted((reference.get("labels") or {}).items())
        wanted = reference.get("name") or " ".join(f"{name}={value}" for name, value in labels)
        hint = near(str(wanted), [one.display_name for one in table]) or "create it, or correct the reference"
        return FindingReason(
            "refers-to-nothing", f"there is no {reference['kind']} {wanted}: nothing is sent", path, hint
        )
    if policy.type in _BY_GRPC and resource.spec.protocol == "http":
        text = f"has no effect: Envoy sends logs by gRPC, and {resource.type} {resource.display_name} takes HTTP"
        return FindingReason("does-not-apply", text, path, "refer to one with `protocol: grpc`")
    return None

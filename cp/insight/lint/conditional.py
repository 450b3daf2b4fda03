"""Fields that do nothing because of the confs that hold for the proxies of their policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cp.insight.lint.codes import FindingReason, found
from cp.insight.lint.survey import MeshSurvey
from cp.model.violation import Finding
from cp.policies import Policy
from cp.resources.resource import Resource
from cp.resources.schema import decode
from cp.rules.matching import match


def conditional(survey: MeshSurvey) -> Iterator[Finding]:
    """Fields that, by what their policy says, do nothing for any of the proxies that it is for."""
    for policy in survey.policies.values():
        if type(policy).fields_without_effect is not Policy.fields_without_effect:
            yield from _without_effect(survey, policy)


def _without_effect(survey: MeshSurvey, policy: Policy[Any]) -> Iterator[Finding]:
    for resource, confs in _confs(survey, policy).items():
        written = resource.data.get("default") or {}
        for violation in policy.fields_without_effect(tuple(confs)):
            if written.get(violation.path):
                fault = replace(violation, path=f"spec.default.{violation.path}")
                yield found(resource, FindingReason("does-not-apply", fault.message, fault.path, fault.hint))


def _confs(survey: MeshSurvey, policy: Policy[Any]) -> Mapping[Resource, list[Any]]:
    """By resource of the policy, the confs that hold for the proxies that it is for and on which it can act."""
    kind = policy.kind.name
    confs: dict[Resource, list[Any]] = {}
    for proxy in survey.proxies:
        can_act = proxy.capture_result is not None or not policy.is_for_captured_calls
        matched = match(survey.world, proxy.dataplane).get(kind, ()) if can_act else ()
        for resource in {matched_policy.policy for matched_policy in matched} & survey.judged_set:
            merged = proxy.sidecar.effective.get(kind)
            confs.setdefault(resource, []).append(decode(policy.conf, {} if merged is None else merged.value))
    return confs

"""Matches of MeshPassthroughs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cp.insight.lint.codes import FindingReason, found
from cp.insight.lint.survey import MeshSurvey
from cp.insight.lint.walk import PASSTHROUGH
from cp.model.violation import Finding
from cp.resources.resource import Resource
from cp.rules.matching import match

_MATCHED: Final = "Matched"


def passthrough(scene: MeshSurvey) -> Iterator[Finding]:
    """Matches that nobody looks at, because everything passes or nothing does."""
    for policy, modes in _modes(scene).items():
        if (policy.data.get("default") or {}).get("appendMatch") and _MATCHED not in modes:
            said = " or ".join(sorted(modes))
            text = (
                f"changes nothing: the mode is {said} for every proxy that it is for, and matches count in {_MATCHED}"
            )
            hint = "remove it, or write `passthroughMode: Matched`"
            yield found(policy, FindingReason("does-not-apply", text, "spec.default.appendMatch", hint))


def _modes(scene: MeshSurvey) -> Mapping[Resource, set[str]]:
    """The modes that hold for the proxies of each policy, of those to which something is redirected."""
    every: dict[Resource, set[str]] = {}
    for proxy in scene.proxies:
        matched = match(scene.world, proxy.dataplane).get(PASSTHROUGH, ()) if proxy.capture_result is not None else ()
        for policy in {one.policy for one in matched} & scene.judged_set:
            said = proxy.sidecar.effective.get(PASSTHROUGH)
            mode = (said.value.get("passthroughMode") if said is not None else None) or _MATCHED
            every.setdefault(policy, set()).add(mode)
    return every

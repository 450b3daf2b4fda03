"""Changes that cannot be made to a proxy, and changes that find nothing to change."""

from __future__ import annotations

from collections.abc import Iterator

from cp.insight.lint.codes import NO_EFFECT, FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.insight.parts import fragments_of, made_in
from cp.model.names import Key
from cp.model.violation import Finding
from cp.translate.effective import Effective


def patches(survey: MeshSurvey) -> Iterator[Finding]:
    yield from _failed(survey)
    for policy in survey.policies.values():
        if policy.change_list:
            yield from _unused(survey, policy.kind.name, policy.change_list)


def _failed(survey: MeshSurvey) -> Iterator[Finding]:
    """The changes that cannot be made to something that they are about. They may be made elsewhere all the same."""
    made = {
        _written(proxy.sidecar.effective, kind, path)
        for proxy in survey.proxies
        for fragment in fragments_of(proxy)
        for kind, path in made_in(fragment)
    }
    for proxy in survey.proxies:
        for fragment in fragments_of(proxy):
            for kind, path, reason in fragment.problems:
                policy, where = _written(proxy.sidecar.effective, kind, path)
                effect = "is not made everywhere" if (policy, where) in made else NO_EFFECT
                hint = "compare it with what `koguma render` prints"
                yield from _finding(survey, policy, FindingReason("does-not-apply", f"{effect}: {reason}", where, hint))


def _unused(survey: MeshSurvey, kind: str, change_list: str) -> Iterator[Finding]:
    """The changes that find nothing to change in any of the proxies that their policy selects."""
    written, used = set[tuple[Key, str]](), set[tuple[Key, str]]()
    for proxy in survey.proxies:
        effective = proxy.sidecar.effective
        if kind not in effective:
            continue
        written |= {_written(effective, kind, path) for path in effective[kind].fields if path.startswith(change_list)}
        used_paths = {path for fragment in fragments_of(proxy) for used_by, path in fragment.used if used_by == kind}
        used |= {_written(effective, kind, path) for path in used_paths}
    for policy, where in sorted(written - used):
        text = "changes nothing: no proxy that it is for has what `match` is about"
        yield from _finding(
            survey, policy, FindingReason("does-not-apply", text, where, "compare it with `koguma render`")
        )


def _written(effective: Effective, kind: str, path: str) -> tuple[Key, str]:
    """The policy that wrote the value at a path of a merged conf, and the path in its document."""
    field, where = effective[kind].written(path)
    return field.winner.origin.policy, where


def _finding(survey: MeshSurvey, policy: Key, reason: FindingReason) -> Iterator[Finding]:
    if (resource := survey.world.get(policy)) is not None:
        yield finding_about(resource, reason)

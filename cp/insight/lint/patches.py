"""What policies ask of a proxy that it cannot be given, and changes that are about nothing."""

from __future__ import annotations

from collections.abc import Iterator

from cp.insight.lint.codes import FindingReason, found
from cp.insight.lint.survey import MeshSurvey
from cp.model.names import Key
from cp.model.violation import Finding
from cp.translate.compiler import CompiledProxy
from cp.translate.effective import Effective
from cp.translate.fragments import Fragment

_KIND = "MeshProxyPatch"
_LIST = "appendModifications"


def patches(scene: MeshSurvey) -> Iterator[Finding]:
    yield from _failed(scene)
    yield from _idle(scene)


def _failed(scene: MeshSurvey) -> Iterator[Finding]:
    for proxy in scene.proxies:
        for fragment in _fragments(proxy):
            for kind, path, reason in fragment.problems:
                policy, where = _written(proxy.sidecar.effective, kind, path)
                hint = "compare it with what `koguma render` prints"
                yield from _finding(
                    scene, policy, FindingReason("does-not-apply", f"has no effect: {reason}", where, hint)
                )


def _idle(scene: MeshSurvey) -> Iterator[Finding]:
    """Those about which there is nothing in any of the proxies that a policy selects."""
    asked, used = set[tuple[Key, str]](), set[tuple[Key, str]]()
    for proxy in scene.proxies:
        effective = proxy.sidecar.effective
        if _KIND not in effective:
            continue
        asked |= {_written(effective, _KIND, path) for path in effective[_KIND].fields if path.startswith(_LIST)}
        every = {one for fragment in _fragments(proxy) for one in fragment.used}
        used |= {_written(effective, kind, path) for kind, path in every}
    for policy, where in sorted(asked - used):
        text = "changes nothing: no proxy that it is for has what `match` is about"
        yield from _finding(
            scene, policy, FindingReason("does-not-apply", text, where, "compare it with `koguma render`")
        )


def _fragments(proxy: CompiledProxy) -> Iterator[Fragment]:
    yield from (entry.fragment for entry in proxy.bundle.entries.values())
    yield from (fragment for upstream in proxy.bundle.upstreams.values() for fragment in upstream.fragments)
    yield from (reached.fragment for reached in proxy.inbounds)
    yield proxy.sidecar.fragment
    if proxy.capture_result is not None:
        yield proxy.capture_result.fragment


def _written(effective: Effective, kind: str, path: str) -> tuple[Key, str]:
    """Who wrote what stands at a path of a merged conf, and where."""
    found, where = effective[kind].written(path)
    return found.winner.origin.policy, where


def _finding(scene: MeshSurvey, policy: Key, reason: FindingReason) -> Iterator[Finding]:
    if (resource := scene.world.get(policy)) is not None:
        yield found(resource, reason)

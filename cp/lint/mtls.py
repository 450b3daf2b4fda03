"""What needs mTLS, in meshes in which it is off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cp.lint.codes import Reason, found
from cp.lint.scene import Scene
from cp.model.violation import Finding
from cp.resources.resource import Resource

_WHOLE: Final = {
    "MeshTrafficPermission": "nobody's identity is known, so everybody may call",
    "MeshTLS": "there is no TLS that it could be about",
}
_HINT: Final = "switch it on: set `mtls.enabledBackend` of Mesh {}"


def mtls(scene: Scene) -> Iterator[Finding]:
    for resource in scene.world:
        mesh = scene.world.mesh(resource.mesh) if resource.mesh else None
        if mesh is not None and mesh.spec.authority is None:
            yield from _of(resource)


def _of(resource: Resource) -> Iterator[Finding]:
    hint = _HINT.format(resource.mesh)
    if resource.type in _WHOLE:
        yield found(resource, Reason("mtls-off", f"mTLS is off: {_WHOLE[resource.type]}", resource.kind.root, hint))
        return
    for path in _clients_told_apart(resource) if resource.kind.policy is not None else ():
        text = "mTLS is off, and without it one client cannot be told from another"
        yield found(resource, Reason("mtls-off", text, path, hint))


def _clients_told_apart(policy: Resource) -> Iterator[str]:
    for index, item in enumerate(policy.data.get("from") or ()):
        if (item.get("targetRef") or {}).get("kind", "Mesh") != "Mesh":
            yield f"spec.from[{index}].targetRef"
    for index, rule in enumerate(policy.data.get("rules") or ()):
        yield from (f"spec.rules[{index}].matches[{at}]" for at, one in _matches(rule) if "spiffeID" in one)


def _matches(rule: Any) -> Iterator[tuple[int, Any]]:
    return enumerate(rule.get("matches") or ())

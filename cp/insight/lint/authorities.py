"""Authorities of meshes that cannot sign, or will not for long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.identity.authority import expiry_of
from cp.identity.backends import enabled_authority, is_missing
from cp.identity.trust import trust_of
from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.model.secret_names import trust_key
from cp.model.violation import Finding, Violation
from cp.resources.mesh import CaBackend
from cp.resources.resource import Resource
from cp.resources.world import World

NO_AUTHORITY: Final = "no-authority"
ENDS: Final = "authority-ends"

_LONG: Final = 30 * 86_400.0
_PART: Final = 0.2
"""Of the life of an authority: one that is made for less than half a year is not told of from its first day."""


def authorities(survey: MeshSurvey) -> Iterator[Finding]:
    for mesh in survey.world.table("Mesh"):
        backend = mesh.spec.authority
        if backend is not None:
            yield from _unable(survey.world, mesh, backend, survey.now)
            yield from _ending(survey.world, mesh, backend, survey.now)


def _unable(world: World, mesh: Resource, backend: CaBackend, now: float | None) -> Iterator[Finding]:
    """Why it cannot sign, as far as documents say that. Files are on the machine of the control plane, which logs it.

    What is not made yet will be, and where the time is not known nothing has expired.
    """
    if _has_files(backend) or is_missing(world, mesh.name, backend):
        return
    fault = enabled_authority(world, mesh, _unread, now)
    if isinstance(fault, Violation):
        yield finding_about(mesh, FindingReason(NO_AUTHORITY, fault.message, fault.path, fault.hint))


def _ending(world: World, mesh: Resource, backend: CaBackend, now: float | None) -> Iterator[Finding]:
    record = trust_of(world.get(trust_key(mesh.name)))
    root = record.root(record.signer)
    life = None if root is None else expiry_of(root.certificate)
    if life is None or now is None:
        return
    begins, ends = life
    margin = max(backend.leaf_lifetime, min(_LONG, (ends - begins) * _PART))
    if now < ends - margin:
        return
    days = max(0, int((ends - now) // 86_400))
    text = f"ends in {days} days, and with it all certificates, which are not renewed beyond that"
    hint = "give a new certificate, or a new name to a built-in authority: the old one stays trusted meanwhile"
    yield finding_about(mesh, FindingReason(ENDS, text, "mtls.enabledBackend", hint))


def _has_files(backend: CaBackend) -> bool:
    conf = backend.conf
    sources = (conf.cert, conf.key) if conf is not None else ()
    return any(source is not None and source.file is not None for source in sources)


def _unread(path: str) -> bytes:
    raise OSError(0, f"{path} is on another machine")

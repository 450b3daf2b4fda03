"""Authorities of Meshes and MeshIdentities that cannot sign, or will not for long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.identity.authority import expiry_of
from cp.identity.owners import AuthorityOwner, MeshOwner, owners
from cp.identity.trust import pem_blocks
from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.insight.roots import ALIKE, UNREAD, faults_of_roots
from cp.model.violation import Finding, Violation
from cp.resources.resource import Resource
from cp.resources.world import World

NO_AUTHORITY: Final = "no-authority"
ENDS: Final = "authority-ends"

_TRUSTED_BESIDE: Final = FindingReason(
    "trusts-more",
    "adds authorities that may sign for every service of this mesh, beside the one that the Mesh has",
    "spec.trustDomain",
    "write the trust domain of those who shall be trusted, or remove it",
)

_LONG: Final = 30 * 86_400.0
_PART: Final = 0.2
"""Of the life of an authority: one that is made for less than half a year is not told of from its first day."""


def authorities(survey: MeshSurvey) -> Iterator[Finding]:
    for owner in owners(survey.world):
        if owner.has_authority and owner.resource is not None:
            yield from _unable(survey.world, owner, owner.resource, survey.now)
            yield from _ending(survey.world, owner, owner.resource, survey.now)


def trusted_beside(survey: MeshSurvey) -> Iterator[Finding]:
    """MeshTrusts by which others than the authority of the Mesh sign for any service of it."""
    for mesh in survey.world.table("Mesh"):
        owner = MeshOwner(mesh)
        if not owner.has_authority:
            continue
        known = frozenset(pem_blocks(owner.record(survey.world).certificates))
        for trust in survey.world.table("MeshTrust", mesh.name):
            if trust.spec.trust_domain == mesh.name and not known.issuperset(trust.spec.certificates()):
                yield finding_about(trust, _TRUSTED_BESIDE)


def alike(survey: MeshSurvey) -> Iterator[Finding]:
    """Authorities that Envoy takes for one another."""
    for mesh in survey.world.table("Mesh"):
        for resource, fault in faults_of_roots(survey.world, mesh.name):
            yield finding_about(resource, FindingReason(ALIKE, fault.message, fault.path, fault.hint))


def _unable(world: World, owner: AuthorityOwner, resource: Resource, now: float | None) -> Iterator[Finding]:
    """Why it cannot sign, as far as documents say that. The control plane logs it of what is on its machine.

    What is not made yet will be, and where the time is not known nothing has expired.
    """
    if owner.is_to_be_made(world):
        return
    fault = owner.untrusted(world) if owner.is_outside else owner.authority(world, UNREAD, now)
    if isinstance(fault, Violation):
        yield finding_about(resource, FindingReason(NO_AUTHORITY, fault.message, fault.path, fault.hint))


def _ending(world: World, owner: AuthorityOwner, resource: Resource, now: float | None) -> Iterator[Finding]:
    record = owner.record(world)
    root = record.root(record.signer)
    life = None if root is None else expiry_of(root.certificate)
    if life is None or now is None:
        return
    begins, ends = life
    margin = max(owner.leaf_lifetime, min(_LONG, (ends - begins) * _PART))
    if now < ends - margin:
        return
    days = max(0, int((ends - now) // 86_400))
    text = f"ends in {days} days, and with it all certificates, which are not renewed beyond that"
    hint = "give a new certificate, or a new name to a built-in authority: the old one stays trusted meanwhile"
    yield finding_about(resource, FindingReason(ENDS, text, owner.place, hint))

"""Who gets no certificate: by MeshIdentities that have no name for proxies, and proxies that have too many names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.identity.identities import identity_of
from cp.identity.workloads import domain_of, spiffe_id
from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.model.violation import Finding, Violation
from cp.model.wording import few
from cp.resources.mesh_identity import MeshIdentity
from cp.resources.resource import Resource
from cp.resources.world import World

_CODE: Final = "no-identity"
_GIVE: Final = "give Dataplanes these labels, or select others"


def identities(survey: MeshSurvey) -> Iterator[Finding]:
    for mesh in survey.world.table("Mesh"):
        for identity in survey.world.table("MeshIdentity", mesh.name):
            yield from (finding_about(identity, reason) for reason in _reasons(survey.world, identity))


def names(survey: MeshSurvey) -> Iterator[Finding]:
    """Proxies that get no certificate, as it would have too many names."""
    for proxy in survey.proxies:
        identity = identity_of(survey.world, proxy.dataplane)
        fault = None if identity is None else identity.fault
        if fault is not None:
            text = f"{fault.message}: it gets none"
            yield finding_about(proxy.dataplane, FindingReason(_CODE, text, fault.path, fault.hint))


def _reasons(world: World, identity: Resource) -> Iterator[FindingReason]:
    spec: MeshIdentity = identity.spec
    if spec.provider is not None and spec.provider.type != "Bundled":
        return  # which is not enforced as a whole
    yield from _of_document(spec)
    if not identity.derived(domain_of):
        text = "selects nobody, as its trust domain asks for a label that it does not have itself"
        yield FindingReason(_CODE, text, "spec.spiffeID.trustDomain", "give the MeshIdentity the label")
    elif spec.matched_labels is not None:
        yield from _of_proxies(world, identity)


def _of_document(spec: MeshIdentity) -> Iterator[FindingReason]:
    if spec.matched_labels is None:
        hint = "`selector: {dataplane: {}}` selects all of the mesh"
        yield FindingReason(_CODE, "selects no Dataplane, as it does not say which", "spec.selector", hint)


def _of_proxies(world: World, identity: Resource) -> Iterator[FindingReason]:
    dataplanes = world.table("Dataplane", identity.mesh)
    selected = dataplanes.labelled(identity.spec.matched_labels or {})
    if len(dataplanes) and not selected:
        yield FindingReason(_CODE, "selects no Dataplane, as none has these labels", "spec.selector.dataplane", _GIVE)
    nameless: dict[Violation, list[str]] = {}
    for dataplane in selected:
        fault = spiffe_id(identity, dataplane)
        if isinstance(fault, Violation):
            nameless.setdefault(fault, []).append(dataplane.name)
    for fault, names in nameless.items():
        text = f"has no SPIFFE ID for {few(names)}, which {fault.message}"
        yield FindingReason(_CODE, text, "spec.spiffeID.path", fault.hint)

"""Authorities that Envoy takes for one another: told by lint, and in the answer to a write that brings them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from cp.identity.authority import Authority
from cp.identity.likeness import alike, roots_in, takes_over
from cp.identity.owners import AuthorityOwner, AuthoritySources, owners
from cp.identity.security import security_of
from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import Finding, Severity, Violation
from cp.resources.parse import finding
from cp.resources.resource import Resource
from cp.resources.world import World

ALIKE: Final = "roots-alike"

_SOURCES: Final = frozenset({"Mesh", "MeshIdentity", "Secret", "MeshTrust"})
"""The kinds that say who signs, and who is trusted."""

_HINT: Final = "give each root a subject of its own, or a SubjectKeyIdentifier"
_IN_TRUST: Final = Violation(
    "spec.caBundles",
    "Envoy may take one authority of this trust domain for another, and refuse whom the other has certified: they have "
    "one subject, and not all a SubjectKeyIdentifier",
    _HINT,
)
_IN_MOVE: Final = Violation(
    "",
    "requests are lost while this root takes the place of the one that signs: it has the same subject and no "
    "SubjectKeyIdentifier, so Envoy may take it for the one before",
    f"put the one before back, and {_HINT}",
)


def unread(path: str) -> bytes:
    raise OSError(0, f"{path} is on another machine")


UNREAD: Final = AuthoritySources(unread, lambda _name: None)
"""For those who judge documents, and not what is on the machine of the control plane."""


def may_bring_roots(document: Document) -> bool:
    return document.key.type in _SOURCES


def faults_of_roots(world: World, mesh: str) -> Iterator[tuple[Resource, Violation]]:
    """What is to be said of the authorities of a mesh, and about which resource."""
    for owner in owners(world):
        if owner.mesh == mesh and owner.resource is not None and owner.has_authority and _loses(world, owner):
            yield owner.resource, _IN_MOVE.at(owner.place)
    yield from ((trust, _IN_TRUST) for trust in world.table("MeshTrust", mesh) if _is_mistaken(world, trust))


def warnings_of_roots(world: World, documents: Sequence[Document]) -> Iterator[Finding]:
    """The same of documents that are about to be written together, as far as it is news."""
    written = {document.key: document for document in documents if may_bring_roots(document)}
    after = world.next(written, world.revision) if written else world
    for mesh, of_mesh in groupby(sorted(written, key=_mesh), _mesh):
        first = next(of_mesh)
        before = {(resource.key, fault) for resource, fault in faults_of_roots(world, mesh)}
        for resource, fault in faults_of_roots(after, mesh):
            if resource.key in written:
                yield finding(written[resource.key], ALIKE, Severity.WARNING, fault)
            elif (resource.key, fault) not in before:
                of_other = Violation("", f"{resource.key} {fault.path}: {fault.message}", fault.hint)
                yield finding(written[first], ALIKE, Severity.WARNING, of_other)


def _mesh(key: Key) -> str:
    return key.mesh or key.name


def _loses(world: World, owner: AuthorityOwner) -> bool:
    """Whether a root of the record, or one that is about to be, takes over so that calls are lost."""
    record, enabled = owner.record(world), owner.authority(world, UNREAD, None)
    roots = [root.certificate for root in record.roots if root.until is None]
    roots += [enabled.certificates] if isinstance(enabled, Authority) else []
    return any(takes_over(record, root) for root in roots)


def _is_mistaken(world: World, trust: Resource) -> bool:
    """Whether an authority of a MeshTrust that is not ours is taken for another one of its trust domain."""
    security = security_of(world, trust.mesh)
    bundles = () if security is None else security.bundles
    texts = [bundle.certificates for bundle in bundles if bundle.domain == trust.spec.trust_domain]
    trusted = [root for text in texts for root in roots_in(text)]
    records = (owner.record(world) for owner in owners(world) if owner.mesh == trust.mesh)
    made_here = {root.fingerprint for record in records for root in roots_in(record.certificates)}
    foreign = [
        root for text in trust.spec.certificates() for root in roots_in(text) if root.fingerprint not in made_here
    ]
    return next(alike(foreign, (*trusted, *foreign)), None) is not None

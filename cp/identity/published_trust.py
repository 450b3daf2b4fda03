"""`PublishedTrust`: the MeshTrust in which the control plane says whom a MeshIdentity has trusted."""

from __future__ import annotations

from dataclasses import dataclass

from cp.identity.trust import TrustRecord, pem_blocks
from cp.identity.workloads import KIND
from cp.model.document import Document
from cp.model.names import Identity, Key, kri
from cp.resources.resource import Resource
from cp.resources.world import World


@dataclass(frozen=True, slots=True)
class PublishedTrust:
    """A MeshTrust that the control plane writes. What proxies trust follows from the record, with or without it."""

    key: Key
    document: Document | None
    """As it should be; None if it should not be there."""

    present: Resource | None
    """As it is."""


def published_trust(world: World, key: Key, record: TrustRecord) -> PublishedTrust | None:
    """What a MeshTrust is to be by a record; None if somebody else has written it."""
    present = world.get(key)
    document = _trust_document(key, _origin(key), record) if record.domain and record.roots else None
    return PublishedTrust(key, document, present) if present is None or is_published(present) else None


def _origin(trust: Key) -> str:
    """The MeshIdentity of which a MeshTrust says that it is, if the control plane has written it."""
    return kri(Identity(KIND, trust.mesh, trust.name))


def is_published(trust: Resource) -> bool:
    """Whether the control plane has written a MeshTrust, and not somebody else."""
    return trust.spec.origin is not None and trust.spec.origin.kri == _origin(trust.key)


def _trust_document(key: Key, origin: str, record: TrustRecord) -> Document:
    bundles = [{"type": "Pem", "pem": {"value": certificate}} for certificate in pem_blocks(record.certificates)]
    spec = {"origin": {"kri": origin}, "trustDomain": record.domain, "caBundles": bundles}
    return Document(key, {"type": key.type, "mesh": key.mesh, "name": key.name, "spec": spec})

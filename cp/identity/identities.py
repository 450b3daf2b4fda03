"""Who a proxy is: what its certificate says, and who signs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from cp.identity.trust import trust_of
from cp.identity.workloads import WorkloadIdentities, lifetime_of, spiffe_id, workload_identities
from cp.model.memo import Memo, SharingMemo
from cp.model.names import Key
from cp.model.secret_names import identity_trust_key, trust_key
from cp.model.violation import Violation
from cp.resources.dataplane import SERVICE_TAG, Dataplane
from cp.resources.mesh import CaBackend
from cp.resources.resource import Resource
from cp.resources.world import World

MOST_NAMES: Final = 200
"""In a certificate: each handshake carries it, and so does the snapshot of its proxy. It has one for each tag, and a
proxy may write its own Dataplane."""

MOST_CHARACTERS: Final = 32 * 1024
"""Of all names together."""

_FEWER: Final = "give its inbounds fewer tags, or select it with a MeshIdentity, whose certificates have one name"


@dataclass(frozen=True, slots=True)
class AuthorityRef:
    """Which authority signs."""

    kind: Literal["Mesh", "MeshIdentity"]
    mesh: str
    name: str
    """Of the backend of the Mesh, or of the MeshIdentity."""

    @property
    def record_key(self) -> Key:
        """Where it is written who of its authorities signs."""
        return trust_key(self.mesh) if self.kind == "Mesh" else identity_trust_key(self.mesh, self.name)


@dataclass(frozen=True, slots=True)
class ProxyIdentity:
    """What the certificate of a proxy says, and who signs it."""

    uris: tuple[str, ...]
    authority: AuthorityRef
    lifetime: float
    """Seconds."""

    key: Literal["EC", "RSA2048"]

    @property
    def fault(self) -> Violation | None:
        """Why no certificate can say that."""
        if len(self.uris) > MOST_NAMES:
            text = f"has {len(self.uris)} names by its tags, and a certificate at most {MOST_NAMES}"
            return Violation("networking", text, _FEWER)
        size = sum(map(len, self.uris))
        if size > MOST_CHARACTERS:
            text = f"has names of {size} characters by its tags, and a certificate at most {MOST_CHARACTERS}"
            return Violation("networking", text, _FEWER)
        return None


def identity_of(world: World, dataplane: Resource) -> ProxyIdentity | None:
    """Who a proxy is; None if it is nobody: mTLS is off, or nothing is known by which it could be called."""
    return world.recall(_Identities, dataplane)


class _Identities(Memo[World, Resource, ProxyIdentity | None]):
    def is_alive(self, generation: World, key: Resource) -> bool:
        return generation.get(key.key) is key

    def basis(self, source: World, key: Resource) -> tuple[Resource | None, WorkloadIdentities]:
        return source.mesh(key.mesh), workload_identities(source, key.mesh)

    def work_out(self, source: World, key: Resource) -> ProxyIdentity | None:
        mesh, identities = self.basis(source, key)
        return next(_by_workload(key, identities), None) or _by_mesh(key, mesh)


def workload_ids(world: World, dataplane: Resource) -> tuple[str, ...]:
    """The SPIFFE IDs by which a proxy may answer, now or soon: those that every MeshIdentity gives it that selects it.

    Also those of identities that do not sign yet, so that callers know the name before it is used (record 0057). The
    names that it has by its Mesh are not among them.
    """
    return world.recall(_WorkloadIds, dataplane)


class _WorkloadIds(SharingMemo[World, Resource, tuple[str, ...]]):
    def is_alive(self, generation: World, key: Resource) -> bool:
        return generation.get(key.key) is key

    def basis(self, source: World, key: Resource) -> WorkloadIdentities:
        return workload_identities(source, key.mesh)

    def work_out(self, source: World, key: Resource) -> tuple[str, ...]:
        names = (spiffe_id(identity.resource, key) for identity in self.basis(source, key).selecting(key))
        return tuple(sorted({name for name in names if isinstance(name, str)}))


def names_by_tags(dataplane: Resource) -> tuple[str, ...]:
    """The names that a proxy has in a certificate that an authority of its Mesh signs, by which `from` knows it."""
    names: tuple[str, ...] = dataplane.derived(_uris)
    return names


def is_unknown_by_tags(world: World, dataplane: Resource) -> bool:
    """Whether the certificate that a proxy has now surely has no names by its tags."""
    mesh, identity = world.mesh(dataplane.mesh), identity_of(world, dataplane)
    has_other = identity is not None and identity.authority.kind == "MeshIdentity"
    return has_other or mesh is None or mesh.spec.authority is None


def answers_with_tls(world: World, dataplane: Resource) -> bool:
    """Whether callers speak TLS with a proxy, as far as its own certificate decides that.

    Where an authority of the Mesh signs, every proxy has one. Elsewhere it is enough that callers speak TLS because of
    one MeshIdentity that gives it a certificate: when another one takes over they go on, and nobody is called in plain
    text again.
    """
    return world.recall(_AnswersWithTls, dataplane)


class _AnswersWithTls(Memo[World, Resource, bool]):
    def is_alive(self, generation: World, key: Resource) -> bool:
        return generation.get(key.key) is key

    def basis(self, source: World, key: Resource) -> tuple[Resource | None, WorkloadIdentities]:
        return source.mesh(key.mesh), workload_identities(source, key.mesh)

    def work_out(self, source: World, key: Resource) -> bool:
        mesh, identities = self.basis(source, key)
        if mesh is not None and mesh.spec.authority is not None:
            return True
        return any(trust_of(source.get(own.authority.record_key)).callers for own in _by_workload(key, identities))


def _by_workload(dataplane: Resource, identities: WorkloadIdentities) -> Iterator[ProxyIdentity]:
    """Who a proxy is by the MeshIdentities that select it. Its certificate has no other name, as SPIFFE demands."""
    for identity in identities.selecting(dataplane):
        name = spiffe_id(identity.resource, dataplane) if identity.signs else None
        if isinstance(name, str):
            authority = AuthorityRef("MeshIdentity", dataplane.mesh, identity.name)
            yield ProxyIdentity((name,), authority, lifetime_of(identity.resource), "EC")


def _by_mesh(dataplane: Resource, mesh: Resource | None) -> ProxyIdentity | None:
    """Who a proxy is by its tags."""
    backend: CaBackend | None = None if mesh is None else mesh.spec.authority
    uris = dataplane.derived(_uris)
    if backend is None or not uris:
        return None
    authority = AuthorityRef("Mesh", dataplane.mesh, backend.name or "")
    return ProxyIdentity(uris, authority, backend.leaf_lifetime, "RSA2048" if backend.wants_rsa else "EC")


def _uris(dataplane: Resource) -> tuple[str, ...]:
    """A SPIFFE ID for each service, and a name for each tag, by which permissions know it."""
    spec: Dataplane = dataplane.spec
    tags = spec.tag_values()
    services = (f"spiffe://{dataplane.mesh}/{service}" for service in sorted(tags.get(SERVICE_TAG, ())))
    named = (f"kuma://{name}/{value}" for name, values in sorted(tags.items()) for value in sorted(values))
    return (*services, *named)

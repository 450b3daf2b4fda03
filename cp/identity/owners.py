"""`AuthorityOwner`: who has an authority in a mesh. The Mesh has one, and each MeshIdentity has one of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from msgspec.structs import replace

from cp.identity.authority import Authority, new_pair
from cp.identity.backends import ReadFile, builtin_authority, enabled_authority, is_missing, secrets_of
from cp.identity.domains import fault_of_rival
from cp.identity.identities import AuthorityRef
from cp.identity.providers import (
    ReadVariable,
    generated_authority,
    is_to_be_made,
    secrets_of_identity,
    workload_authority,
)
from cp.identity.published_trust import PublishedTrust, is_published, published_trust
from cp.identity.rotation import EnabledAuthority
from cp.identity.trust import TrustRecord, pem_blocks, trust_of
from cp.identity.workloads import KIND, domain_of, lifetime_of
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import (
    authority_certificate_key,
    authority_private_key,
    identity_certificate_key,
    identity_of_trust,
    identity_private_key,
    identity_trust_key,
    trust_key,
)
from cp.model.violation import Violation
from cp.resources.resource import Resource
from cp.resources.world import World


@dataclass(frozen=True, slots=True)
class AuthoritySources:
    """Where authorities can be that are not in the store."""

    read: ReadFile
    variable: ReadVariable


class AuthorityOwner(ABC):
    """Whoever has an authority. Equal to another one if it has the same record."""

    resource: Resource | None
    """None for a MeshIdentity that is gone, and whose authority is trusted for a while."""

    record_key: Key
    """Where it is written how far its authorities are."""

    def __init__(self, resource: Resource | None, record_key: Key) -> None:
        self.resource, self.record_key = resource, record_key

    @property
    def mesh(self) -> str:
        return self.record_key.mesh

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the Mesh, or `mesh/name` of the MeshIdentity."""

    @property
    @abstractmethod
    def has_authority(self) -> bool:
        """Whether it wants an authority now."""

    @property
    @abstractmethod
    def place(self) -> str:
        """The path of its authority in the document."""

    @property
    @abstractmethod
    def leaf_lifetime(self) -> float:
        """How long the certificates of proxies are valid, in seconds."""

    @property
    @abstractmethod
    def is_outside(self) -> bool:
        """Whether its authority is in files or variables of the control plane's machine."""

    @abstractmethod
    def is_to_be_made(self, world: World) -> bool:
        """Whether the control plane still has to make its authority."""

    @abstractmethod
    def new_secrets(self, now: float) -> tuple[Document, ...]:
        """A new authority, as it is stored."""

    @abstractmethod
    def authority(self, world: World, sources: AuthoritySources, now: float | None) -> Authority | Violation:
        """The authority that it has now, or why that cannot sign."""

    @abstractmethod
    def stored_authority(self, world: World, backend: str, now: float) -> Authority | Violation:
        """The authority that the control plane made for it, under the name that it had then."""

    @abstractmethod
    def secret_keys(self, backend: str) -> tuple[Key, ...]:
        """Where that is stored."""

    @abstractmethod
    def enabled(self, world: World, authority: Authority) -> EnabledAuthority: ...

    def untrusted(self, world: World) -> Violation | None:  # noqa: ARG002  # a Mesh trusts its own
        """Why its authority cannot sign, whatever it is: nobody is told to trust it."""
        return None

    def rival(self, world: World, fingerprint: str) -> Violation | None:  # noqa: ARG002  # a Mesh has its own name
        """Why an authority may not sign for it, as what it would sign is another mesh's to say."""
        return None

    def record(self, world: World) -> TrustRecord:
        return trust_of(world.get(self.record_key))

    def of_now(self, record: TrustRecord) -> TrustRecord:
        """A record with what its document says beside the authorities."""
        return record

    def trust(self, world: World) -> PublishedTrust | None:  # noqa: ARG002  # a Mesh has none
        """The document in which people and other meshes read whom to trust; None if there shall be none."""
        return None


class MeshOwner(AuthorityOwner):
    resource: Resource

    def __init__(self, mesh: Resource) -> None:
        super().__init__(mesh, trust_key(mesh.name))

    @property
    def name(self) -> str:
        return self.mesh

    @property
    def has_authority(self) -> bool:
        return self.resource.spec.authority is not None

    @property
    def place(self) -> str:
        names = [backend.name for backend in self.resource.spec.mtls.backends]
        return f"mtls.backends[{names.index(self.resource.spec.mtls.enabled_backend)}]"

    def is_to_be_made(self, world: World) -> bool:
        return is_missing(world, self.mesh, self.resource.spec.authority)

    def new_secrets(self, now: float) -> tuple[Document, ...]:
        backend = self.resource.spec.authority
        return secrets_of(self.mesh, backend.name, new_pair(self.mesh, backend, now))

    @property
    def leaf_lifetime(self) -> float:
        lifetime: float = self.resource.spec.authority.leaf_lifetime
        return lifetime

    @property
    def is_outside(self) -> bool:
        conf = self.resource.spec.authority.conf
        sources = (conf.cert, conf.key) if conf is not None else ()
        return any(source is not None and source.file is not None for source in sources)

    def authority(self, world: World, sources: AuthoritySources, now: float | None) -> Authority | Violation:
        return enabled_authority(world, self.resource, sources.read, now)

    def stored_authority(self, world: World, backend: str, now: float) -> Authority | Violation:
        return builtin_authority(world, self.mesh, backend, now)

    def secret_keys(self, backend: str) -> tuple[Key, ...]:
        return authority_certificate_key(self.mesh, backend), authority_private_key(self.mesh, backend)

    def enabled(self, _world: World, authority: Authority) -> EnabledAuthority:
        backend = self.resource.spec.authority
        return EnabledAuthority(
            fingerprint=authority.fingerprint,
            certificates=authority.certificates,
            backend=backend.name,
            lifetime=self.leaf_lifetime,
            is_permissive=backend.mode == "PERMISSIVE",
        )


class IdentityOwner(AuthorityOwner):
    """A MeshIdentity, or what is left of one."""

    _NOT_TRUSTED: ClassVar[Violation] = Violation(
        "spec.provider.bundled.meshTrustCreation",
        "no MeshTrust for its trust domain has the certificate of its authority",
        "write one, or leave `meshTrustCreation` out",
    )

    def __init__(self, mesh: str, name: str, resource: Resource | None) -> None:
        super().__init__(resource, identity_trust_key(mesh, name))
        self._name = name

    @property
    def name(self) -> str:
        return f"{self.mesh}/{self._name}"

    @property
    def has_authority(self) -> bool:
        return self.resource is not None and self.resource.spec.authority is not None and self._domain != ""

    @property
    def place(self) -> str:
        return "spec.provider.bundled"

    @property
    def _identity(self) -> Resource:
        if self.resource is None:
            raise LookupError(f"there is no MeshIdentity {self.name}")
        return self.resource

    @property
    def _domain(self) -> str:
        return self._identity.derived(domain_of)

    @property
    def _makes_trust(self) -> bool:
        makes_trust: bool = self._identity.spec.authority.makes_trust
        return makes_trust

    def is_to_be_made(self, world: World) -> bool:
        return is_to_be_made(world, self._identity)

    def new_secrets(self, now: float) -> tuple[Document, ...]:
        return secrets_of_identity(self._identity, now)

    @property
    def leaf_lifetime(self) -> float:
        return lifetime_of(self._identity)

    @property
    def is_outside(self) -> bool:
        ca = self._identity.spec.authority.ca
        sources = (ca.certificate, ca.private_key) if ca is not None else ()
        return any(source.file is not None or source.env_var is not None for source in sources)

    def untrusted(self, world: World) -> Violation | None:
        if not self._makes_trust and not self._trusted(world):
            return self._NOT_TRUSTED
        return self.rival(world, self.record(world).signer)

    def rival(self, world: World, fingerprint: str) -> Violation | None:
        return fault_of_rival(world, self._identity, fingerprint)

    def authority(self, world: World, sources: AuthoritySources, now: float | None) -> Authority | Violation:
        signer = workload_authority(world, self._identity, sources.read, sources.variable, now)
        if isinstance(signer, Violation):
            return signer
        if (fault := self.rival(world, signer.fingerprint)) is not None or self._makes_trust:
            return fault or signer
        return self._NOT_TRUSTED if self._trusted(world).isdisjoint(pem_blocks(signer.certificates)) else signer

    def _trusted(self, world: World) -> frozenset[str]:
        """The certificates that MeshTrusts have for its trust domain."""
        trusts = (trust.spec for trust in world.table("MeshTrust", self.mesh))
        of_domain = (trust for trust in trusts if trust.trust_domain == self._domain)
        return frozenset(text for trust in of_domain for text in trust.certificates())

    def stored_authority(self, world: World, backend: str, now: float) -> Authority | Violation:
        return generated_authority(world, self.mesh, backend, now)

    def secret_keys(self, backend: str) -> tuple[Key, ...]:
        return identity_certificate_key(self.mesh, backend), identity_private_key(self.mesh, backend)

    def enabled(self, world: World, authority: Authority) -> EnabledAuthority:
        """In a mesh whose callers speak TLS already nobody has to wait for them."""
        mesh = world.mesh(self.mesh)
        is_alone = mesh is None or mesh.spec.authority is None
        return EnabledAuthority(
            fingerprint=authority.fingerprint,
            certificates=authority.certificates,
            backend=self._name,
            lifetime=self.leaf_lifetime,
            is_permissive=is_alone,
            waits=True,
        )

    def trust(self, world: World) -> PublishedTrust | None:
        """The MeshTrust of its own name, unless somebody else has written that."""
        return published_trust(world, Key("MeshTrust", self.mesh, self._name), self.record(world))

    def of_now(self, record: TrustRecord) -> TrustRecord:
        """With its trust domain, unless others write whom to trust. A MeshIdentity that is gone keeps its own."""
        if self.resource is None or self.resource.spec.authority is None:
            return record
        return replace(record, domain=self._domain if self._makes_trust else "")


def owner_of(world: World, reference: AuthorityRef) -> AuthorityOwner | None:
    """Whose authority signs; None if there is nobody any more."""
    if reference.kind == "Mesh":
        mesh = world.mesh(reference.mesh)
        return None if mesh is None else MeshOwner(mesh)
    return IdentityOwner(reference.mesh, reference.name, world.get(Key(KIND, reference.mesh, reference.name)))


def owners(world: World) -> Iterator[AuthorityOwner]:
    """All in a World who have an authority, or had one of which there is still a record, or a MeshTrust of ours."""
    for mesh in world.table("Mesh"):
        owner = MeshOwner(mesh)
        if owner.has_authority or world.get(owner.record_key) is not None:
            yield owner
        identities = world.table(KIND, mesh.name)
        recorded = (identity_of_trust(secret.name) for secret in world.table("Secret", mesh.name))
        published = {trust.name for trust in world.table("MeshTrust", mesh.name) if is_published(trust)}
        names = (*(identity.name for identity in identities), *(name for name in recorded if name), *sorted(published))
        for name in dict.fromkeys(names):
            of_identity = IdentityOwner(mesh.name, name, identities.get(name))
            has_left = world.get(of_identity.record_key) is not None or name in published
            if of_identity.has_authority or has_left:
                yield of_identity

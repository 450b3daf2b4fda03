"""mTLS of a mesh, as far as it follows from the World: who is trusted, and who speaks TLS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from cp.identity.trust import TrustRecord, identity_records, pem_blocks, trust_of
from cp.model.memo import Memo
from cp.model.secret_names import trust_key
from cp.resources.mesh import CaBackend
from cp.resources.resource import Resource
from cp.resources.world import Table, World

_Trusted: TypeAlias = tuple[str, Iterable[str]]
"""A trust domain with certificates, each in PEM."""


@dataclass(frozen=True, slots=True)
class TrustBundle:
    """Who signs for one trust domain."""

    domain: str
    """`default`: the host of `spiffe://default/...`."""

    certificates: str
    """In PEM: one or more roots, old and new ones during a rotation."""


@dataclass(frozen=True, slots=True)
class MeshSecurity:
    """mTLS of one mesh."""

    is_permissive: bool
    """Whether inbounds also take plain text."""

    bundles: tuple[TrustBundle, ...]
    """Nobody can be verified where there are none yet, so there inbounds wait."""

    callers_use_tls: bool
    """Whether callers speak TLS already: not right after PERMISSIVE was switched on."""

    own_domains: tuple[str, ...] = ()
    """The trust domains in which authorities of the mesh itself sign."""


def security_of(world: World, mesh: str) -> MeshSecurity | None:
    """mTLS of a mesh; None where it is off. Equal in the next World is the same object there."""
    return world.recall(_Securities, mesh)


class _Securities(Memo[World, str, MeshSecurity | None]):
    def basis(self, source: World, key: str) -> tuple[Resource | None, TrustRecord, tuple[TrustRecord, ...], Table]:
        records = source.table("Secret", key).derived(identity_records)
        return source.mesh(key), trust_of(source.get(trust_key(key))), records, source.table("MeshTrust", key)

    def work_out(self, source: World, key: str) -> MeshSecurity | None:
        mesh, record, records, trusts = self.basis(source, key)
        authority: CaBackend | None = None if mesh is None else mesh.spec.authority
        if authority is None and not any(of_identity.roots for of_identity in records):
            return None
        is_permissive = authority is not None and authority.mode == "PERMISSIVE"
        bundles = tuple(_bundles([(key, pem_blocks(record.certificates)), *_by_domain(records, trusts)]))
        signed = {key if record.certificates else "", *(of_identity.domain for of_identity in records)}
        own = tuple(bundle.domain for bundle in bundles if bundle.domain in signed)
        return MeshSecurity(is_permissive, bundles, record.callers or not is_permissive, own)


def _by_domain(records: Iterable[TrustRecord], trusts: Table) -> Iterator[_Trusted]:
    """Trust domains with the certificates of those who may sign for them, beside the authority of the Mesh."""
    for record in records:
        if record.domain:
            yield record.domain, pem_blocks(record.certificates)
    for trust in trusts:
        yield trust.spec.trust_domain, trust.derived(_certificates)


def _certificates(trust: Resource) -> tuple[str, ...]:
    certificates: tuple[str, ...] = trust.spec.certificates()
    return certificates


def _bundles(trusted: Iterable[_Trusted]) -> Iterator[TrustBundle]:
    """One bundle for each domain, with each certificate once."""
    by_domain: dict[str, dict[str, None]] = {}
    for domain, certificates in trusted:
        by_domain.setdefault(domain, {}).update(dict.fromkeys(certificates))
    return (TrustBundle(domain, "".join(blocks)) for domain, blocks in sorted(by_domain.items()) if blocks)

"""`Identities`: the certificate of each connected proxy, issued by us, kept in memory alone and renewed in time.

A key is in the snapshot of its own proxy and nowhere else. See record 0056.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import ref

import structlog
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret

from cp.files import read_file
from cp.identity.authority import Authority, expiry_of, instant
from cp.identity.backends import ReadFile
from cp.identity.identities import AuthorityRef, ProxyIdentity, identity_of
from cp.identity.leaf import Certificate, LeafCertificate, issue
from cp.identity.likeness import has_nameless_twin
from cp.identity.owners import AuthoritySources, owner_of, owners
from cp.identity.security import TrustBundle, security_of
from cp.identity.trust import TrustedRoot, trust_of
from cp.metrics import Metrics
from cp.model.failure import reason
from cp.model.memo import Memo
from cp.model.names import proxy_id
from cp.model.violation import Violation
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.packing import SECRET, PackedResource
from cp.translate.snapshot import NO_PART, SnapshotPart
from generators.envoy.names import mesh_identity

RENEWED_AFTER: Final = 0.8
"""The part of its life after which a certificate is renewed at the latest."""

JITTER: Final = 0.1
"""By how much of its life it may be earlier, so that proxies that came together do not renew together."""

RETRIED_AFTER: Final = 10.0
"""Seconds after which a certificate that could not be issued is tried again, if nothing changes before."""


@dataclass(frozen=True, slots=True)
class _Held:
    """What a proxy has."""

    identity: ProxyIdentity
    signer: str
    certificate: Certificate
    part: SnapshotPart = field(repr=False)

    def is_right(self, identity: ProxyIdentity, signer: str) -> bool:
        """Whether it says what it should, by whom it should. The name of a backend is not in a certificate."""
        if self.signer != signer:
            return False
        return self.identity is identity or replace(identity, authority=self.identity.authority) == self.identity


class Identities:
    """Asked for parts in the reconciler's thread, and on the event loop for all else."""

    def __init__(
        self, metrics: Metrics, clock: Callable[[], float], chance: Callable[[], float], read: ReadFile | None = None
    ) -> None:
        """`chance` is a random number from 0 to 1."""
        self._metrics, self._clock, self._chance = metrics, clock, chance
        self._signers = Signers(clock, AuthoritySources(read or read_file, read_variable))
        self._held: dict[str, _Held] = {}
        self._faults: dict[str, tuple[str, float]] = {}
        """Why proxies do not have what they should, and when to try again."""

        self._log = structlog.get_logger()

    def are_needed(self, world: World) -> bool:
        """Whether any proxy has a certificate, or may have to get one: most meshes may be without mTLS."""
        has_some = bool(self._held or self._faults)
        return has_some or any(security_of(world, mesh.name) is not None for mesh in world.table("Mesh"))

    def part(self, world: World, dataplane: Resource) -> SnapshotPart:
        """The secret with the certificate of a proxy: the one that it has, unless that is due or no longer right."""
        proxy, identity = proxy_id(dataplane.key), identity_of(world, dataplane)
        if identity is None:
            self._forget(proxy)
            return NO_PART
        signer = _signer(world, identity.authority)
        held = self._held.get(proxy)
        if held is not None and held.is_right(identity, signer) and not self._is_due(held):
            self._faults.pop(proxy, None)
            return held.part
        if not signer:  # nobody signs yet: whoever has something from before keeps it
            return NO_PART if held is None else held.part
        return self._renew(world, proxy, identity, held)

    def _renew(self, world: World, proxy: str, identity: ProxyIdentity, held: _Held | None) -> SnapshotPart:
        """A new one, or the last good one while it cannot be issued."""
        mesh = identity.authority.mesh
        leaf = self._leaf(world, identity)
        if isinstance(leaf, Violation):
            self._fail(proxy, str(leaf))
            return NO_PART if held is None else held.part
        self._faults.pop(proxy, None)
        self._metrics.certificates.inc()
        generation = 1 if held is None else held.certificate.generation + 1
        certificate = self._certificate(leaf, identity, _backend(world, identity.authority), generation)
        part = SnapshotPart([_packed(mesh_identity(mesh), leaf)])
        self._held[proxy] = _Held(identity, _signer(world, identity.authority), certificate, part)
        return part

    def _leaf(self, world: World, identity: ProxyIdentity) -> LeafCertificate | Violation:
        if identity.fault is not None:
            return identity.fault
        try:
            authority = self._signers.of(world, identity.authority)
            if isinstance(authority, Violation):
                return authority
            has_twin = has_nameless_twin(authority.certificate, _bundles(world, identity.authority.mesh))
            return issue(authority, identity, self._clock(), has_twin=has_twin)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is one proxy's, which keeps what it has
            return Violation("", reason(error))

    def _certificate(
        self, leaf: LeafCertificate, identity: ProxyIdentity, backend: str, generation: int
    ) -> Certificate:
        return Certificate(
            mesh=identity.authority.mesh,
            backend=backend,
            serial=leaf.serial,
            uris=identity.uris,
            issued=leaf.issued,
            not_before=leaf.not_before,
            not_after=leaf.not_after,
            renewal=leaf.due(RENEWED_AFTER - JITTER * self._chance()),
            generation=generation,
        )

    def _fail(self, proxy: str, fault: str) -> None:
        self._metrics.certificate_failures.inc()
        earlier, _ = self._faults.get(proxy, ("", 0.0))
        is_news = all(fault != other for other, _ in tuple(self._faults.values()))
        self._faults[proxy] = (fault, self._clock() + RETRIED_AFTER)
        if fault != earlier and is_news:  # as one line for all proxies of a mesh
            self._log.warning("certificate.failed", proxy=proxy, reason=fault)

    def _is_due(self, held: _Held) -> bool:
        return held.certificate.renewal is not None and held.certificate.renewal <= self._clock()

    # --- what others ask ---

    def due(self) -> frozenset[str]:
        """The proxies whose certificates are to be renewed, or to be tried again, now."""
        now, faults = self._clock(), dict(self._faults)
        renewed = (proxy for proxy, held in dict(self._held).items() if proxy not in faults and self._is_due(held))
        return frozenset((*renewed, *(proxy for proxy, (_, at) in faults.items() if at <= now)))

    def certificate(self, proxy: str) -> Certificate | None:
        """What may be told of the certificate of a connected proxy."""
        held = self._held.get(proxy)
        if held is None:
            return None
        fault, _ = self._faults.get(proxy, ("", 0.0))
        return replace(held.certificate, fault=fault)

    @property
    def faults(self) -> Mapping[str, str]:
        """Why proxies do not have the certificates that they should have."""
        return {proxy: fault for proxy, (fault, _) in dict(self._faults).items()}

    def remaining(self) -> Mapping[str, float]:
        """For each mesh the seconds until the first certificate of a connected proxy expires."""
        remaining: dict[str, float] = {}
        for held in tuple(self._held.values()):
            mesh, seconds = held.certificate.mesh, held.certificate.not_after - self._clock()
            remaining[mesh] = min(seconds, remaining.get(mesh, seconds))
        return remaining

    def remaining_ratio(self) -> Mapping[str, float]:
        """For each mesh how much of its life is left to the certificate of which least is: 1 if it is new."""
        ratios: dict[str, float] = {}
        for held in tuple(self._held.values()):
            certificate = held.certificate
            life = certificate.not_after - certificate.not_before
            ratio = max(0.0, (certificate.not_after - self._clock()) / life)
            ratios[certificate.mesh] = min(ratio, ratios.get(certificate.mesh, ratio))
        return ratios

    def forget(self, proxies: Collection[str]) -> Mapping[str, SnapshotPart]:
        """Forget the keys of proxies that left: what there is of them elsewhere."""
        forgotten = {proxy: self._held[proxy].part for proxy in proxies if proxy in self._held}
        for proxy in proxies:
            self._forget(proxy)
        return forgotten

    def forget_signers(self, world: World) -> None:
        """Forget the keys of authorities that sign no longer."""
        self._signers.keep_only({owner.record(world).signer for owner in owners(world)})

    def _forget(self, proxy: str) -> None:
        self._held.pop(proxy, None)
        self._faults.pop(proxy, None)


class Signers:
    """The authorities that sign, with their keys: looked for once, and kept for as long as they sign."""

    def __init__(self, clock: Callable[[], float], sources: AuthoritySources) -> None:
        self._clock, self._sources = clock, sources
        self._authorities: dict[str, Authority] = {}
        """By fingerprint. One whose key is stored no longer goes on to sign until another one does."""

        self._faults: dict[AuthorityRef, tuple[ref[World], float, Violation]] = {}
        """By authority why nothing can be signed, in which World, and until when that is not looked at again."""

    def of(self, world: World, reference: AuthorityRef) -> Authority | Violation:
        """Who signs, or why nobody does."""
        signer, owner = _signer(world, reference), owner_of(world, reference)
        rival = None if owner is None or not owner.has_authority else owner.rival(world, signer)
        if rival is not None:
            return rival
        known = self._authorities.get(signer)
        if known is not None and known.expires > self._clock():
            return known
        fault = self._faults.get(reference)
        if fault is not None and fault[0]() is world and self._clock() < fault[1]:
            return fault[2]
        loaded = self._loaded(world, reference, signer)
        if isinstance(loaded, Violation):
            self._faults[reference] = (ref(world), self._clock() + RETRIED_AFTER / 2, loaded)
        else:
            self._faults.pop(reference, None)
            self._authorities[signer] = loaded
        return loaded

    def _loaded(self, world: World, reference: AuthorityRef, signer: str) -> Authority | Violation:
        """The authority that is enabled now, or the one that was enabled before."""
        now, owner = self._clock(), owner_of(world, reference)
        if owner is None or not owner.has_authority:
            return Violation("mtls", "is switched off")
        enabled = owner.authority(world, self._sources, now)
        for candidate in (enabled, owner.stored_authority(world, _backend(world, reference), now)):
            if isinstance(candidate, Authority) and candidate.fingerprint == signer:
                return candidate
        if isinstance(enabled, Violation):
            return enabled
        if (fault := _expired(trust_of(world.get(reference.record_key)).root(signer), now)) is not None:
            return fault.at(owner.place)
        hint = "the authority that is enabled signs as soon as every proxy trusts it"
        return Violation(owner.place, "the key of the authority that signs is not there any more", hint)

    def keep_only(self, signers: Collection[str]) -> None:
        self._authorities = {signer: authority for signer, authority in self._authorities.items() if signer in signers}


def _signer(world: World, reference: AuthorityRef) -> str:
    """The fingerprint of the authority that signs; empty while nobody does."""
    return world.recall(_Signers, reference)


class _Signers(Memo[World, AuthorityRef, str]):
    def basis(self, source: World, key: AuthorityRef) -> Resource | None:
        return source.get(key.record_key)

    def work_out(self, source: World, key: AuthorityRef) -> str:
        return trust_of(source.get(key.record_key)).signer


def _bundles(world: World, mesh: str) -> tuple[TrustBundle, ...]:
    security = security_of(world, mesh)
    return () if security is None else security.bundles


def _backend(world: World, reference: AuthorityRef) -> str:
    record = trust_of(world.get(reference.record_key))
    root = record.root(record.signer)
    return "" if root is None else root.backend


def _expired(signer: TrustedRoot | None, now: float) -> Violation | None:
    """That whoever signs has expired: the record has the certificate also where the authority is gone."""
    expiry = None if signer is None else expiry_of(signer.certificate)
    if expiry is None or expiry[1] > now:
        return None
    hint = "the authority that is enabled signs as soon as every proxy trusts it"
    return Violation("", f"the authority that signs has expired at {instant(expiry[1]).isoformat()}", hint)


def _packed(name: str, leaf: LeafCertificate) -> PackedResource:
    secret = Secret(name=name)
    secret.tls_certificate.certificate_chain.inline_string = leaf.chain
    secret.tls_certificate.private_key.inline_bytes = leaf.key
    return PackedResource.of(SECRET, name, secret.SerializeToString(deterministic=True))


def read_variable(name: str) -> str | None:
    """A variable of this process: a document names it, so no setting can."""
    return os.environ.get(name)  # noqa: TID251

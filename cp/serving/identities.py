"""`Identities`: the certificate of each connected proxy, issued by us, kept in memory alone and renewed in time.

A key is in the snapshot of its own proxy and nowhere else. See record 0056.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

import structlog
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret

from cp.files import read_file
from cp.identity.identities import ProxyIdentity, identity_of
from cp.identity.leaf import Certificate, LeafCertificate, issue
from cp.identity.likeness import has_nameless_twin
from cp.identity.owners import AuthoritySources, owners
from cp.identity.security import TrustBundle, security_of
from cp.metrics import Metrics
from cp.model.failure import reason
from cp.model.names import proxy_id
from cp.model.violation import Violation
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.signers import Signers, backend_of_signer, read_variable, signer_of
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
        self,
        metrics: Metrics,
        clock: Callable[[], float],
        chance: Callable[[], float],
        stopwatch: Callable[[], float] = monotonic,
    ) -> None:
        """`chance` is a random number from 0 to 1. The clock is for dates, the stopwatch for what lasts."""
        self._metrics, self._clock, self._chance, self._stopwatch = metrics, clock, chance, stopwatch
        self._signers = Signers(clock, AuthoritySources(read_file, read_variable), stopwatch)
        self._held: dict[str, _Held] = {}
        self._faults: dict[str, tuple[str, float]] = {}
        """Why proxies do not have what they should, and when to try again, by the stopwatch."""

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
        signer = signer_of(world, identity.authority)
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
        certificate = self._certificate(leaf, identity, backend_of_signer(world, identity.authority), generation)
        part = SnapshotPart([_packed(mesh_identity(mesh), leaf)])
        self._held[proxy] = _Held(identity, signer_of(world, identity.authority), certificate, part)
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
        self._faults[proxy] = (fault, self._stopwatch() + RETRIED_AFTER)
        if fault != earlier and is_news:  # as one line for all proxies of a mesh
            self._log.warning("certificate.failed", proxy=proxy, reason=fault)

    def _is_due(self, held: _Held) -> bool:
        return held.certificate.renewal is not None and held.certificate.renewal <= self._clock()

    # --- what others ask ---

    def due(self) -> frozenset[str]:
        """The proxies whose certificates are to be renewed, or to be tried again, now."""
        now, faults = self._stopwatch(), dict(self._faults)
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


def _bundles(world: World, mesh: str) -> tuple[TrustBundle, ...]:
    security = security_of(world, mesh)
    return () if security is None else security.bundles


def _packed(name: str, leaf: LeafCertificate) -> PackedResource:
    secret = Secret(name=name)
    secret.tls_certificate.certificate_chain.inline_string = leaf.chain
    secret.tls_certificate.private_key.inline_bytes = leaf.key
    return PackedResource.of(SECRET, name, secret.SerializeToString(deterministic=True))

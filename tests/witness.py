"""A real Envoy as a witness: it must take every golden snapshot as it is served."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import trustme
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret

from cp.translate.packing import ROUTES, SECRET, PackedResource
from cp.translate.snapshot import Snapshot
from generators.bootstrap import ControlPlane, EnvoyIdentity, bootstrap
from generators.bootstrap import ListenAddress as Place
from generators.envoy.names import MISSING_CLUSTER, mesh_authority, mesh_identity
from tests.ads.serving import Serving
from tests.support.envoy import Envoy
from tests.support.loopback import new_address
from tests.support.waiting import eventually

_PROXY: Final = "golden.witness"
_ROOTS: Final = mesh_authority("")
_DEADLINE: Final = 15.0


class Witness:
    """One long-lived Envoy on a real ADS server, shown one snapshot after the other."""

    def __init__(self, serving: Serving, envoy: Envoy) -> None:
        self._serving = serving
        self._envoy = envoy
        self._leaf = trustme.CA().issue_cert("spiffe.invalid")

    @classmethod
    @contextmanager
    def called(cls, folder: Path) -> Iterator[Self]:
        ads, admin = new_address(), new_address()
        trusted = folder / "trusted.pem"
        trustme.CA().cert_pem.write_to_path(str(trusted))
        proxy = EnvoyIdentity("golden", "witness", "witness", Place(admin.host, admin.port), system_ca=str(trusted))
        config = bootstrap(proxy, ControlPlane(Place(ads.host, ads.port)))
        with Serving(ads) as serving, Envoy(config, folder) as envoy:
            yield cls(serving, envoy)

    def refusal(self, snapshot: Snapshot) -> str:
        """What Envoy has against a snapshot; nothing if it took all of it."""
        resources = [self._with_files(_strict(packed)) for part in snapshot.parts for packed in part]
        resources.extend(self._certificates(resources))
        shown = self._serving.publish(_PROXY, *resources)

        def settled() -> bool:
            """Return whether Envoy has answered all of this, and not only what it was shown before."""
            self._envoy.process.check()
            session = self._serving.seat(_PROXY).session
            return session.is_at(shown) or session.has_answered_all(shown)

        eventually(settled, _DEADLINE)
        statuses = self._serving.seat(_PROXY).session.statuses
        return "\n".join(nack.text for status in statuses for nack in status.nacks)

    def _with_files(self, packed: PackedResource) -> PackedResource:
        """A copy in which a certificate from a file, which is on no machine, is one that there is."""
        message = Secret.FromString(packed.body) if packed.type_url == SECRET else Secret()
        if not message.tls_certificate.certificate_chain.filename:
            return packed
        self._write_leaf(message)
        return PackedResource.of(SECRET, packed.name, message.SerializeToString())

    def _write_leaf(self, secret: Secret) -> None:
        secret.tls_certificate.certificate_chain.inline_bytes = self._leaf.cert_chain_pems[0].bytes()
        secret.tls_certificate.private_key.inline_bytes = self._leaf.private_key_pem.bytes()

    def _certificates(self, resources: Sequence[PackedResource]) -> Iterator[PackedResource]:
        """The certificate of a proxy with mTLS, which no snapshot of the compiler has."""
        for packed in resources:
            if packed.type_url == SECRET and packed.name.startswith(_ROOTS):
                name = mesh_identity(packed.name.removeprefix(_ROOTS))
                secret = Secret(name=name)
                self._write_leaf(secret)
                yield PackedResource.of(SECRET, name, secret.SerializeToString())


def _strict(packed: PackedResource) -> PackedResource:
    """A copy with which Envoy refuses routes to clusters that are not there, unless one is meant not to be there."""
    if packed.type_url != ROUTES or MISSING_CLUSTER.encode() in packed.body:
        return packed
    message = RouteConfiguration.FromString(packed.body)
    message.validate_clusters.value = True
    return PackedResource.of(ROUTES, packed.name, message.SerializeToString(deterministic=True))

"""Names for workloads: MeshIdentities with the records of their authorities, and MeshTrusts."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any, Final

import trustme

from cp.identity.trust import TrustedRoot, TrustRecord, record_document
from cp.model.secret_names import identity_trust_key
from tests.random_mesh.words import Data, Home, sometimes

IDENTITIES: Final = ("identity-a", "identity-b")
_DOMAINS: Final = ("one.local", "two.local", "default")
_PATHS: Final = ("/workload/{{ .Workload }}", '/app/{{ label "app" }}', "/everybody")


def identity(chance: Random) -> Data:
    """One that the control plane has an authority for, mostly."""
    bundled = {
        "autogenerate": {"enabled": True},
        "insecureAllowSelfSigned": True,
        **sometimes(chance, 0.2, {"meshTrustCreation": "Disabled"}),
    }
    templates = {**sometimes(chance, 0.5, {"trustDomain": chance.choice(_DOMAINS)}), "path": chance.choice(_PATHS)}
    spec: dict[str, Any] = {
        **sometimes(chance, 0.9, {"selector": {"dataplane": {"matchLabels": sometimes(chance, 0.5, {"app": "web"})}}}),
        **sometimes(chance, 0.9, {"provider": {"type": "Bundled", "bundled": bundled}}),
        "spiffeID": templates,
    }
    return Home().named("MeshIdentity", chance.choice(IDENTITIES), {}, spec=spec)


def record(chance: Random) -> Data:
    """How far the authority of a MeshIdentity is: trusted, or signing, with callers that speak TLS or do not yet."""
    key = identity_trust_key("default", chance.choice(IDENTITIES))
    fingerprint, certificate = chance.choice(list(enumerate(_roots())))
    root = TrustedRoot(
        fingerprint=str(fingerprint), certificate=certificate, backend="authority", since=0.0, lifetime=60.0
    )
    signer = root.fingerprint if chance.random() < 0.7 else ""
    domain = chance.choice([*_DOMAINS, "default.default.mesh.local", ""])
    written = TrustRecord(roots=(root,), signer=signer, callers=chance.random() < 0.5, domain=domain)
    return dict(record_document(key, written).data)


def trust(chance: Random) -> Data:
    bundles = [{"type": "Pem", "pem": {"value": certificate}} for certificate in chance.sample(_roots(), 1)]
    spec = {"trustDomain": chance.choice(_DOMAINS), "caBundles": bundles}
    return Home().named("MeshTrust", f"trust-{chance.randrange(2)}", {}, spec=spec)


@cache
def _roots() -> tuple[str, ...]:
    """Made anew in each run: nothing depends on what they say."""
    return tuple(trustme.CA().cert_pem.bytes().decode() for _ in range(2))

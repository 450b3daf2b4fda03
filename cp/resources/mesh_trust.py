"""MeshTrust: the certificates of the authorities that are trusted to sign for a trust domain.

See record 0057.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from cp.model.violation import Violation, at
from cp.resources.checks import must_be_set
from cp.resources.kinds import DocumentMeta, Kind
from cp.resources.schema import Schema, shortened
from cp.resources.spiffe import fault_of_domain

LONGEST_DOMAIN: Final = 253
"""Characters. The specification of SPIFFE has two more."""

_PEM: Final = "PEM, the text that begins with `-----BEGIN CERTIFICATE-----`, is what is wanted"
_KEY: Final = "PRIVATE KEY-----"


class PemText(Schema, frozen=True):
    value: str = ""


class CaBundle(Schema, frozen=True):
    type: Literal["Pem"] | None = None
    pem: PemText | None = None


class TrustOrigin(Schema, frozen=True):
    """The MeshIdentity because of which the control plane wrote it."""

    kri: str | None = None


class MeshTrust(Schema, frozen=True):
    trust_domain: str = ""
    ca_bundles: list[CaBundle] | None = None
    origin: TrustOrigin | None = None

    def certificates(self) -> tuple[str, ...]:
        """Its certificates one by one, in PEM, without anything else that stands between them."""
        texts = (bundle.pem.value for bundle in self.ca_bundles or () if bundle.pem is not None)
        return tuple(certificate for text in texts for certificate in _certificates(text))


def validate(trust: MeshTrust, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from at("spec", _domain(trust.trust_domain))
    yield from must_be_set("spec.caBundles", trust.ca_bundles, "the certificates of those who may sign")
    for index, bundle in enumerate(trust.ca_bundles or ()):
        yield from at(f"spec.caBundles[{index}]", _bundle(bundle))


def _domain(domain: str) -> Iterator[Violation]:
    yield from must_be_set("trustDomain", domain, "for example `default.default.mesh.local`")
    if len(domain) > LONGEST_DOMAIN:
        yield Violation("trustDomain", f"is {len(domain)} characters long", f"{LONGEST_DOMAIN} are what it may have")
    elif domain and (fault := fault_of_domain(domain)):
        yield Violation("trustDomain", f"`{shortened(domain)}` cannot be a trust domain: it {fault}")


def _bundle(bundle: CaBundle) -> Iterator[Violation]:
    yield from must_be_set("type", bundle.type, "Pem")
    yield from must_be_set("pem", bundle.pem, "give it the certificates as its `value`")
    if bundle.pem is not None and _KEY in bundle.pem.value:
        yield Violation("pem.value", "has a private key in it, and everybody may read this", "remove the key")
    elif bundle.pem is not None and not _certificates(bundle.pem.value):
        yield Violation("pem.value", "is no certificate", _PEM)


def _certificates(text: str) -> list[str]:
    """The certificates in a text, in PEM; none if it cannot be read."""
    # Every command knows this kind, and few of them read certificates.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    try:
        certificates = x509.load_pem_x509_certificates(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return []
    return [certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates]


MESH_TRUST: Final = Kind("MeshTrust", "mtrust", "meshtrusts", MeshTrust, validate, needs_spec=True)

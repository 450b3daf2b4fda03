"""`LeafCertificate`: the certificate of one proxy with its key, as an authority issues it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from cp.identity.authority import SKEW, Authority, PrivateKey, instant, key_text, key_usage
from cp.identity.certificates import pem
from cp.identity.identities import ProxyIdentity

SHORTEST: Final = 1.0
"""Seconds that a leaf is valid at the least, whatever a backend asks for: making them must not be all that is done."""


@dataclass(frozen=True, slots=True)
class LeafCertificate:
    chain: str = field(repr=False)
    """In PEM: the certificate, and that of the authority if others have to vouch for it."""

    key: bytes = field(repr=False)
    """In PEM."""

    issued: float
    not_before: float
    not_after: float
    serial: str
    """In hexadecimal."""

    is_cut_short: bool
    """Whether it ends with its authority: a later one would be valid no longer."""

    def due(self, part: float) -> float | None:
        """When some part of its life is over; None if another would bring nothing."""
        return None if self.is_cut_short else self.issued + (self.not_after - self.issued) * part


@dataclass(frozen=True, slots=True)
class Certificate:
    """What may be told of the certificate of a proxy. Times are seconds since 1970."""

    mesh: str
    backend: str
    """Which authority issued it."""

    serial: str
    uris: tuple[str, ...]
    issued: float
    not_before: float
    not_after: float
    renewal: float | None
    """When it is renewed; None if it is not, because its authority ends with it."""

    generation: int
    """How many certificates this process has issued to the proxy since it connected."""

    fault: str = ""
    """Why there is no newer one, where there should be."""

    trusted: tuple[str, ...] = ()
    """The backends of the authorities that the mesh trusts now."""


def issue(authority: Authority, identity: ProxyIdentity, now: float, *, has_twin: bool = False) -> LeafCertificate:
    """A new key, and the certificate that says whose it is.

    A twin is somebody trusted who has the name of the authority, and nothing else that Envoy tells the two apart by.
    """
    key: PrivateKey = (
        rsa.generate_private_key(65537, 2048) if identity.key == "RSA2048" else ec.generate_private_key(ec.SECP256R1())
    )
    ends = now + max(identity.lifetime, SHORTEST)
    serial = x509.random_serial_number()
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(instant(now - SKEW))
        .not_valid_after(instant(min(ceil(ends), authority.expires)))
    )
    for extension, is_critical in _extensions(authority, identity, key, has_twin=has_twin):
        builder = builder.add_extension(extension, critical=is_critical)
    certificate = builder.sign(authority.key, hashes.SHA256())
    return LeafCertificate(
        chain=pem(certificate) + _beside(authority),
        key=key_text(key),
        issued=now,
        not_before=certificate.not_valid_before_utc.timestamp(),
        not_after=certificate.not_valid_after_utc.timestamp(),
        serial=f"{serial:x}",
        is_cut_short=authority.expires <= ends,
    )


def _extensions(
    authority: Authority, identity: ProxyIdentity, key: PrivateKey, *, has_twin: bool
) -> list[tuple[x509.ExtensionType, bool]]:
    names = [x509.UniformResourceIdentifier(uri) for uri in identity.uris]
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    is_rsa = isinstance(key, rsa.RSAPrivateKey)
    return [
        (x509.SubjectAlternativeName(names), True),  # RFC 5280 4.2.1.6: critical, as there is no subject
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (key_usage(digital_signature=True, key_encipherment=is_rsa), True),
        (x509.ExtendedKeyUsage(usages), False),
        (_issuer(authority, has_twin=has_twin), False),
    ]


def _issuer(authority: Authority, *, has_twin: bool) -> x509.AuthorityKeyIdentifier:
    """What tells the authority apart from another one with the same name, which it may take the place of.

    Its serial number only where nothing else does: who renews a root keeps its key, and has another number.
    """
    certificate = authority.certificate
    identifier = _identifier(certificate)
    if identifier is not None and not has_twin:
        return x509.AuthorityKeyIdentifier(identifier, None, None)
    return x509.AuthorityKeyIdentifier(identifier, [x509.DirectoryName(certificate.issuer)], certificate.serial_number)


def _identifier(certificate: x509.Certificate) -> bytes | None:
    try:
        named = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        return None
    return named.value.digest


def _beside(authority: Authority) -> str:
    """The certificate of an authority that is no root, so that who trusts the root alone can follow."""
    certificate = authority.certificate
    return "" if certificate.subject == certificate.issuer else authority.certificates

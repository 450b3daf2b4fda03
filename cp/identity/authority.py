"""`Authority`: a certificate with the key that signs for proxies; how it is made, and what it must be."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from cp.identity.certificates import MOST_BITS, NO_CERTIFICATE, certificates_in, fits, key_in, pem, text_of
from cp.model.violation import Violation
from cp.resources.mesh import CaBackend

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
"""Of an authority or of a proxy."""

SKEW: Final = 60.0
"""Seconds before now from which a new certificate is valid: the clocks of other machines may be late."""

_END_OF_TIME: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_EXPONENT: Final = 65537
_FEWEST_BITS: Final = 2048
_UNREADABLE: Final = (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)
_CURVES: Final = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, as they are stored: in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authority:
    certificate: x509.Certificate = field(repr=False)
    """The one that signs."""

    key: PrivateKey = field(repr=False, compare=False)
    certificates: str = field(repr=False)
    """In PEM: the one that signs, and all others that came with it."""

    fingerprint: str

    @property
    def expires(self) -> float:
        return self.certificate.not_valid_after_utc.timestamp()


def authority(pair: KeyPair, now: float | None) -> Authority | Violation:
    """What a pair is good for, or why it can sign nothing: the path is `cert` or `key`. It never quotes either.

    Where the time is not known, nothing has expired.
    """
    try:
        return _authority(pair, now)
    except _UNREADABLE:
        return Violation("cert", "has something in it that cannot be read", "make a new one")


def _authority(pair: KeyPair, now: float | None) -> Authority | Violation:
    chain = certificates_in(text_of(pair.certificate))
    if not chain:
        return NO_CERTIFICATE.at("cert")
    if (fault := _fault_of_certificate(chain[0], now)) is not None:
        return fault.at("cert")
    key = key_in(text_of(pair.key))
    if isinstance(key, Violation):
        return key.at("key")
    if not fits(chain[0], key):
        return Violation("key", "is not the key of `cert`", "give both from the same issue")
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) or not _is_taken(key):
        return Violation(
            "key", "is of a kind that proxies do not take", "make it with ECDSA P-256, or RSA of 2048 bits"
        )
    return Authority(chain[0], key, "".join(map(pem, chain)), fingerprint_of(chain[0]))


def expiry_of(text: str) -> tuple[float, float] | None:
    """When the first certificate of a text begins and ends; None if there is none."""
    chain = certificates_in(text)
    return (chain[0].not_valid_before_utc.timestamp(), chain[0].not_valid_after_utc.timestamp()) if chain else None


def fingerprint_of(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex()


def _fault_of_certificate(certificate: x509.Certificate, now: float | None) -> Violation | None:
    if not _may_sign(certificate):
        hint = "it needs `CA:TRUE` in its basic constraints, and may sign certificates by its key usage"
        return Violation("", "is no certificate of an authority", hint)
    if now is None:
        return None
    if certificate.not_valid_after_utc.timestamp() <= now:
        return Violation("", f"has expired at {certificate.not_valid_after_utc.isoformat()}", "give a new one")
    if certificate.not_valid_before_utc.timestamp() > now:
        return Violation("", f"is not valid before {certificate.not_valid_before_utc.isoformat()}")
    return None


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    return constraints.ca and _has_signing_usage(certificate)


def _has_signing_usage(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:  # then it may be used for everything
        return True


def _is_taken(key: PrivateKey) -> bool:
    if isinstance(key, rsa.RSAPrivateKey):
        return key.key_size >= _FEWEST_BITS
    return isinstance(key.curve, _CURVES)


# --- built-in authorities ---


def new_pair(mesh: str, backend: CaBackend, now: float) -> KeyPair:
    """The certificate and the key of a new authority that signs for a mesh."""
    key = _new_key(backend.rsa_bits)
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Koguma"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Mesh"),
            x509.NameAttribute(NameOID.COMMON_NAME, _common_name(mesh)),
        ]
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(instant(now - SKEW))
        .not_valid_after(instant(min(now + backend.ca_lifetime, _END_OF_TIME)))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"spiffe://{mesh}")]), critical=False
        )
    )
    return KeyPair(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM), key_text(key))


def _new_key(bits: int | None) -> PrivateKey:
    if bits is None:
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(_EXPONENT, min(max(bits, _FEWEST_BITS), MOST_BITS))


def _common_name(mesh: str) -> str:
    """X.509 has room for 64 characters."""
    return mesh[:64]


def key_text(key: PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def key_usage(
    *,
    digital_signature: bool = False,
    key_encipherment: bool = False,
    key_cert_sign: bool = False,
    crl_sign: bool = False,
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=key_encipherment,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def instant(seconds: float) -> datetime:
    """A time as certificates have it: to the second."""
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=int(seconds))

"""Certificates and keys in texts. A fault of one never quotes the text, which may be a secret."""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from cp.model.violation import Violation

_PEM: Final = "PEM, the text that begins with `-----BEGIN`, is what is wanted"
NO_CERTIFICATE: Final = Violation("", "is no certificate", _PEM)
NO_KEY: Final = Violation("", "is no private key, or one with a password", _PEM)
OTHER_KEY: Final = Violation("", "is not the key of `clientCert`", "give both from the same issue")


def text_of(data: bytes) -> str:
    """Data as the text of a PEM file, which is ASCII. Other bytes are replaced, so the text is no valid PEM either."""
    return data.decode("ascii", "replace")


def certificates(text: str) -> str:
    """The certificates in a text, without anything else in it, such as a key; empty if there are none."""
    return "".join(map(pem, certificates_in(text)))


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def fault_of_key(text: str, certificate: str) -> Violation | None:
    """Why a key cannot be used, or not with this certificate; None if it can."""
    key, chain = key_in(text), certificates_in(certificate)
    if key is None:
        return NO_KEY
    return OTHER_KEY if chain and not fits(chain[0], key) else None


def fits(certificate: x509.Certificate, key: PrivateKeyTypes) -> bool:
    """Whether a key is that of a certificate."""
    return certificate.public_key() == key.public_key()


def certificates_in(text: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return []


def key_in(text: str) -> PrivateKeyTypes | None:
    try:
        return load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        return None

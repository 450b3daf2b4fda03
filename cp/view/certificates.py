"""Whether certificates and keys can be used. What is wrong with one is said without a word of what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from cp.model.violation import Violation

_PEM: Final = "PEM, the text that begins with `-----BEGIN`, is what is wanted"


def text_of(data: bytes) -> str:
    """PEM is plain ASCII; anything else comes to something that is no PEM either."""
    return data.decode("ascii", "replace")


def fault_of_authorities(text: str) -> Iterator[Violation]:
    """What is wrong with certificates of authorities."""
    if not _certificates(text):
        yield Violation("", "is no certificate", _PEM)


def fault_of_pair(certificate: str, key: str) -> Iterator[tuple[str, Violation]]:
    """What is wrong with a certificate, with its chain, and its key; each with the one that it is about."""
    chain, private = _certificates(certificate), _key(key)
    if not chain:
        yield "clientCert", Violation("", "is no certificate", _PEM)
    if private is None:
        yield "clientKey", Violation("", "is no private key, or one with a password", _PEM)
    if chain and private is not None and chain[0].public_key() != private.public_key():
        yield "clientKey", Violation("", "is not the key of `clientCert`", "give both from the same issue")


def _certificates(text: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return []


def _key(text: str) -> PrivateKeyTypes | None:
    try:
        return load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        return None

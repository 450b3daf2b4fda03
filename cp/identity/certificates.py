"""Certificates and keys in texts. A fault of one never quotes the text, which may be a secret."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from cp.model.violation import Violation

MOST_BITS: Final = 4096
"""Of an RSA key. What it costs to check one grows with the third power of its size or worse: one of 8192 bits takes
seconds, and Python's other threads wait for it."""

_FEWEST_BITS: Final = 2048
"""Of an RSA key that Envoy takes for a server."""

_LONGEST_KEY: Final = 16 * 1024
"""Characters of a text with a key, and perhaps with certificates beside it."""

_MOST_REMEMBERED: Final = 1024

_PEM: Final = "PEM, the text that begins with `-----BEGIN`, is what is wanted"
NO_CERTIFICATE: Final = Violation("", "is no certificate", _PEM)
NO_KEY: Final = Violation("", "is no private key, or one with a password", _PEM)
LARGE_KEY: Final = Violation("", "is too large a key", f"make it with ECDSA P-256, or RSA of at most {MOST_BITS} bits")
OTHER_KEY: Final = Violation("", "is not the key of `clientCert`", "give both from the same issue")

_KEY_MISSING: Final = Violation(
    "", "has no private key", "put the certificates and the key, without a password, into one text, all in PEM"
)
_KEY_OF_ANOTHER: Final = Violation(
    "",
    "has a private key that is not that of the first certificate",
    "begin with the certificate of the server, and let those of its authorities follow",
)
_KEY_REFUSED: Final = Violation(
    "",
    "has a sort of key that Envoy does not take",
    f"make it with ECDSA P-256, or RSA of {_FEWEST_BITS} to {MOST_BITS} bits",
)
_NAMELESS: Final = Violation(
    "", "is for no name: it has neither a subject nor alternative names", "have it issued for the hostname"
)
_CURVES: Final = frozenset({"secp256r1", "secp384r1", "secp521r1"})

_PRIVATE_KEY: Final = re.compile(r"-----BEGIN ((?:[A-Z]+ )?PRIVATE KEY)-----.*?-----END \1-----\n?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CertificateChain:
    """The certificates of a server, its own first, and its key."""

    chain: str
    key_pem: str = field(repr=False)


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
    if isinstance(key, Violation):
        return key
    return OTHER_KEY if chain and not fits(chain[0], key) else None


def fits(certificate: x509.Certificate, key: PrivateKeyTypes) -> bool:
    """Whether a key is that of a certificate."""
    return certificate.public_key() == key.public_key()


def server_certificate(text: str) -> CertificateChain | Violation:
    """The certificates and the key in a text, or why Envoy could serve nobody with them."""
    chain, block = certificates_in(text), _PRIVATE_KEY.search(text)
    if not chain:
        return NO_CERTIFICATE
    if block is None:
        return _KEY_MISSING
    key = key_in(block.group())
    if isinstance(key, Violation):
        return key
    if not _is_key_of(chain[0], key):
        return _KEY_OF_ANOTHER
    if not _has_name(chain[0]):
        return _NAMELESS
    return CertificateChain("".join(map(pem, chain)), block.group()) if _is_served_by_envoy(key) else _KEY_REFUSED


def _has_name(certificate: x509.Certificate) -> bool:
    """Whether Envoy finds a name in a certificate; it refuses the whole listener for one that has none."""
    try:
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return bool(certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME))
    except (ValueError, x509.DuplicateExtension):
        pass
    return True


def _is_key_of(certificate: x509.Certificate, key: PrivateKeyTypes) -> bool:
    try:
        return fits(certificate, key)
    except (ValueError, UnsupportedAlgorithm):  # the certificate has a key of a sort that nobody knows
        return False


def _is_served_by_envoy(key: PrivateKeyTypes) -> bool:
    if isinstance(key, rsa.RSAPrivateKey):
        return key.key_size >= _FEWEST_BITS
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.curve.name in _CURVES
    return isinstance(key, ed25519.Ed25519PrivateKey)


def names_of_server(text: str) -> tuple[str, ...]:
    """The host names, and patterns of names, that the first certificate of a text is for."""
    chain = certificates_in(text)
    try:
        extension = chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName) if chain else None
    except (ValueError, x509.ExtensionNotFound):
        return ()
    return () if extension is None else tuple(extension.value.get_values_for_type(x509.DNSName))


def certificates_in(text: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return []


def key_in(text: str) -> PrivateKeyTypes | Violation:
    """The key in a text; none that it takes long to check."""
    if len(text) > _LONGEST_KEY:
        return LARGE_KEY
    key = _loaded(text)
    if not isinstance(key, rsa.RSAPrivateKey):
        return NO_KEY if key is None else key
    if _bits(key) > MOST_BITS:
        return LARGE_KEY
    return key if _SOUND_KEYS.has(text) else NO_KEY


def _loaded(text: str, *, is_checked: bool = False) -> PrivateKeyTypes | None:
    """The key in a text. Until it is checked, its numbers may be any."""
    try:
        return load_pem_private_key(text.encode(), password=None, unsafe_skip_rsa_key_validation=not is_checked)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        return None


def _bits(key: rsa.RSAPrivateKey) -> int:
    """Of its largest number: in a key that nobody has checked it may be any of them."""
    numbers = key.private_numbers()
    return max(number.bit_length() for number in (numbers.public_numbers.n, numbers.p, numbers.q, numbers.d))


class _SoundKeys:
    """Which keys are sound. Each is checked once, as whoever keeps authorities looks at them again and again.

    Nothing of a key is kept but a hash.
    """

    def __init__(self) -> None:
        self._verdicts: dict[bytes, bool] = {}

    def has(self, text: str) -> bool:
        digest = sha256(text.encode()).digest()
        verdict = self._verdicts.get(digest)
        if verdict is None:
            verdict = _loaded(text, is_checked=True) is not None
            if len(self._verdicts) >= _MOST_REMEMBERED:
                self._verdicts.clear()
            self._verdicts[digest] = verdict
        return verdict


_SOUND_KEYS: Final = _SoundKeys()

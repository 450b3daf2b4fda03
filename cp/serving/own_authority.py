"""A small certificate authority in the work folder, which signs the certificate of the control plane's own servers.

Clients trust the authority and not the certificate, so that the certificate can be renewed, and made for further names,
while they run.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cp.model.hosts import is_ip

CERTIFICATE: Final = "koguma-cp.crt"
KEY: Final = "koguma-cp.key"
AUTHORITY: Final = "koguma-cp-ca.crt"
AUTHORITY_KEY: Final = "koguma-cp-ca.key"

LIFE: Final = dt.timedelta(days=397)
"""Of the server's certificate. Some clients refuse one that lasts longer (Apple: 398 days since 2020)."""

RENEWED_BEFORE: Final = LIFE / 3
_LIFE_OF_AUTHORITY: Final = dt.timedelta(days=3653)
_CLOCKS_DIFFER: Final = dt.timedelta(minutes=5)
_LONGEST_COMMON_NAME: Final = 64
_ORGANIZATION: Final = "Koguma"
_OWNERS_ALONE: Final = 0o600
_MOST_EARLIER_NAMES: Final = 64
"""A machine whose address changes each day would otherwise have a certificate that grows for ever."""

UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What the library raises for certificates and keys of which it can make nothing."""


class UnusableAuthority(ValueError):
    """What stands where the authority is wanted is none. The message says in which file, and why."""


def ensure_certificate(folder: Path, names: Collection[str], now: dt.datetime) -> None:
    """See to it that a folder has a certificate for these names that lasts, and its key.

    The newest 64 names of earlier certificates stay in it, also when it is renewed: a proxy may still use an address
    that the machine has no more. Raises `OSError` if the folder cannot be written, `UnusableAuthority` if what is in it
    is no authority, and `ValueError` if a name cannot stand in a certificate.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        if not (folder / AUTHORITY).exists():
            _make_authority(folder, now)
        earlier = _earlier_certificate(folder)
        known = () if earlier is None else names_of(earlier)
        if earlier is None or not _lasts(folder, earlier, now) or not set(known).issuperset(names):
            kept = [name for name in known if name not in names]
            _make_certificate(folder, [*sorted(names), *kept[:_MOST_EARLIER_NAMES]], now)


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The host names and addresses that a certificate is for, in its order: in those from here, the newest first."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress))


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Two control planes that start at once in one folder make one authority."""
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _make_authority(folder: Path, now: dt.datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    # Two authorities of one name would be taken for each other by clients that trust both.
    name = _name(f"Koguma control plane {x509.random_serial_number():x}"[:_LONGEST_COMMON_NAME])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(name, name, key.public_key(), now, now + _LIFE_OF_AUTHORITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    # The key first: whoever finds the certificate finds its key, too, wherever this is cut short.
    _write(folder / AUTHORITY_KEY, _pem_of_key(key))
    _write(folder / AUTHORITY, certificate.public_bytes(Encoding.PEM))


def _make_certificate(folder: Path, names: Sequence[str], now: dt.datetime) -> None:
    authority, authority_key = _authority(folder, now)
    key = ec.generate_private_key(ec.SECP256R1())
    common = next((name for name in names if len(name) <= _LONGEST_COMMON_NAME), _ORGANIZATION)
    ends = min(now + LIFE, authority.not_valid_after_utc)
    certificate = (
        _builder(_name(common), authority.subject, key.public_key(), now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_issuer_identifier(authority), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write(folder / KEY, _pem_of_key(key))
    chain = certificate.public_bytes(Encoding.PEM) + authority.public_bytes(Encoding.PEM)
    _write(folder / CERTIFICATE, chain)


def _authority(folder: Path, now: dt.datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
        key = load_pem_private_key((folder / AUTHORITY_KEY).read_bytes(), None)
        is_its_key = key.public_key() == certificate.public_key()
        _issuer_identifier(certificate)
    except FileNotFoundError as error:
        raise UnusableAuthority(f"{Path(error.filename).name} is missing") from None
    except UNREADABLE as error:
        raise UnusableAuthority(f"{AUTHORITY} and {AUTHORITY_KEY} are no authority: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not is_its_key:
        raise UnusableAuthority(f"{AUTHORITY_KEY} is not the key of {AUTHORITY}")
    if certificate.not_valid_after_utc <= now:
        raise UnusableAuthority(f"{AUTHORITY} expired on {certificate.not_valid_after_utc:%Y-%m-%d}")
    return certificate, key


def _earlier_certificate(folder: Path) -> x509.Certificate | None:
    """The certificate that is there, if the authority signed it."""
    try:
        certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
        authority = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
        certificate.verify_directly_issued_by(authority)
        names_of(certificate)
    except (OSError, InvalidSignature, *UNREADABLE):
        return None
    return certificate


def _lasts(folder: Path, certificate: x509.Certificate, now: dt.datetime) -> bool:
    """Whether a certificate has its key and need not be renewed yet."""
    try:
        key = load_pem_private_key((folder / KEY).read_bytes(), None)
        authority = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
        is_whole = key.public_key() == certificate.public_key()
    except (OSError, *UNREADABLE):
        return False
    # It cannot last longer than the authority does.
    is_newest = certificate.not_valid_after_utc == authority.not_valid_after_utc
    return is_whole and (is_newest or certificate.not_valid_after_utc - now > RENEWED_BEFORE)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime, ends: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(ends)
    )


def _issuer_identifier(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    extension = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(extension.value)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _general_name(name: str) -> x509.GeneralName:
    if is_ip(name):
        return x509.IPAddress(ip_address(name))
    if not name.isascii():
        raise ValueError(f"the name `{name}` cannot stand in a certificate; write it in ASCII, as DNS has it (xn--...)")
    return x509.DNSName(name)


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(file: Path, content: bytes) -> None:
    """Replace a file as a whole. Nobody else can read it while it is written, nor later if it is a key."""
    new = file.with_name(f".{file.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNERS_ALONE)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    if file.suffix != ".key":
        new.chmod(0o644)
    new.replace(file)

"""The certificate of the control plane's own servers: given as files or made here, read again when the files change.

    certificate = ServerCertificate.begun(certificate_files(settings), own_names(settings))
    async with in_background(certificate.keep()):   # follows the files, and renews what was made here
        certificate.context                         # an `ssl.SSLContext`; to be asked for at each connection
        certificate.current.chain, .key, .trusted   # PEM

See record 0059.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from cp.files import read_file
from cp.model.hosts import is_ip
from cp.serving import own_authority
from cp.serving.own_names import normal_name
from cp.settings import Settings

_LOOKS_EVERY: Final = 1.0
_RENEWAL_IS_LOOKED_FOR_EVERY: Final = 3600.0

log = structlog.get_logger()


class UnusableCertificate(ValueError):
    """A certificate or key cannot be used: which file it is, and why."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where the certificate of the servers is."""

    certificate: Path
    key: Path
    authority: Path | None
    """What clients trust. None: the certificate is of an authority that machines trust anyway, or trusted itself."""

    is_made_here: bool = False


@dataclass(frozen=True, slots=True)
class ServedCertificate:
    """A certificate that can be served, and what clients need to verify it."""

    chain: bytes
    key: bytes = field(repr=False)
    trusted: str
    """PEM of what clients have to trust; empty if it is of an authority that the machines of clients trust anyway."""

    names: frozenset[str]
    """The host names and addresses that it is for. A name may begin with `*.`."""

    expires: dt.datetime

    def is_for(self, host: str) -> bool:
        """Whether a client that called this host takes the certificate (RFC 6125, 6.4)."""
        if is_ip(host):
            return str(ip_address(host)) in self.names
        name = host.lower()
        return name in self.names or f"*.{name.partition('.')[2]}" in self.names

    def is_signed_by(self, authorities: str) -> bool:
        """Whether one of these authorities (PEM) signed a certificate of the chain, or is one."""
        trusted = x509.load_pem_x509_certificates(authorities.encode())
        chain = x509.load_pem_x509_certificates(self.chain)
        return any(link == authority or _is_issued_by(link, authority) for link in chain for authority in trusted)


def certificate_files(settings: Settings) -> CertificateFiles:
    """The files that the settings name, or those in the work folder."""
    if settings.tls_certificate is None or settings.tls_key is None:
        folder = settings.work_dir
        certificate, key = folder / own_authority.CERTIFICATE, folder / own_authority.KEY
        return CertificateFiles(certificate, key, folder / own_authority.AUTHORITY, is_made_here=True)
    return CertificateFiles(settings.tls_certificate, settings.tls_key, settings.tls_authority)


class ServerCertificate:
    """The certificate that is in force."""

    def __init__(self, files: CertificateFiles, names: frozenset[str]) -> None:
        """Raises `UnusableCertificate`."""
        self._files = files
        self._names = names
        self._refused: Mapping[Path, tuple[int, int]] | None = None
        self._stamps = _stamps(files)  # before it is read, so that what is written meanwhile is seen later
        self.current = read(files)
        self.context = _context(self.current)

    @classmethod
    def begun(cls, files: CertificateFiles, names: frozenset[str] = frozenset()) -> ServerCertificate:
        """Read it, or make it if it is none of the operator's. Raises `UnusableCertificate`.

        Without names it is only read, as a worker does.
        """
        _ensure_certificate(files, names)
        return cls(files, names)

    async def keep(self) -> None:
        """Follow the files, and renew what was made here before it expires, until cancelled."""
        renewal_looked_for = time.monotonic()
        while True:
            await asyncio.sleep(_LOOKS_EVERY)
            if time.monotonic() - renewal_looked_for >= _RENEWAL_IS_LOOKED_FOR_EVERY:
                renewal_looked_for = time.monotonic()
                self.renew()
            self.look()

    def renew(self) -> None:
        try:
            _ensure_certificate(self._files, self._names)
        except UnusableCertificate as error:
            log.warning("certificate.unusable", reason=str(error))

    def look(self) -> None:
        """Take the files if they changed. Those that cannot be used are told once, and the certificate stays."""
        stamps = _stamps(self._files)
        if stamps in (self._stamps, self._refused):
            return
        try:
            current = read(self._files)
            context = _context(current)
        except UnusableCertificate as error:
            self._refused = stamps
            log.warning("certificate.unusable", reason=str(error))
            return
        self._stamps, self._refused, self.current, self.context = stamps, None, current, context
        log.info("certificate.loaded", file=str(self._files.certificate), expires=current.expires.isoformat())


def read(files: CertificateFiles) -> ServedCertificate:
    """The certificate in some files. Raises `UnusableCertificate`, which says in which file is what."""
    try:
        return _read(files)
    except UnusableCertificate:
        raise
    except own_authority.UNREADABLE as error:
        raise UnusableCertificate(f"{files.certificate} and {files.key} cannot be used: {error}") from None


def _read(files: CertificateFiles) -> ServedCertificate:
    chain, key = _content(files.certificate), _content(files.key)
    certificates = _certificates(chain, files.certificate)
    certificate = certificates[0]
    try:
        private = load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UnusableCertificate(f"{files.key} has no private key in PEM without a password") from None
    if private.public_key() != certificate.public_key():
        raise UnusableCertificate(f"{files.key} is not the key of the certificate in {files.certificate}")
    now = dt.datetime.fromtimestamp(time.time(), dt.UTC)
    if certificate.not_valid_after_utc <= now:
        raise UnusableCertificate(f"{files.certificate} expired on {certificate.not_valid_after_utc:%Y-%m-%d}")
    names = own_authority.names_of(certificate)
    if not names:
        raise UnusableCertificate(f"{files.certificate} names no host in its subjectAltName, which clients look for")
    trusted = _trusted(files, certificates)
    return ServedCertificate(chain, key, trusted, frozenset(map(normal_name, names)), certificate.not_valid_after_utc)


def _trusted(files: CertificateFiles, chain: list[x509.Certificate]) -> str:
    """The authority that is named, or the one at the end of the chain."""
    if files.authority is not None:
        content = _content(files.authority)
        if not any(map(_is_authority, _certificates(content, files.authority))):
            raise UnusableCertificate(f"{files.authority} has no certificate of an authority (CA:TRUE) in it")
        return content.decode("ascii", "replace")
    last = chain[-1]
    is_root = last.issuer == last.subject and _is_authority(last)
    return last.public_bytes(Encoding.PEM).decode() if is_root else ""


def is_authority(text: str) -> bool:
    """Whether a text has the certificate of an authority in it."""
    try:
        return any(map(_is_authority, x509.load_pem_x509_certificates(text.encode())))
    except own_authority.UNREADABLE:
        return False


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, *own_authority.UNREADABLE):
        return False
    return True


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _certificates(content: bytes, file: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise UnusableCertificate(f"{file} has no certificate in PEM in it") from None


def _content(file: Path) -> bytes:
    try:
        return read_file(file)
    except OSError as error:
        raise UnusableCertificate(f"{file} cannot be read: {error.strerror or error}") from None


def _ensure_certificate(files: CertificateFiles, names: frozenset[str]) -> None:
    if not files.is_made_here or not names:
        return
    folder = files.certificate.parent
    try:
        own_authority.ensure_certificate(folder, names, dt.datetime.fromtimestamp(time.time(), dt.UTC))
    except OSError as error:
        raise UnusableCertificate(f"no certificate can be made in {folder}: {error.strerror or error}") from None
    except own_authority.UnusableAuthority as error:
        hint = f"remove {own_authority.AUTHORITY}, and all clients have to trust the one that is made then"
        raise UnusableCertificate(f"no certificate can be made in {folder}: {error}; {hint}") from None
    except own_authority.UNREADABLE as error:
        raise UnusableCertificate(f"no certificate can be made in {folder}: {error}") from None


def _context(certificate: ServedCertificate) -> ssl.SSLContext:
    """The library reads files alone, so there are two for a moment, in a folder that nobody else can read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        with tempfile.TemporaryDirectory() as folder:
            chain, key = Path(folder, "chain"), Path(folder, "key")
            chain.write_bytes(certificate.chain)
            key.write_bytes(certificate.key)
            context.load_cert_chain(chain, key)
    except ssl.SSLError as error:
        raise UnusableCertificate(f"the certificate cannot be used for TLS: {error.reason or error}") from None
    except OSError as error:  # such as a disk that is full
        reason = error.strerror or error
        raise UnusableCertificate(f"the certificate cannot be handed to the library for TLS: {reason}") from None
    return context


def _stamps(files: CertificateFiles) -> Mapping[Path, tuple[int, int]]:
    """By what it is seen that a file is another one."""
    stamps = {}
    for file in (files.certificate, files.key, files.authority):
        if file is not None:
            with suppress(OSError):
                status = file.stat()
                stamps[file] = (status.st_mtime_ns, status.st_ino)
    return stamps

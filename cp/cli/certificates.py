"""`koguma generate tls-certificate`: a certificate that signs itself, for a server or for a client."""

from __future__ import annotations

import os
import re
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cp.cli.options import TextFormat, TextOutput
from cp.cli.output import reply
from cp.client.problem import Problem
from cp.model.duration import Duration
from cp.model.hosts import is_ip

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_SKEW: Final = timedelta(minutes=5)
"""By so much the clocks of two machines may differ."""

_HOSTNAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")
_LONGEST_NAME: Final = 64
"""Characters of a common name (RFC 5280, appendix A.1)."""


class CertificateUse(StrEnum):
    """What a certificate is for."""

    SERVER = "server"
    CLIENT = "client"


class KeyType(StrEnum):
    """The sort of a key."""

    ECDSA = "ecdsa"
    RSA = "rsa"


Use = Annotated[CertificateUse, typer.Option("--type", help="Whether it is for a server or for a client.")]
Hostnames = Annotated[
    list[str], typer.Option("--hostname", help="A name or an IP address of the server or client. May be repeated.")
]
KeyTypeOption = Annotated[KeyType, typer.Option("--key-type", help="The sort of the key: P-256, or RSA of 2048 bits.")]
KeyFile = Annotated[
    Path, typer.Option("--key-file", metavar="FILE", help="The file for the key. Its owner alone reads it.")
]
CertificateFile = Annotated[Path, typer.Option("--cert-file", metavar="FILE", help="The file for the certificate.")]
Lifetime = Annotated[str, typer.Option("--valid-for", metavar="DURATION", help="How long the certificate is valid.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the files if they exist.")]


def tls_certificate(  # noqa: PLR0913  # an option each
    *,
    type_: Use,
    hostname: Hostnames,
    key_type: KeyTypeOption = KeyType.ECDSA,
    key_file: KeyFile = Path("key.pem"),
    cert_file: CertificateFile = Path("cert.pem"),
    valid_for: Lifetime = "87600h",
    overwrite: Overwrite = False,
    output: TextOutput = TextFormat.TEXT,
) -> None:
    """Write a certificate that signs itself, and its key.

    Give the certificate as an authority to those who should trust it: it can sign no other certificate.
    """
    if key_file.absolute() == cert_file.absolute():
        raise Problem("the key and the certificate cannot be one file", "Give --key-file and --cert-file two names.")
    present = [str(file) for file in (key_file, cert_file) if os.path.lexists(file)]
    if present and not overwrite:
        raise Problem(
            f"there is already {' and '.join(present)}", "Name other files, or replace them with --overwrite."
        )
    names, lifetime, key = [_name(text) for text in hostname], _lifetime(valid_for), _new_key(key_type)
    certificate = _certificate(key, type_, hostname[0], names, lifetime)
    key_data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write((key_file, key_data, 0o600), (cert_file, certificate.public_bytes(Encoding.PEM), 0o644))
    data = {"keyFile": str(key_file), "certFile": str(cert_file)}
    reply(data, f"the key is in {key_file}, the certificate in {cert_file}", output)


def _lifetime(text: str) -> timedelta:
    try:
        duration = Duration.parse(text)
    except ValueError as error:
        raise Problem(f"--valid-for: {error}") from None
    if duration <= Duration(0):
        raise Problem(f"--valid-for: must be above zero, not `{text}`")
    return timedelta(seconds=duration.seconds)


def _new_key(key_type: KeyType) -> PrivateKey:
    if key_type is KeyType.RSA:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def _certificate(
    key: PrivateKey, use: CertificateUse, common_name: str, names: list[x509.GeneralName], lifetime: timedelta
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_LONGEST_NAME])])
    now = datetime.fromtimestamp(time.time(), UTC)
    usage = ExtendedKeyUsageOID.SERVER_AUTH if use is CertificateUse.SERVER else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - _SKEW, now + lifetime)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(key), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, SHA256())


def _name(hostname: str) -> x509.GeneralName:
    if is_ip(hostname):
        return x509.IPAddress(ip_address(hostname))
    if _HOSTNAME.fullmatch(hostname) is None:
        raise Problem(f"`{hostname}` is no host name", "Write one of other letters in its form for DNS: xn--…")
    return x509.DNSName(hostname)


def _key_usage(key: PrivateKey) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=isinstance(key, rsa.RSAPrivateKey),
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(*files: tuple[Path, bytes, int]) -> None:
    """Write files, none of which is ever there in part, with another mode, or behind somebody's link.

    They are put in their places when all are written.
    """
    with ExitStack() as cleanup:
        staged = [(_staged(file, data, mode, cleanup), file) for file, data, mode in files]
        for temporary, file in staged:
            temporary.replace(file)


def _staged(file: Path, data: bytes, mode: int, cleanup: ExitStack) -> Path:
    """A file beside the one that it will replace."""
    if file.is_dir() and not file.is_symlink():
        raise Problem(f"{file} is a folder", "Name a file.")
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as opened:
            temporary = Path(opened.name)
            cleanup.callback(temporary.unlink, missing_ok=True)
            os.fchmod(opened.fileno(), mode)  # it was made for its owner alone
            opened.write(data)
    except OSError as error:
        raise Problem(f"{file} cannot be written: {error.strerror}") from None
    return temporary

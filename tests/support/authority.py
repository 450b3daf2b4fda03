"""A certificate authority of a test's own, which signs whatever the test wants."""

import socket
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.support.loopback import Address
from tests.support.mesh import secret

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Certified:
    """A certificate with its key, in PEM."""

    certificate: bytes
    key: bytes

    def written(self, folder: Path) -> tuple[str, str]:
        """The paths of both, in a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = folder / "leaf.crt", folder / "leaf.key"
        certificate.write_bytes(self.certificate)
        key.write_bytes(self.key)
        return str(certificate), str(key)

    def client(self, folder: Path, alpn: str = "kuma") -> ssl.SSLContext:
        """The TLS of a client that shows it, and believes whoever answers."""
        context = unverified()
        context.load_cert_chain(*self.written(folder))
        if alpn:
            context.set_alpn_protocols([alpn])
        return context


class Authority:
    def __init__(self, name: str = "default", *, is_identified: bool = True) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.domain = name
        builder = _builder(self._name, self._name, self._key, -HOUR, timedelta(days=365)).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        if is_identified:  # otherwise Envoy may not tell two roots of one name apart, and verify by the wrong one
            identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
            builder = builder.add_extension(identifier, critical=False)
        usage = _usage(signs=True)
        signed = builder.add_extension(usage, critical=True).add_extension(_uris(f"spiffe://{name}"), critical=False)
        self.certificate = signed.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        self.key = _pem(self._key)

    def leaf(self, *uris: str, valid_from: timedelta = -HOUR, valid_until: timedelta = HOUR) -> Certified:
        """A leaf with these URIs. Its times are seen from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        signed = (
            _builder(x509.Name([]), self._name, key, valid_from, valid_until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(_uris(*uris), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return Certified(signed.public_bytes(serialization.Encoding.PEM), _pem(key))

    def secrets(self, name: str = "ca-1") -> tuple[dict[str, Any], ...]:
        """The Secrets to which it refers as a provided backend."""
        return secret(f"{name}-cert", self.certificate), secret(f"{name}-key", self.key)


def certificate_of(address: Address) -> x509.Certificate:
    """The certificate with which a proxy of the mesh answers. It shows it before it asks for the caller's."""
    context = unverified()
    context.set_alpn_protocols(["kuma"])
    with socket.create_connection(address, 5) as connection, context.wrap_socket(connection) as over_tls:
        return x509.load_der_x509_certificate(over_tls.getpeercert(binary_form=True) or b"")


def is_signed_by(certificate: x509.Certificate, authority: bytes) -> bool:
    """Whether an authority, in PEM, has signed a certificate; it may have the name of another one."""
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (InvalidSignature, ValueError):
        return False
    return True


def provided(name: str = "ca-1", mode: str = "STRICT") -> dict[str, Any]:
    """A provided backend of a Mesh: the authority in these Secrets."""
    conf = {part: {"secret": f"{name}-{part}"} for part in ("cert", "key")}
    return {"name": name, "type": "provided", "mode": mode, "conf": conf}


def unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, since: timedelta, until: timedelta
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(time.time(), UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + since)
        .not_valid_after(now + until)
    )


def _uris(*uris: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

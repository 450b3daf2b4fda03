"""A certificate for the gateway of the demo, by which nobody else is certified."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

SECRET_NAME: Final = "shop-certificate"  # noqa: S105  # no password, but how the MeshGateway calls it
_DAYS: Final = 1


def issue(hostname: str, file: Path) -> dict[str, Any]:
    """The Secret with a certificate for a hostname and its key. The certificate alone is written to the file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, hostname)])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=_DAYS))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(hostname)]), critical=False)
    chain = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    file.write_bytes(chain)
    data = base64.b64encode(chain + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())).decode()
    return {"type": "Secret", "mesh": "default", "name": SECRET_NAME, "data": data}

"""Meshes with mTLS, their proxies and their authorities, for tests."""

from __future__ import annotations

import base64
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cp.identity.authority import Authority, KeyPair, authority, instant, new_pair
from cp.identity.trust import TrustedRoot, TrustRecord, record_document
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import trust_key
from cp.policies import discover, kinds
from cp.resources.mesh import CaBackend, CaConf, GeneratedCa
from cp.resources.resource import Resource
from cp.resources.world import World

NOW: Final = 1_800_000_000.0
YEAR: Final = 365 * 86_400.0
CA: Final = x509.BasicConstraints(ca=True, path_length=None)
_SUBJECT: Final = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "someone")])
SERVICE: Final = {"kuma.io/service": "web"}
KINDS: Final = kinds(discover())
PLAIN: Final = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
PEM: Final = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"


def mesh(name: str = "ca-1", **backend: Any) -> Document:
    mtls = {"enabledBackend": name, "backends": [{"name": name, "type": "builtin", **backend}]}
    return Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default", "mtls": mtls})


def provided(pair: KeyPair, name: str = "ca-1", **backend: Any) -> Document:
    """A mesh that brings its authority along."""
    conf = {"cert": {"inline": _base64(pair.certificate)}, "key": {"inline": _base64(pair.key)}}
    return mesh(name, type="provided", conf=conf, **backend)


def dataplane(*tags: dict[str, str], name: str = "web-1", **networking: Any) -> Document:
    key = Key("Dataplane", "default", name)
    inbound = [{"port": 8000 + index, "tags": of_inbound} for index, of_inbound in enumerate(tags)]
    networking = {"address": "127.0.0.1", **({"inbound": inbound} if inbound else {}), **networking}
    return Document(key, {"type": key.type, "mesh": key.mesh, "name": key.name, "networking": networking})


def secret(name: str, value: bytes) -> Document:
    key = Key("Secret", "default", name)
    return Document(key, {"type": "Secret", "mesh": "default", "name": name, "data": _base64(value)})


def record(*texts: str, callers: bool = False) -> Document:
    """A trust record with roots that are no certificates."""
    roots = tuple(
        TrustedRoot(fingerprint=text, certificate=PEM.format(text), backend="ca-1", since=0.0, lifetime=1.0)
        for text in texts
    )
    return record_document(trust_key("default"), TrustRecord(roots=roots, signer=texts[0], callers=callers))


def trusting(signer: Authority, backend: str = "ca-1") -> Document:
    """A trust record in which an authority signs."""
    root = TrustedRoot(
        fingerprint=signer.fingerprint, certificate=signer.certificates, backend=backend, since=NOW, lifetime=86_400.0
    )
    return record_document(trust_key("default"), TrustRecord(roots=(root,), signer=signer.fingerprint))


def new_authority(name: str = "default", now: float = NOW, **conf: Any) -> tuple[KeyPair, Authority]:
    pair = new_pair(name, CaBackend(name="ca-1", conf=CaConf(ca_cert=GeneratedCa(**conf))), now)
    made = authority(pair, now)
    assert isinstance(made, Authority)
    return pair, made


def pair_of(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey,
    *extensions: x509.ExtensionType,
    begins: float = NOW - 60,
    ends: float = NOW + YEAR,
    issuer: Authority | None = None,
    subject: x509.Name = _SUBJECT,
) -> KeyPair:
    """Any certificate with its key: signed by itself, or by an authority."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(instant(begins))
        .not_valid_after(instant(ends))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(builder.sign(key if issuer is None else issuer.key, algorithm).public_bytes(Encoding.PEM), text)


def world(*documents: Document) -> World:
    return World.of(documents, KINDS)


def proxy(world: World, name: str = "web-1") -> Resource:
    found = world.get(Key("Dataplane", "default", name))
    assert found is not None
    return found


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()

"""Tokens written by hand, bit by bit, so that any of them can be wrong. Nothing of `cp.access` is in them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.world import World

NOW: Final = 1_800_000_000.0
HEADER: Final = {"alg": "RS256", "kid": "1", "typ": "JWT"}
REGISTERED: Final = {"jti": "id-1", "iat": NOW - 5, "nbf": NOW - 5, "exp": NOW + 3600}
DATAPLANE: Final = {"Name": "web-1", "Mesh": "default", "Tags": {}, "Type": "", "Workload": "", **REGISTERED}
USER: Final = {"Name": "jane", "Groups": ["team-a"], **REGISTERED}


def private_key(number: int = 1, bits: int = 2048) -> rsa.RSAPrivateKey:
    """A key that is the same for each number."""
    return _private_key(number, bits)


@cache
def _private_key(number: int, bits: int) -> rsa.RSAPrivateKey:
    del number
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def pem(key: rsa.RSAPrivateKey) -> bytes:
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def public_pem(key: rsa.RSAPrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def part(value: Any) -> str:
    """One part of a token: bytes as they are, anything else as JSON."""
    return encoded(value if isinstance(value, bytes) else json.dumps(value).encode())


def signature(text: str, key: rsa.RSAPrivateKey) -> str:
    return encoded(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))


def token(claims: Any, header: Any = HEADER, key: rsa.RSAPrivateKey | None = None) -> str:
    """A token with any header and claims, and a good signature of them."""
    text = f"{part(header)}.{part(claims)}"
    return f"{text}.{signature(text, key or private_key())}"


def secret(name: str, data: bytes, mesh: str = "") -> Document:
    kind = "Secret" if mesh else "GlobalSecret"
    plain: Mapping[str, Any] = {"type": kind, "name": name, "data": base64.b64encode(data).decode()}
    return Document(Key(kind, mesh, name), {**plain, "mesh": mesh} if mesh else plain)


def signing_keys() -> tuple[Document, ...]:
    """The same key for proxies of two meshes and for users: the worst case for tokens of the wrong kind."""
    data = pem(private_key())
    return (
        secret("dataplane-token-signing-key-default-1", data, "default"),
        secret("dataplane-token-signing-key-other-1", pem(private_key(2)), "other"),
        secret("user-token-signing-key-1", data),
    )


def world(*documents: Document) -> World:
    return World.of(documents, kinds(discover()))

"""Keys of tokens: which key signs, which keys verify, and which tokens were revoked.

They are Secrets with Kuma's names, or public keys from the settings (record 0058).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
)

from cp.model.document import Document
from cp.model.made_here import is_labelled_made_here
from cp.model.names import Key
from cp.resources.resource import Resource
from cp.resources.secret import Secret
from cp.resources.world import World

Purpose = Literal["dataplane", "user", "zone", "instance"]
"""Whom tokens are for. Those of proxies belong to a mesh, the others to none; control planes show each other theirs."""

FEWEST_BITS: Final = 2048
FIRST_SERIAL: Final = "1"
ADMIN_TOKEN: Final = Key("GlobalSecret", "", "admin-user-token")
"""Where the token of the first administrator is kept."""

_SECRETS: Final = frozenset({"Secret", "GlobalSecret"})
_OF_TOKENS: Final = re.compile(r"(dataplane|user|zone|instance)-token-(signing-key|revocations)(-|$)")
_SERIAL: Final = re.compile(r"[1-9][0-9]{0,8}")
_PEM: Final = b"-----BEGIN"
_BAD_KEY: Final = f"is not an RSA key of at least {FEWEST_BITS} bits"


class UnusableKey(Exception):
    """What stands where a key is wanted is none. The message does not have it, as it may be a secret."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that signs, and the id by which tokens name it."""

    kid: str
    key: RSAPrivateKey = field(repr=False)


@dataclass(frozen=True, slots=True)
class OfflineKeys:
    """The keys of tokens that were signed elsewhere, as the settings name them."""

    public: Mapping[tuple[Purpose, str], Mapping[str, RSAPublicKey]] = field(default_factory=dict)
    """By purpose and mesh, then by id."""

    without_secrets: frozenset[Purpose] = frozenset()
    """The purposes for which Secrets verify nothing."""


@dataclass(frozen=True, slots=True)
class KeyRing:
    """What decides whether a token is genuine: public keys, and the ids of revoked tokens."""

    world: World
    offline: OfflineKeys = field(default_factory=OfflineKeys)

    @classmethod
    def of(cls, world: World, offline: OfflineKeys | None = None) -> KeyRing:
        """Costs nothing: a key is read when it is first asked for, and once for as long as its Secret stays."""
        return cls(world, offline or OfflineKeys())

    def public_key(self, purpose: Purpose, mesh: str, kid: str) -> RSAPublicKey | None:
        """The key that verifies tokens that name it by this id. The settings come before Secrets."""
        offline = self.offline.public.get((purpose, mesh), {}).get(kid)
        if offline is not None or purpose in self.offline.without_secrets or not _SERIAL.fullmatch(kid):
            return offline
        secret = self.world.get(signing_secret(purpose, mesh, kid))
        return secret.derived(_public_key) if secret is not None else None

    def is_revoked(self, purpose: Purpose, mesh: str, token_id: str) -> bool:
        secret = self.world.get(revocations(purpose, mesh))
        return secret is not None and token_id in secret.derived(_revoked)


def signing_secret(purpose: Purpose, mesh: str, kid: str) -> Key:
    """The Secret that has a signing key."""
    return _secret(purpose, mesh, "signing-key", f"-{kid}")


def revocations(purpose: Purpose, mesh: str) -> Key:
    """The Secret that lists the tokens that count no more."""
    return _secret(purpose, mesh, "revocations", "")


def is_of_tokens(key: Key) -> bool:
    """Whether it is a Secret that decides which tokens count, or has one."""
    return key == ADMIN_TOKEN or (key.type in _SECRETS and _OF_TOKENS.match(key.name) is not None)


def is_made_here(document: Document) -> bool:
    """Whether a document is the first signing key of its mesh, as a control plane made it."""
    key = document.key
    return key == signing_secret("dataplane", key.mesh, FIRST_SERIAL) and is_labelled_made_here(document)


def signing_key(world: World, purpose: Purpose, mesh: str = "") -> SigningKey | None:
    """The key that signs new tokens: the one with the highest number, if there is any. Raises `UnusableKey`.

    To check a key takes some 50 ms when it is first asked for, which is too long for an event loop.
    """
    serial = max(_serials(world, purpose, mesh), default=None)
    if serial is None:
        return None
    secret = world.get(signing_secret(purpose, mesh, str(serial)))
    key = secret.derived(_private_key) if secret is not None else None
    if key is None:
        name = signing_secret(purpose, mesh, str(serial))
        raise UnusableKey(f"{name} {_BAD_KEY}; replace it, or delete it")
    return SigningKey(str(serial), key)


def read_private_key(data: bytes) -> RSAPrivateKey:
    """A signing key: PEM, or PKCS#1 in DER. Raises `UnusableKey`."""
    return _read_private_key(data, is_checked=True)


def _read_private_key(data: bytes, *, is_checked: bool) -> RSAPrivateKey:
    load = load_pem_private_key if _is_pem(data) else load_der_private_key
    try:
        key = load(data, password=None, unsafe_skip_rsa_key_validation=not is_checked)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a password
        raise UnusableKey(_BAD_KEY) from None
    if not isinstance(key, RSAPrivateKey) or key.key_size < FEWEST_BITS:
        raise UnusableKey(_BAD_KEY)
    return key


def read_public_key(data: bytes) -> RSAPublicKey:
    """A key that verifies: PEM, or PKCS#1 in DER. Raises `UnusableKey`."""
    try:
        key = (load_pem_public_key if _is_pem(data) else load_der_public_key)(data)
    except (ValueError, UnsupportedAlgorithm):
        raise UnusableKey(_BAD_KEY) from None
    if not isinstance(key, RSAPublicKey) or key.key_size < FEWEST_BITS:
        raise UnusableKey(_BAD_KEY)
    return key


def new_private_key() -> bytes:
    """A new signing key: PKCS#1 in PEM. It takes some 50 ms, so it has no place on an event loop."""
    key = generate_private_key(public_exponent=65537, key_size=FEWEST_BITS)
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def public_pem(key: RSAPrivateKey) -> str:
    """The public half of a signing key: PKCS#1 in PEM."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.PKCS1).decode()


def _secret(purpose: Purpose, mesh: str, role: str, suffix: str) -> Key:
    if purpose == "dataplane":
        return Key("Secret", mesh, f"dataplane-token-{role}-{mesh}{suffix}")
    return Key("GlobalSecret", "", f"{purpose}-token-{role}{suffix}")


def _serials(world: World, purpose: Purpose, mesh: str) -> list[int]:
    prefix = _secret(purpose, mesh, "signing-key", "-")
    names = (secret.name for secret in world.table(prefix.type, prefix.mesh))
    suffixes = (name.removeprefix(prefix.name) for name in names if name.startswith(prefix.name))
    return [int(suffix) for suffix in suffixes if _SERIAL.fullmatch(suffix)]


def _public_key(secret: Resource) -> RSAPublicKey | None:
    """The public half, without the check whether the private one belongs to it: that takes a hundred times as long."""
    try:
        return _read_private_key(_value(secret), is_checked=False).public_key()
    except UnusableKey:
        return None


def _private_key(secret: Resource) -> RSAPrivateKey | None:
    try:
        return read_private_key(_value(secret))
    except UnusableKey:
        return None


def _revoked(secret: Resource) -> frozenset[str]:
    text = _value(secret).decode("utf-8", "replace")
    return frozenset(token_id.strip() for token_id in re.split(r"[,\n]", text)) - {""}


def _value(secret: Resource) -> bytes:
    spec: Secret = secret.spec
    return spec.value()


def _is_pem(data: bytes) -> bool:
    return data.lstrip().startswith(_PEM)

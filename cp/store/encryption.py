"""`DocumentCodec`: documents as texts of a database, and back; those that hold secrets are encrypted.

An encrypted document is a JSON text where any other is an object, so that neither can be taken for the other:

    "koguma-aes256gcm-1:ID:FINGERPRINT:BASE64"      what is encoded is the nonce, then what AES-GCM made

The document's type, mesh and name are authenticated with it: it decrypts under no other name.

See record 0061.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cp.model.names import Key
from cp.store.port import Change, Unusable
from cp.store.secrets_keys import ID, NO_KEYS, SecretsKey, SecretsKeys

HoldsSecrets: TypeAlias = Callable[[Key, Mapping[str, Any]], bool]
"""Whether there is a secret in a document."""

_FORM: Final = "koguma-aes256gcm-1"
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{8}")
_NONCE: Final = 12
_PARTS: Final = 4
_OBJECT: Final = b"{"
"""How the text of a plain document begins, and no other."""

_DAMAGED: Final = "it is damaged, or was encrypted for another document"


class KeyName(NamedTuple):
    """The key that a text says that it was encrypted with."""

    id: str
    fingerprint: str

    def __str__(self) -> str:
        return self.id if self.id == self.fingerprint else f"{self.id} ({self.fingerprint})"


class Undecryptable(Exception):
    """A document cannot be decrypted; `key` is the one that it names, if that is not there."""

    def __init__(self, reason: str, key: KeyName | None = None) -> None:
        self.key = key
        super().__init__(reason)


class SealedData(Mapping[str, Any]):
    """Stands for the data of a document that cannot be decrypted. It never leaves the store."""

    def __init__(self, text: bytes) -> None:
        self.text = text.decode("utf-8", "replace")

    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return self is other  # whatever is written in its place is a change

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class DocumentState:
    """How a document stands in the database."""

    is_encrypted: bool = False
    is_plain: bool = False
    """In plain text though it holds secrets."""

    is_old: bool = False
    """Encrypted with another key than the first."""

    reason: str = ""
    """Why it cannot be decrypted; empty if it can."""

    missing: KeyName | None = None
    """The key that it needs, if that is the reason."""

    @property
    def is_in_order(self) -> bool:
        return not (self.is_plain or self.is_old or self.reason)


def _never(_key: Key, _data: Mapping[str, Any]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class DocumentCodec:
    """How documents become texts. Without keys all of them are plain."""

    keys: SecretsKeys = NO_KEYS
    holds_secrets: HoldsSecrets = _never
    types: frozenset[str] = frozenset()
    """The types of which documents can hold secrets."""

    confidential: frozenset[str] = frozenset()
    """Types of which documents hold no secrets, and are encrypted where there is a key: not all who may read them may
    read all of them."""

    def encode(self, key: Key, data: Mapping[str, Any]) -> str:
        if type(data) is SealedData:
            return data.text
        text = _json(data)
        first = self.keys.first
        return text if first is None or not self._is_to_encrypt(key, data) else _encrypted(first, key, text)

    def exposes(self, changes: Iterable[Change]) -> bool:
        """Whether secrets are written in plain text with these changes."""
        return self.keys.first is None and any(map(self._has_secrets, changes))

    def decode(self, key: Key, text: bytes) -> Mapping[str, Any]:
        """The data of a document; `SealedData` if it cannot be decrypted. Raises `Unusable` for damage to any other."""
        if text.startswith(_OBJECT):
            return _data(key, text)
        try:
            return self.decrypt(key, _loaded(text))
        except Undecryptable:
            return SealedData(text)

    def decrypt(self, key: Key, envelope: object) -> Mapping[str, Any]:
        """Raises `Undecryptable`."""
        name, message = _parsed(envelope)
        for secrets_key in self.keys.to_try(name.fingerprint if name else ""):
            try:
                plain = AESGCM(secrets_key.secret).decrypt(message[:_NONCE], message[_NONCE:], _about(key))
            except InvalidTag:
                continue
            return _data(key, plain)
        if name is not None and not self.keys.has(name.fingerprint):
            raise Undecryptable(f"it is encrypted with the key {name}, which is not configured", name)
        raise Undecryptable(_DAMAGED)

    def knows_key(self, beginning: str) -> bool:
        """Whether a text that begins so is plain, or names a key that is there. It may be damaged all the same."""
        parts = beginning.removeprefix('"').split(":", 3)
        return beginning.startswith("{") or (len(parts) == _PARTS and parts[0] == _FORM and self.keys.has(parts[2]))

    def state(self, key: Key, text: bytes) -> DocumentState:
        """How a document stands in the database."""
        if text.startswith(_OBJECT):
            return DocumentState(is_plain=self.holds_secrets(key, _data(key, text)))
        data = _loaded(text)
        try:
            self.decrypt(key, data)
        except Undecryptable as error:
            return DocumentState(is_encrypted=True, reason=str(error), missing=error.key)
        return DocumentState(is_encrypted=True, is_old=not self._is_of_first(data))

    def renewed(self, key: Key, text: bytes) -> str | None:
        """A document encrypted with the first key; None if it is so already, need not be or cannot be read."""
        state = self.state(key, text)
        if not (state.is_plain or state.is_old or (key.type in self.confidential and not state.is_encrypted)):
            return None
        return self.encode(key, self.decode(key, text))

    def _is_to_encrypt(self, key: Key, data: Mapping[str, Any]) -> bool:
        return key.type in self.confidential or self.holds_secrets(key, data)

    def _has_secrets(self, change: Change) -> bool:
        documents = (change.before, change.after)
        return any(document is not None and self.holds_secrets(change.key, document.data) for document in documents)

    def _is_of_first(self, envelope: object) -> bool:
        name, _ = _parsed(envelope)
        return self.keys.first is not None and name == KeyName(self.keys.first.id, self.keys.first.fingerprint)


PLAIN: Final = DocumentCodec()
"""Encrypts nothing."""


def _encrypted(key: SecretsKey, about: Key, text: str) -> str:
    # 2**32 documents may be encrypted with a key and random nonces; that is one a second for 136 years.
    nonce = os.urandom(_NONCE)
    message = nonce + AESGCM(key.secret).encrypt(nonce, text.encode(), _about(about))
    return json.dumps(f"{_FORM}:{key.id}:{key.fingerprint}:{base64.b64encode(message).decode()}")


def _about(key: Key) -> bytes:
    """What is authenticated beside a document. As JSON, so that no two names are written alike."""
    return json.dumps([key.type, key.mesh, key.name]).encode()


def _parsed(envelope: object) -> tuple[KeyName | None, bytes]:
    """The key that is named, unless the name is damaged, and the message."""
    parts = envelope.split(":") if isinstance(envelope, str) else []
    if len(parts) != _PARTS or parts[0] != _FORM:
        raise Undecryptable(_DAMAGED)
    try:
        message = base64.b64decode(parts[3], validate=True)
    except (binascii.Error, ValueError):
        raise Undecryptable(_DAMAGED) from None
    if len(message) < _NONCE or base64.b64encode(message) != parts[3].encode():  # some texts stand for the same bytes
        raise Undecryptable(_DAMAGED)
    is_name = ID.fullmatch(parts[1]) and _FINGERPRINT.fullmatch(parts[2])
    return KeyName(parts[1], parts[2]) if is_name else None, message


def _data(key: Key, text: bytes) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(text.decode())
    except ValueError:  # with what stands there in it
        raise Unusable(f"{key} is damaged in the database: restore a copy") from None
    return data


def _loaded(text: bytes) -> Any:
    """None for what is no JSON: damaged, as nothing else was written."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _json(data: Mapping[str, Any]) -> str:
    # What JSON cannot say must not be stored as something else: better to fail than to come back changed.
    return json.dumps(data, separators=(",", ":"), allow_nan=False, default=_mapping)


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a document holds plain data only, not {type(value).__name__}")

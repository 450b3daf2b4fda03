"""`SecretsKeys`: the keys with which secrets are encrypted in the store. The first encrypts, all of them decrypt.

A file of keys has one on each line, `ID:BASE64`, or `BASE64` alone for a key that is known by its fingerprint. What
follows a `#` at the beginning of a line is a comment. No message and no `repr` has anything of a key but its id and
its fingerprint.

See record 0061.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cp.store.port import Unusable

BYTES: Final = 32
"""The length of a key: AES-256."""

ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""What an id may be."""

_LARGEST: Final = 64 * 1024
_FORM: Final = "write ID:BASE64, as `koguma generate secrets-key` does"


@dataclass(frozen=True, slots=True)
class SecretsKey:
    """32 bytes with a name."""

    id: str
    secret: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: bytes, id_: str = "") -> SecretsKey:
        """A key; without an id its fingerprint is its id."""
        return cls(id_ or fingerprint(secret), secret)

    @classmethod
    def generate(cls, id_: str = "") -> SecretsKey:
        """A new key."""
        return cls.of(os.urandom(BYTES), id_)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.secret)

    @property
    def line(self) -> str:
        """The key as it stands in a file of keys. Callers must not let it into any other output."""
        return f"{self.id}:{base64.b64encode(self.secret).decode()}"


@dataclass(frozen=True, slots=True)
class SecretsKeys:
    """The keys that are configured, the one that encrypts first."""

    keys: tuple[SecretsKey, ...] = ()

    @classmethod
    def parse(cls, text: str, source: str) -> SecretsKeys:
        """The keys that a text has. Raises `Unusable` with the line, and never with what stands on it."""
        lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
        keys = tuple(_key(line, f"{source}, line {number}") for number, line in lines if line and line[0] != "#")
        if not keys:
            raise Unusable(f"{source}: there is no key; {_FORM}")
        _must_differ(keys, source)
        return cls(keys)

    @classmethod
    def read(cls, path: Path) -> SecretsKeys:
        """The keys of a file."""
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise Unusable(f"{path}: a file of keys has to be an ordinary file")
            with path.open("rb") as file:
                data = file.read(_LARGEST + 1)
        except OSError as error:
            raise Unusable(f"{path}: the file of keys cannot be read: {(error.strerror or '').lower()}") from None
        if len(data) > _LARGEST or not data.isascii():
            raise Unusable(f"{path}: this is no file of keys; {_FORM}")
        return cls.parse(data.decode("ascii"), str(path))

    @property
    def first(self) -> SecretsKey | None:
        """The key that encrypts."""
        return self.keys[0] if self.keys else None

    def has(self, fingerprint_: str) -> bool:
        return any(key.fingerprint == fingerprint_ for key in self.keys)

    def to_try(self, fingerprint_: str) -> Iterator[SecretsKey]:
        """All keys, the likeliest first: what names the key may be damaged, and the secret whole."""
        yield from sorted(self.keys, key=lambda key: key.fingerprint != fingerprint_)


NO_KEYS: Final = SecretsKeys()


def fingerprint(secret: bytes) -> str:
    """A name for a key by which it can be told from others, and from which it cannot be guessed."""
    return hashlib.sha256(b"koguma secrets key\0" + secret).hexdigest()[:8]


def _key(line: str, place: str) -> SecretsKey:
    id_, separator, text = line.rpartition(":")
    if separator and not ID.fullmatch(id_):
        raise Unusable(f"{place}: an id has letters, digits, `_`, `.` and `-`, 63 at the most; {_FORM}")
    try:
        secret = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise Unusable(f"{place}: the key is not base64; {_FORM}") from None
    if len(secret) != BYTES:
        raise Unusable(f"{place}: the key has {len(secret)} bytes and needs {BYTES}; {_FORM}")
    return SecretsKey.of(secret, id_)


def _must_differ(keys: tuple[SecretsKey, ...], source: str) -> None:
    ids, secrets = {key.id for key in keys}, {key.secret for key in keys}
    if len(ids) != len(keys) or len(secrets) != len(keys):
        raise Unusable(f"{source}: a key or an id is there twice")

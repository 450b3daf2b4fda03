"""The public keys of tokens that are signed elsewhere, read once from the file that the settings name.

    dataplane:
      - {mesh: default, kid: "1", keyFile: default.pem}
    user:
      - {kid: "1", key: "-----BEGIN PUBLIC KEY----- …"}

The entries are those of Kuma's `publicKeys`. A file of a key is named from the folder of this file (record 0058).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from cp.access.keys import OfflineKeys, Purpose, UnusableKey, read_public_key
from cp.files import read_file
from cp.model.violation import Violation
from cp.resources.checks import must_be_set
from cp.resources.schema import Schema, check
from cp.settings import BadSettings, Settings, variable

PublicKeys = dict[tuple[Purpose, str], dict[str, RSAPublicKey]]

_SETTING: Final = "token_public_keys"


class PublicKeyEntry(Schema, frozen=True):
    """A public key in the file."""

    kid: str | None = None
    key: str | None = None
    key_file: str | None = None
    mesh: str | None = None


class PublicKeyFile(Schema, frozen=True):
    dataplane: list[PublicKeyEntry] | None = None
    user: list[PublicKeyEntry] | None = None


def offline_keys(settings: Settings) -> OfflineKeys:
    """What the settings say of tokens that are signed elsewhere. Raises `BadSettings`."""
    takes_secrets: dict[Purpose, bool] = {
        "dataplane": settings.takes_dataplane_token_secrets,
        "user": settings.takes_user_token_secrets,
    }
    without = frozenset(purpose for purpose, takes in takes_secrets.items() if not takes)
    file = settings.token_public_keys
    return OfflineKeys(_public_keys(file) if file is not None else {}, without)


def _public_keys(file: Path) -> PublicKeys:
    data, faults = check(PublicKeyFile, _data(file))
    if data is None or faults:
        raise _bad(file, *faults)
    keys: PublicKeys = {}
    for purpose, entries in _entries(data):
        for index, entry in enumerate(entries):
            path = f"{purpose}[{index}]"
            if faults := list(_faults(path, purpose, entry)):
                raise _bad(file, *faults)
            keys.setdefault((purpose, entry.mesh or ""), {})[entry.kid or ""] = _key(file, path, entry)
    return keys


def _entries(data: PublicKeyFile) -> Iterator[tuple[Purpose, list[PublicKeyEntry]]]:
    yield "dataplane", data.dataplane or []
    yield "user", data.user or []


def _faults(path: str, purpose: Purpose, entry: PublicKeyEntry) -> Iterator[Violation]:
    yield from must_be_set(f"{path}.kid", entry.kid, "tokens name their key by it")
    if (entry.key is None) == (entry.key_file is None):
        yield Violation(path, "must have `key` or `keyFile`", "give it one of them")
    if purpose == "dataplane":
        yield from must_be_set(f"{path}.mesh", entry.mesh, "tokens of proxies are for one mesh")
    elif entry.mesh is not None:
        yield Violation(f"{path}.mesh", "has no meaning: people belong to no mesh", "remove it")


def _key(file: Path, path: str, entry: PublicKeyEntry) -> RSAPublicKey:
    try:
        return read_public_key(_key_data(file, entry))
    except UnusableKey as error:
        raise _bad(file, Violation(path, f"the public key {error}")) from None
    except OSError as error:
        raise _bad(file, Violation(f"{path}.keyFile", f"cannot be read: {error.strerror}")) from None


def _key_data(file: Path, entry: PublicKeyEntry) -> bytes:
    if entry.key_file is not None:
        return read_file(file.parent / entry.key_file)
    return (entry.key or "").encode()


def _data(file: Path) -> object:
    try:
        return msgspec.yaml.decode(read_file(file))
    except OSError as error:
        raise _bad(file, Violation("", f"cannot be read: {error.strerror}")) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _bad(file, Violation("", "is not YAML")) from None


def _bad(file: Path, *faults: Violation) -> BadSettings:
    return BadSettings(tuple(f"{variable(_SETTING)}={file}: {fault}" for fault in faults))

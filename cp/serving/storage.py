"""The store that the settings name, with the keys that they name for its secrets."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.kinds import Kinds
from cp.resources.redaction import has_secrets, holds_secrets
from cp.settings import Settings
from cp.store.at_rest import SecretsPolicy
from cp.store.encryption import DocumentCodec
from cp.store.open import open_store
from cp.store.port import Store, Unusable
from cp.store.secrets_keys import NO_KEYS, SecretsKeys


def store_of(settings: Settings) -> AbstractAsyncContextManager[Store]:
    """Open it, with what proxies register beside it. Raises `Unusable` if a key is missing."""
    return open_store(settings.store, settings.registrations, settings.history_bytes, secrets_policy(settings))


def secrets_policy(settings: Settings) -> SecretsPolicy:
    """How the store keeps its secrets. Raises `Unusable` if the keys cannot be read."""
    return SecretsPolicy(document_codec(secrets_keys(settings), kinds(discover())), tuple(_private(settings)))


def secrets_keys(settings: Settings) -> SecretsKeys:
    """The keys that encrypt secrets. Raises `Unusable` if they cannot be read."""
    text, path = settings.secrets_key.get_secret_value(), settings.secrets_key_file
    if text and path:
        raise Unusable("KOGUMA_SECRETS_KEY_FILE and KOGUMA_SECRETS_KEY are both set: unset one of them")
    if path:
        return SecretsKeys.read(Path(path))
    return SecretsKeys.parse(text, "KOGUMA_SECRETS_KEY") if text else NO_KEYS


def document_codec(keys: SecretsKeys, known: Kinds) -> DocumentCodec:
    """Encrypts the documents that have something in them that is not shown."""
    of_secrets = {kind.name: kind for kind in known.values() if holds_secrets(kind)}

    def is_secret(key: Key, data: Mapping[str, Any]) -> bool:
        return key.type in of_secrets and has_secrets(of_secrets[key.type], data)

    return DocumentCodec(keys, is_secret, frozenset(of_secrets))


def database(settings: Settings) -> Path | None:
    """The file of a store in SQLite."""
    path = settings.store.removeprefix("sqlite:///")
    return Path(path) if path != settings.store else None


def _private(settings: Settings) -> list[Path]:
    """What nobody else may read: the file of keys, and the work folder if the store is in it."""
    file, path = settings.secrets_key_file, database(settings)
    of_keys = [Path(file)] if file else []
    return [*of_keys, settings.work_dir] if path is not None and path.parent == settings.work_dir else of_keys

"""The store that the settings name, with the keys that they name for its secrets."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.kinds import Kinds
from cp.resources.redaction import has_secrets, holds_secrets
from cp.resources.rollout import ROLLOUT_KIND, proposed_documents
from cp.serving import own_authority
from cp.settings import Settings, is_secret
from cp.store.at_rest import SecretsPolicy
from cp.store.encryption import DocumentCodec
from cp.store.open import open_store
from cp.store.port import HistoryLimits, Store, Unusable
from cp.store.secrets_keys import NO_KEYS, SecretsKeys


def store_of(settings: Settings) -> AbstractAsyncContextManager[Store]:
    """Open it, with what proxies register beside it. Raises `Unusable` if a key is missing."""
    return open_store(settings.store, settings.registrations, limits_of(settings), secrets_policy(settings))


def limits_of(settings: Settings) -> HistoryLimits:
    """How much the store remembers of its changes."""
    age = timedelta(seconds=settings.history_age) if settings.history_age else None
    of_registrations = settings.history_registrations, settings.history_registration_bytes
    return HistoryLimits(settings.history_revisions, settings.history_bytes, age, *of_registrations)


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
    """Encrypts the documents that have something in them that is not shown.

    The content of a rollout is encrypted whatever it is (record 0088). It has a secret if a document in it has one.
    """
    confidential = frozenset({ROLLOUT_KIND})
    of_secrets = {kind.name: kind for kind in known.values() if holds_secrets(kind)}

    def is_secret(key: Key, data: Mapping[str, Any]) -> bool:
        if key.type in confidential:
            return any(is_secret(inner, document) for inner, document in proposed_documents(data))
        return key.type in of_secrets and has_secrets(of_secrets[key.type], data)

    return DocumentCodec(keys, is_secret, frozenset(of_secrets), confidential)


def database(settings: Settings) -> Path | None:
    """The file of a store in SQLite."""
    path = settings.store.removeprefix("sqlite:///")
    return Path(path) if path != settings.store else None


def _private(settings: Settings) -> Iterator[Path]:
    """What nobody else may read: files with keys, and the work folder if the store is in it.

    Also what says who gets in, where others may write it.
    """
    if settings.secrets_key_file:
        yield Path(settings.secrets_key_file)
    yield from (settings.work_dir / own_authority.KEY, settings.work_dir / own_authority.AUTHORITY_KEY)
    if settings.tls_key is not None:
        yield settings.tls_key
    deciding = (settings.access_file, settings.token_public_keys)
    yield from (file for file in deciding if file is not None and _is_written_by_others(file))
    has_secrets = any(settings.is_from_file(name) for name in Settings.model_fields if is_secret(name))
    if settings.file is not None and (has_secrets or _is_written_by_others(settings.file)):
        yield settings.file
    path = database(settings)
    if path is not None and path.parent == settings.work_dir:
        yield settings.work_dir


def _is_written_by_others(file: Path) -> bool:
    """Whoever writes the settings chooses the store, and who is an administrator."""
    try:
        return bool(file.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    except OSError:
        return False

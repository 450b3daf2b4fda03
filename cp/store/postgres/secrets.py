"""What is wrong with how secrets are kept in PostgreSQL: in plain text, under an old key, or damaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from cp.model.names import Key
from cp.model.violation import Finding
from cp.store.at_rest import (
    SecretsPolicy,
    in_plain_text_finding,
    missing_keys,
    open_to_others,
    under_old_key,
    unreadable,
)
from cp.store.columns import ChangeColumns, DocumentColumns
from cp.store.encryption import DocumentCodec, DocumentState
from cp.store.port import Unusable
from cp.store.postgres.address import DatabaseAddress
from cp.store.postgres.connections import Connection
from cp.store.postgres.rows import CHANNEL

_HINT: Final = (
    "set KOGUMA_SECRETS_KEY_FILE on all control planes, run `koguma secrets encrypt`, and start them again: until then "
    "this is told"
)
_HINT_OLD_KEY: Final = "run `koguma secrets encrypt`, and start the control planes again,"
_NOTE_KEY: Final = """
    WITH noted AS (
        INSERT INTO koguma.secrets_keys (fingerprint, id) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING id
    )
    SELECT pg_notify($3, '') FROM noted
"""
_ENCRYPTED: Final = "SELECT type, mesh, name, data::text FROM koguma.documents WHERE left(data::text, 1) <> '{'"


class SecretsInDatabase:
    """The findings about secrets, kept up to date by what is read."""

    def __init__(self, address: DatabaseAddress, policy: SecretsPolicy) -> None:
        self._place, self._codec = str(address), policy.codec
        of_database = (address.password_file, address.key)
        self._private: tuple[Path, ...] = (*policy.private, *(path for path in of_database if path is not None))
        self._states: dict[Key, DocumentState] = {}
        self._revision = -1

    def looked_through(self, documents: Sequence[DocumentColumns], revision: int) -> tuple[Finding, ...]:
        """The findings, after every document was looked at, unless what is known is newer."""
        if revision >= self._revision:
            self._states, self._revision = {}, revision
            for row in documents:
                self._take(row.key, row.data)
        return self._findings()

    def begin_anew(self) -> None:
        """What was known is of another time than what is stored: somebody has restored a backup."""
        self._states, self._revision = {}, -1

    def findings_after(self, changes: Iterable[ChangeColumns], revision: int) -> tuple[Finding, ...]:
        """The findings after some changes, of which several followers may come with the same."""
        for row in changes:
            if row.revision > self._revision:
                self._take(row.key, row.after)
        self._revision = max(self._revision, revision)
        return self._findings()

    def _take(self, key: Key, data: bytes | None) -> None:
        self._states.pop(key, None)
        if data is not None and (key.type in self._codec.types or not data.startswith(b"{")):
            state = self._codec.state(key, data)
            if not state.is_in_order:
                self._states[key] = state

    def _findings(self) -> tuple[Finding, ...]:
        reasons = [unreadable(key, state.reason) for key, state in sorted(self._states.items()) if state.reason]
        plain = sorted(key for key, state in self._states.items() if state.is_plain)
        old = sorted(key for key, state in self._states.items() if state.is_old)
        in_plain_text = [in_plain_text_finding(plain, self._place, _HINT)] if plain else []
        return (
            *reasons,
            *in_plain_text,
            *([under_old_key(old, _HINT_OLD_KEY)] if old else []),
            *open_to_others(self._private),
        )


async def note_key(connection: Connection, codec: DocumentCodec) -> None:
    """Note with which key secrets are encrypted from now on. Others look whether they have it."""
    if codec.keys.first is not None:
        await connection.execute(_NOTE_KEY, codec.keys.first.fingerprint, codec.keys.first.id, CHANNEL)


def must_share_a_key(noted: Sequence[str] | None, address: DatabaseAddress, codec: DocumentCodec) -> None:
    """Raises `Unusable` if others encrypt secrets with keys of which none is configured here."""
    if noted and not any(map(codec.keys.has, noted)):
        raise Unusable(
            f"{address}: other control planes encrypt secrets here with the key of the fingerprint {noted[-1]}, which "
            "is not configured; add it to the file that KOGUMA_SECRETS_KEY_FILE names, or to KOGUMA_SECRETS_KEY"
        )


async def must_have_keys(connection: Connection, address: DatabaseAddress, codec: DocumentCodec) -> None:
    """Raises `Unusable` if documents are encrypted with keys that are not configured."""
    encrypted = await connection.fetch(_ENCRYPTED)
    states = (codec.state(Key(kind, mesh, name), data.encode()) for kind, mesh, name, data in encrypted)
    missing = Counter(state.missing for state in states if state.missing is not None)
    if missing:
        raise Unusable(f"{address}: {missing_keys(missing)}")

"""`encrypt_all`: every secret in a database under the first key, and nothing left of how it was written before.

It works in steps, each a transaction of its own, while control planes use the file. If it ends in the middle, each
document is as it was or encrypted anew, and the next run does what is left. See record 0061.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, TypeAlias

from cp.model.names import Key
from cp.store import rows
from cp.store.at_rest import NEVER, NOT_JUDGED, WRITTEN, is_judged, states
from cp.store.clock import utc
from cp.store.database import Busy, connect, errors_of, prepare, writing
from cp.store.encryption import DocumentCodec, DocumentState
from cp.store.port import Change, Unusable

STEP: Final = 500
"""How many rows a transaction looks at; writers wait for it."""

_DOCUMENTS: Final = (
    "SELECT rowid, type, mesh, name, CAST(data AS BLOB) FROM documents WHERE rowid > ? ORDER BY rowid LIMIT ?"
)
_CHANGES: Final = """
    SELECT rowid, type, mesh, name, CAST(before AS BLOB), CAST(after AS BLOB) FROM changes
    WHERE rowid > ? ORDER BY rowid LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class SecretsCount:
    """How many documents with secrets there are, and entries of the history, by how they stand in the database."""

    in_order: int = 0
    plain: int = 0
    old: int = 0
    unreadable: int = 0
    plain_changes: int = 0
    """Entries of the history with a document in plain text, also one that was deleted."""

    old_changes: int = 0

    @classmethod
    def of(cls, documents: Collection[DocumentState], changes: Collection[Collection[DocumentState]]) -> SecretsCount:
        """By the states of all documents, and of those in each entry of the history."""
        return cls(
            in_order=sum(state.is_encrypted and state.is_in_order for state in documents),
            plain=sum(state.is_plain for state in documents),
            old=sum(state.is_old for state in documents),
            unreadable=sum(bool(state.reason) for state in documents),
            plain_changes=sum(any(state.is_plain for state in change) for change in changes),
            old_changes=sum(any(state.is_old for state in change) for change in changes),
        )

    @property
    def is_all_in_order(self) -> bool:
        return not (self.plain or self.old or self.unreadable or self.plain_changes or self.old_changes)


@dataclass(frozen=True, slots=True)
class EncryptionResult:
    """What was encrypted anew and removed, and how the documents stand afterwards."""

    documents: int
    changes: int
    discarded: int
    left: SecretsCount


Progress: TypeAlias = Callable[[int], None]
"""Called after each step with the number of rows that it looked at."""

RenewRow: TypeAlias = Callable[[Connection, tuple[Any, ...]], bool]
"""Encrypts a row anew. Returns whether that was needed."""


def count_secrets(path: Path, codec: DocumentCodec) -> SecretsCount:
    """How the secrets of a database stand."""
    with errors_of(path):
        prepare(path)
        with closing(connect(path)) as connection:
            return _count(connection, codec)


def encrypt_all(  # an option each
    path: Path,
    codec: DocumentCodec,
    *,
    discards: bool = False,
    step: int = STEP,
    progress: Progress = lambda _: None,
) -> EncryptionResult:
    """Encrypt with the first key what is in plain text or under another one.

    With `discards`, documents that cannot be decrypted are deleted. Raises `Unusable` if the file cannot be used.
    """
    with errors_of(path):
        prepare(path)
        with closing(connect(path)) as connection:
            discarded = _discard(connection, codec) if discards else 0
            documents = _in_steps(connection, _DOCUMENTS, partial(_renew_document, codec), step, progress)
            changes = _in_steps(connection, _CHANGES, partial(_renew_change, codec), step, progress)
            _remove_traces(connection, path)
            return EncryptionResult(documents, changes, discarded, _note_done(connection, codec))


def judge_plain_text(connection: Connection, codec: DocumentCodec) -> None:
    """Note whether secrets stand in plain text in a file of earlier versions, which took some of them for none."""
    if codec.types and not is_judged(connection):
        plain = WRITTEN if any(_plain_rows(connection, codec)) else NEVER
        with writing(connection):
            connection.execute("UPDATE secrets_at_rest SET plain = ? WHERE plain = ?", (plain, NOT_JUDGED))


def _plain_rows(connection: Connection, codec: DocumentCodec) -> Iterator[bool]:
    """For each document, now and in the history, whether it is in plain text and holds secrets."""
    for query in (_DOCUMENTS, _CHANGES):
        last, before = -1, None
        while last != before:  # in steps, so that none keeps an old state of the file for long
            before = last
            for last, type_, mesh, name, *texts in connection.execute(query, (last, STEP)):  # noqa: B007, B020
                yield type_ in codec.types and any(_is_plain(Key(type_, mesh, name), text, codec) for text in texts)


def _is_plain(key: Key, text: bytes | None, codec: DocumentCodec) -> bool:
    try:
        return text is not None and codec.state(key, text).is_plain
    except Unusable:  # it is damaged, and may have had a secret
        return True


def _renew_document(codec: DocumentCodec, connection: Connection, row: tuple[Any, ...]) -> bool:
    number, *names, data = row
    renewed = codec.renewed(Key(*names), data)
    if renewed is not None:
        connection.execute("UPDATE documents SET data = ? WHERE rowid = ?", (renewed, number))
    return renewed is not None


def _renew_change(codec: DocumentCodec, connection: Connection, row: tuple[Any, ...]) -> bool:
    """It has the document as it was and as it is."""
    number, type_, mesh, name, *texts = row
    key = Key(type_, mesh, name)
    renewed = [None if text is None else codec.renewed(key, text) for text in texts]
    if renewed == [None, None]:
        return False
    before, after = renewed
    query = "UPDATE changes SET before = ifnull(?, before), after = ifnull(?, after) WHERE rowid = ?"
    connection.execute(query, (before, after, number))
    return True


def _in_steps(connection: Connection, query: str, renew: RenewRow, step: int, progress: Progress) -> int:
    """Go through the rows of a table. Answers with the number of those that were encrypted."""
    last, renewed = -1, 0
    while True:
        with writing(connection):
            batch = connection.execute(query, (last, step)).fetchall()
            renewed += sum(renew(connection, row) for row in batch)
        progress(len(batch))
        if len(batch) < step:
            return renewed
        last = batch[-1][0]


def _remove_traces(connection: Connection, path: Path) -> None:
    """Build the file anew, without what was deleted in it, and empty the log of writes, which has old pages too."""
    connection.execute("VACUUM")
    is_busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if is_busy:
        raise Busy(f"{path}: another process has been reading for too long; all is encrypted, run it again to clean up")


def _note_done(connection: Connection, codec: DocumentCodec) -> SecretsCount:
    """Note that no traces of plain text are left, unless somebody without the key wrote some meanwhile."""
    with writing(connection):
        left = _count(connection, codec)
        connection.execute("UPDATE secrets_at_rest SET encryptions = encryptions + 1")
        if not left.plain and not left.plain_changes:
            connection.execute("UPDATE secrets_at_rest SET plain = 0")
    return left


def _discard(connection: Connection, codec: DocumentCodec) -> int:
    """Delete the documents that cannot be decrypted, in a revision of its own. Answers with their number."""
    with writing(connection):
        lost = [key for key, state in states(connection, codec) if state.reason]
        _, newest = rows.bounds(connection)
        at = utc()
        rows.record(connection, [Change(newest + 1, key, None, None, at) for key in lost], codec)
    return len(lost)


def _count(connection: Connection, codec: DocumentCodec) -> SecretsCount:
    by_key = dict(states(connection, codec))
    return SecretsCount.of(by_key.values(), list(_states_of_changes(connection, codec)))


def _states_of_changes(connection: Connection, codec: DocumentCodec) -> Iterator[list[DocumentState]]:
    """How the documents of each change stand: as it was before, and after."""
    query = "SELECT type, mesh, name, CAST(before AS BLOB), CAST(after AS BLOB) FROM changes"
    for type_, mesh, name, *texts in connection.execute(query):
        yield [codec.state(Key(type_, mesh, name), text) for text in texts if text is not None]

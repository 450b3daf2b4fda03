"""`encrypt_all`: every secret in a database of PostgreSQL under the first key, in the history too.

It works in steps, each a transaction in which nobody else writes, while control planes use the database. If it ends in
the middle, each document is as it was or encrypted anew, and the next run does what is left. See record 0061.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from asyncpg import Record

from cp.model.names import Key
from cp.store.clock import utc
from cp.store.encrypting import STEP, EncryptionResult, SecretsCount
from cp.store.encryption import DocumentCodec, DocumentState
from cp.store.port import Change, HistoryLimits, Unusable
from cp.store.postgres import rows
from cp.store.postgres.address import DatabaseAddress
from cp.store.postgres.connections import Connection, Database
from cp.store.postgres.rows import Forgetting
from cp.store.postgres.schema import is_made, migrate
from cp.store.postgres.secrets import must_share_a_key, note_key

_LONGEST: Final = 3600.0
"""Seconds in which a table is built anew."""


@dataclass(frozen=True, slots=True)
class _Table:
    """How the rows of a table are read, some after a place in it, and written anew."""

    first: tuple[Any, ...]
    """A place before all rows."""

    select: str
    update: str
    renewed: Callable[[Record, DocumentCodec], Sequence[str | None]]
    """The texts of a row as they should be; None for each that is so already."""


def _renewed_document(row: Record, codec: DocumentCodec) -> Sequence[str | None]:
    return [codec.renewed(_key(row), row["data"].encode())]


def _renewed_change(row: Record, codec: DocumentCodec) -> Sequence[str | None]:
    texts = (row["before"], row["after"])
    return [None if text is None else codec.renewed(_key(row), text.encode()) for text in texts]


_DOCUMENTS: Final = _Table(
    ("", "", ""),
    "SELECT type, mesh, name, data FROM koguma.documents WHERE (type, mesh, name) > ($1, $2, $3) "
    "ORDER BY type, mesh, name LIMIT $4",
    "UPDATE koguma.documents d SET data = new.data "
    "FROM unnest($1::text[], $2::text[], $3::text[], $4::json[]) AS new(type, mesh, name, data) "
    "WHERE (d.type, d.mesh, d.name) = (new.type, new.mesh, new.name)",
    _renewed_document,
)
_CHANGES: Final = _Table(
    (-1, -1),
    "SELECT revision, position, type, mesh, name, before, after FROM koguma.changes "
    "WHERE (revision, position) > ($1, $2) ORDER BY revision, position LIMIT $3",
    "UPDATE koguma.changes c SET before = coalesce(new.before, c.before), after = coalesce(new.after, c.after) "
    "FROM unnest($1::bigint[], $2::integer[], $3::json[], $4::json[]) AS new(revision, position, before, after) "
    "WHERE (c.revision, c.position) = (new.revision, new.position)",
    _renewed_change,
)


_FORGET_OTHER_KEYS: Final = """
    WITH forgotten AS (DELETE FROM koguma.secrets_keys WHERE fingerprint <> $1 RETURNING id)
    SELECT pg_notify($2, '') FROM forgotten
"""


async def count_secrets(url: str, codec: DocumentCodec) -> SecretsCount:
    """How the secrets of a database stand."""
    async with _connected(url) as connection:
        return await _count(connection, codec)


async def encrypt_all(url: str, codec: DocumentCodec, *, discards: bool = False, step: int = STEP) -> EncryptionResult:
    """Encrypt with the first key what is in plain text or under another one.

    With `discards`, documents that cannot be decrypted are deleted. Raises `Unusable` if the database cannot be used,
    or if control planes encrypt with keys of which none is known.
    """
    address = DatabaseAddress.parse(url)
    async with _connected(url) as connection:
        async with connection.transaction():
            head = await rows.locked_head(connection)
            if not discards:
                must_share_a_key(head.secrets_keys, address, codec)
            await note_key(connection, codec)  # whoever does not know it overwrites nothing from now on
        discarded = await _discard(connection, codec) if discards else 0
        documents = await _in_steps(connection, _DOCUMENTS, codec, step)
        changes = await _in_steps(connection, _CHANGES, codec, step)
        await _remove_traces(connection)
        return EncryptionResult(documents, changes, discarded, await _note_done(connection, codec))


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Connection]:
    """A connection to a database that has tables of ours, brought up to date."""
    database = Database(DatabaseAddress.parse(url))
    async with database.connected() as connection:
        if not await is_made(connection):
            raise Unusable(f"{database.address}: there is no store")
        await migrate(connection, database.address)
        yield connection


async def _in_steps(connection: Connection, table: _Table, codec: DocumentCodec, step: int) -> int:
    """Go through the rows of a table. Answers with the number of those that were encrypted."""
    place, count = table.first, 0
    while True:
        async with connection.transaction():
            await rows.locked_head(connection)
            batch = await connection.fetch(table.select, *place, step)
            texts = [(row, table.renewed(row, codec)) for row in batch]
            renewed = [(*_place(row, table), *of_row) for row, of_row in texts if any(of_row)]
            if renewed:
                await connection.execute(table.update, *map(list, zip(*renewed, strict=True)))
        count += len(renewed)
        if len(batch) < step:
            return count
        place = _place(batch[-1], table)


def _place(row: Record, table: _Table) -> tuple[Any, ...]:
    return tuple(row)[: len(table.first)]


def _key(row: Record) -> Key:
    return Key(row["type"], row["mesh"], row["name"])


async def _discard(connection: Connection, codec: DocumentCodec) -> int:
    """Delete the documents that cannot be decrypted, in a revision of its own. Answers with their number."""
    async with connection.transaction():
        head = await rows.locked_head(connection)
        lost = [key for key, state in await _states(connection, codec) if state.reason]
        at = utc()
        changes = [rows.encoded(Change(head.revision + 1, key, None, None, at), codec) for key in lost]
        if changes:
            nothing = HistoryLimits(kept=head.ordinal + 1, kept_bytes=head.written + 1)
            await rows.record(connection, changes, head, Forgetting(nothing, None), uuid4())
    return len(lost)


async def _remove_traces(connection: Connection) -> None:
    """Build both tables anew, without the rows as they were. The server's log of writes and its copies keep theirs."""
    await connection.execute("SET statement_timeout = 0")
    for table in ("documents", "changes"):
        await connection.execute(f"VACUUM FULL koguma.{table}", timeout=_LONGEST)


async def _note_done(connection: Connection, codec: DocumentCodec) -> SecretsCount:
    """Forget the keys of before where nothing needs them. Whoever has no other is told then that it needs this one."""
    async with connection.transaction():
        await rows.locked_head(connection)
        left = await _count(connection, codec)
        if left.is_all_in_order and codec.keys.first is not None:
            await connection.execute(_FORGET_OTHER_KEYS, codec.keys.first.fingerprint, rows.CHANNEL)
    return left


async def _states(connection: Connection, codec: DocumentCodec) -> list[tuple[Key, DocumentState]]:
    """How every document stands that can hold secrets, or is encrypted."""
    query = (
        "SELECT type, mesh, name, data FROM koguma.documents WHERE left(data::text, 1) <> '{' OR type = ANY($1::text[])"
    )
    documents = await connection.fetch(query, sorted(codec.types))
    return [(_key(row), codec.state(_key(row), row["data"].encode())) for row in documents]


async def _count(connection: Connection, codec: DocumentCodec) -> SecretsCount:
    changes = [_states_of_change(row, codec) for row in await connection.fetch(_ALL_CHANGES)]
    return SecretsCount.of([state for _, state in await _states(connection, codec)], changes)


_ALL_CHANGES: Final = "SELECT type, mesh, name, before, after FROM koguma.changes"


def _states_of_change(row: Record, codec: DocumentCodec) -> list[DocumentState]:
    """How the documents of a change stand: as it was before, and after."""
    return [codec.state(_key(row), text.encode()) for text in (row["before"], row["after"]) if text is not None]

"""Documents and changes as rows of PostgreSQL, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, starmap, takewhile
from operator import itemgetter
from typing import Final
from uuid import UUID

from asyncpg import Record

from cp.model.moments import moment
from cp.model.names import Key
from cp.store import columns
from cp.store.columns import BEGINNING, ChangeColumns, DocumentColumns, NoteColumns
from cp.store.encryption import DocumentCodec
from cp.store.port import Author, Change, HistoryLimits, StoreUnreachable
from cp.store.postgres.connections import Connection
from cp.store.registrations import (
    OF_DATAPLANE,
    LoggedRegistration,
    RegistrationTally,
    cut,
    is_check_due,
    merge_for,
    shares,
)

CHANNEL: Final = "koguma"
"""Where each write tells that there is something new, and nothing else."""

_DOCUMENT: Final = "d.type, d.mesh, d.name, d.data, d.source, d.revision AS changed, d.created, d.modified"
_CHANGE: Final = """
    c.revision, c.type, c.mesh, c.name, c.before, c.before_source, c.after, c.after_source, c.at, c.author, c.origin,
    d.created
"""
_NOTE: Final = f"""
    c.revision, c.type, c.mesh, c.name, c.at, c.author, c.origin,
    left(c.before::text, {BEGINNING}) AS before, left(c.after::text, {BEGINNING}) AS after,
    coalesce(c.before::text = c.after::text, false) AS is_same
"""
_HELD: Final = "LEFT JOIN koguma.documents d ON (d.type, d.mesh, d.name) = (c.type, c.mesh, c.name)"
_COMPATIBLE_WITH: Final = "(SELECT max(compatible_with) FROM koguma.migrations) AS compatible_with"

_MARKS: Final = """
    (SELECT m.mark FROM koguma.changes m WHERE (m.revision, m.position) = (head.revision, 0)) AS newest_mark,
    (SELECT m.mark FROM koguma.changes m WHERE (m.revision, m.position) = ($1, 0)) AS known_mark
"""
_KEYS: Final = "(SELECT array_agg(fingerprint ORDER BY since) FROM koguma.secrets_keys) AS secrets_keys"
_POSITION: Final = "head.oldest, head.written, head.ordinal, head.registrations_forgotten"
_HEAD: Final = f"head.revision AS newest, {_POSITION}, {_COMPATIBLE_WITH}, {_KEYS}, {_MARKS}"

# Each is one statement, and so one state of the tables, without the round trips of a transaction.
_EVERYTHING: Final = f"""
    WITH head AS MATERIALIZED (SELECT {_HEAD} FROM koguma.head)
    SELECT head.*, {_DOCUMENT} FROM head LEFT JOIN koguma.documents d ON true
    ORDER BY d.type, d.mesh, d.name
"""
_FOUND: Final = f"""
    SELECT {_DOCUMENT} FROM koguma.documents d
    JOIN unnest($1::text[], $2::text[], $3::text[]) AS wanted(type, mesh, name) USING (type, mesh, name)
"""
_AFTER: Final = f"""
    WITH head AS MATERIALIZED (SELECT {_HEAD} FROM koguma.head)
    SELECT head.*, {_CHANGE}
    FROM head LEFT JOIN koguma.changes c
        ON c.revision > $2 AND $2 >= greatest(head.oldest, head.registrations_forgotten) {_HELD}
    ORDER BY c.revision, c.position
"""
_SEEN: Final = f"SELECT {_HEAD} FROM koguma.head"
_LOCKED: Final = f"SELECT revision, {_POSITION}, {_COMPATIBLE_WITH}, {_KEYS} FROM koguma.head FOR UPDATE OF head"

MOST_TOGETHER: Final = 64
"""How many writes are recorded together at the most."""

_FORGOTTEN_AT_ONCE: Final = 10_000
"""Revisions that a write forgets at the most, so that it ends in time where very many are too old at once."""

_RECORD: Final = f"""
    WITH new AS (
        SELECT * FROM unnest(
            $1::bigint[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::json[], $7::json[], $8::json[],
            $9::json[], $10::timestamptz[], $11::text[], $12::text[], $13::timestamptz[], $14::bigint[], $15::bigint[],
            $16::bigint[], $17::boolean[]
        ) AS new(
            revision, position, type, mesh, name, before, before_source, after, after_source, at, author, origin,
            created, written, ordinal, registered, is_last
        )
    ), logged AS (
        INSERT INTO koguma.changes (
            revision, position, type, mesh, name, before, before_source, after, after_source, at, author, origin,
            written, ordinal, registered, mark
        )
        SELECT
            revision, position, type, mesh, name, before, before_source, after, after_source, at, author, origin,
            written, ordinal, registered, $18
        FROM new
    ), removed AS (
        DELETE FROM koguma.documents d USING new
        WHERE (d.type, d.mesh, d.name) = (new.type, new.mesh, new.name) AND new.is_last AND new.after IS NULL
    ), put AS (
        INSERT INTO koguma.documents (type, mesh, name, data, source, revision, created, modified)
        SELECT type, mesh, name, after, after_source, revision, created, at
        FROM new WHERE is_last AND after IS NOT NULL
        ON CONFLICT (type, mesh, name) DO UPDATE SET
            data = excluded.data, source = excluded.source, revision = excluded.revision,
            created = excluded.created, modified = excluded.modified
    ), eldest AS (
        -- The first that is kept, which is found at once: what is behind it is kept however old it says it is.
        SELECT c.revision FROM koguma.changes c, koguma.head
        WHERE c.position = 0 AND c.revision > head.oldest AND c.revision <= head.oldest + {_FORGOTTEN_AT_ONCE}
            AND c.ordinal > $19 AND c.written > $20 AND ($21::timestamptz IS NULL OR c.at >= $21)
        ORDER BY c.revision LIMIT 1
    ), forgotten AS (
        SELECT least(
            coalesce((SELECT revision - 1 FROM eldest), head.revision), head.oldest + {_FORGOTTEN_AT_ONCE}
        ) AS revision FROM koguma.head
    ), forgetting AS (
        DELETE FROM koguma.changes c USING forgotten WHERE c.revision <= forgotten.revision
    ), moved AS (
        UPDATE koguma.head SET
            revision = $22, written = $23, ordinal = $24, oldest = forgotten.revision
        FROM forgotten
    )
    SELECT pg_notify('{CHANNEL}', '')
"""


_ELDEST: Final = """
    SELECT c.at FROM koguma.changes c, koguma.head
    WHERE c.revision > head.oldest ORDER BY c.revision, c.position LIMIT 1
"""
# The rows of the last write stay without their documents, as its mark is needed.
_FORGET: Final = f"""
    WITH eldest AS (
        SELECT c.revision FROM koguma.changes c, koguma.head
        WHERE c.position = 0 AND c.revision > head.oldest AND c.revision <= head.oldest + {_FORGOTTEN_AT_ONCE}
            AND c.at >= $1
        ORDER BY c.revision LIMIT 1
    ), forgotten AS (
        SELECT head.revision AS newest, least(
            coalesce((SELECT revision - 1 FROM eldest), head.revision), head.oldest + {_FORGOTTEN_AT_ONCE}
        ) AS revision FROM koguma.head
    ), forgetting AS (
        DELETE FROM koguma.changes c USING forgotten
        WHERE c.revision <= forgotten.revision AND c.revision < forgotten.newest
    ), emptying AS (
        UPDATE koguma.changes c SET before = NULL, before_source = NULL, after = NULL, after_source = NULL
        FROM forgotten WHERE c.revision = forgotten.newest AND c.revision = forgotten.revision
    )
    UPDATE koguma.head SET oldest = forgotten.revision FROM forgotten
"""

_NEWEST_OF_DOCUMENTS: Final = f"""
    SELECT wanted.number, c.revision, c.registered
    FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS wanted(type, mesh, name, number)
    CROSS JOIN LATERAL (
        SELECT revision, registered FROM koguma.changes c
        WHERE (c.type, c.mesh, c.name) = (wanted.type, wanted.mesh, wanted.name)
        ORDER BY revision DESC LIMIT {OF_DATAPLANE + MOST_TOGETHER}
    ) c
    ORDER BY wanted.number, c.revision DESC
"""
_TAKE_BEFORE: Final = """
    UPDATE koguma.changes c SET before = f.before, before_source = f.before_source, registered = greatest(1,
        coalesce(length(f.before::text), 0) + coalesce(length(f.before_source::text), 0)
        + coalesce(length(c.after::text), 0) + coalesce(length(c.after_source::text), 0)
    )
    FROM koguma.changes f
    WHERE (f.type, f.mesh, f.name) = ($1, $2, $3) AND f.revision = $4
        AND (c.type, c.mesh, c.name) = ($1, $2, $3) AND c.revision = $5
"""
# A Dataplane that came and went again leaves nothing.
_DROP_MERGED: Final = """
    DELETE FROM koguma.changes WHERE (type, mesh, name) = ($1, $2, $3) AND revision >= $4
        AND (revision < $5 OR (revision = $5 AND before IS NULL AND after IS NULL))
"""
_OF_MESHES: Final = """
    SELECT mesh, count(*), sum(registered)::bigint FROM koguma.changes WHERE registered > 0 GROUP BY mesh
"""
_OF_MESH: Final = """
    SELECT revision, registered FROM koguma.changes WHERE mesh = $1 AND registered > 0 ORDER BY revision DESC
"""
_FORGET_OF_MESH: Final = """
    WITH forgotten AS (DELETE FROM koguma.changes WHERE mesh = $1 AND registered > 0 AND revision <= $2)
    UPDATE koguma.head SET registrations_forgotten = greatest(registrations_forgotten, $2)
"""


# The rows of a write may be gone, of others that were recorded with it some may be left.
_WAS_RECORDED: Final = f"""
    SELECT CASE WHEN bool_or(mark = $1) THEN true WHEN bool_or(revision = $2) THEN false END
    FROM koguma.changes WHERE revision > $2 - {MOST_TOGETHER} AND revision <= $2
"""


@dataclass(frozen=True, slots=True)
class Head:
    """Where a store has come to."""

    revision: int
    oldest: int
    written: int
    ordinal: int
    """How many writes of people there were."""

    registrations_forgotten: int
    compatible_with: int
    secrets_keys: Sequence[str] | None
    """The fingerprints of those that were the first of somebody; None while there is none."""

    mark: UUID | None = None
    """That of the newest write."""

    known_mark: UUID | None = None
    """That of the write that was asked for; None if it is not there, or is forgotten."""

    @property
    def followed_from(self) -> int:
        """The oldest revision from which the log can be followed."""
        return max(self.oldest, self.registrations_forgotten)


@dataclass(frozen=True, slots=True)
class EncodedChange:
    """A change, with its documents and their places as they stand in the columns."""

    change: Change
    texts: tuple[str | None, ...]
    is_registration: bool = False


@dataclass(frozen=True, slots=True)
class Forgetting:
    """How much of the log is kept: within limits, and what is not older than a moment. The last always is."""

    limits: HistoryLimits
    eldest: datetime | None


async def locked_head(connection: Connection) -> Head:
    """The head, which nobody else can move until the transaction ends."""
    return _head(await connection.fetch(_LOCKED))


async def seen_head(connection: Connection, known: int = 0) -> Head:
    """The head, as it was a moment ago, with the mark of a write that is known."""
    return _head(await connection.fetch(_SEEN, known))


async def everything(connection: Connection, known: int) -> tuple[Head, list[DocumentColumns]]:
    """The head and every document."""
    rows = await connection.fetch(_EVERYTHING, known)
    return _head(rows), [document_columns(row) for row in rows if row["type"] is not None]


async def find(connection: Connection, keys: Iterable[Key]) -> list[DocumentColumns]:
    """Those of some documents that are there."""
    wanted = [key for key in dict.fromkeys(keys) if _is_text(*_names(key))]  # nothing else can be there
    names = ([key.type for key in wanted], [key.mesh for key in wanted], [key.name for key in wanted])
    return [document_columns(row) for row in await connection.fetch(_FOUND, *names)] if wanted else []


async def after(connection: Connection, revision: int, known: int) -> tuple[Head, list[ChangeColumns]]:
    """The head, and what came after a revision; nothing if that is no longer kept."""
    rows = await connection.fetch(_AFTER, known, revision)
    return _head(rows), [change_columns(row) for row in rows if row["revision"] is not None]


def _head(rows: Sequence[Record]) -> Head:
    """That which each of these rows begins with."""
    if not rows:  # whoever restores a database passes through that
        raise StoreUnreachable("the table koguma.head in the database is empty: is it being restored?")
    row = rows[0]
    return Head(*(row[index] for index in range(min(len(row), len(Head.__slots__)))))


async def history(connection: Connection, key: Key | None, limit: int, before: int | None) -> list[ChangeColumns]:
    """The newest changes of one document or of all, newest first, of revisions below `before`."""
    return [
        change_columns(row)
        for row in await _newest(connection, f"{_CHANGE} FROM koguma.changes c {_HELD}", key, limit, before)
    ]


async def log(connection: Connection, key: Key | None, limit: int, before: int | None) -> list[NoteColumns]:
    """The same without the documents."""
    return [
        _note_columns(row) for row in await _newest(connection, f"{_NOTE} FROM koguma.changes c", key, limit, before)
    ]


async def _newest(
    connection: Connection, columns_of: str, key: Key | None, limit: int, before: int | None
) -> Sequence[Record]:
    if key is not None and not _is_text(*_names(key)):
        return []
    values = [*(() if key is None else _names(key)), *(() if before is None else (before,)), limit]
    conditions = [
        "c.revision > (SELECT oldest FROM koguma.head)",
        *([] if key is None else ["(c.type, c.mesh, c.name) = ($1, $2, $3)"]),
        *([] if before is None else [f"c.revision < ${len(values) - 1}"]),
    ]
    where = f"WHERE {' AND '.join(conditions)}"
    order = f"ORDER BY c.revision DESC, c.position DESC LIMIT ${len(values)}"
    rows: list[Record] = await connection.fetch(f"SELECT {columns_of} {where} {order}", *values)
    return rows


async def eldest(connection: Connection) -> datetime | None:
    """When the first change was made that is kept; None if none is."""
    at: datetime | None = await connection.fetchval(_ELDEST)
    return at


async def forget_before(connection: Connection, moment: datetime) -> None:
    """Forget the beginning of the log that is older than a moment, or a part of it. Nobody is told."""
    await connection.execute(_FORGET, moment)


def _note_columns(row: Record) -> NoteColumns:
    revision, kind, mesh, name, at, author, origin, *sides = row
    return NoteColumns(revision, Key(kind, mesh, name), at, Author(author, origin), *sides)


async def was_recorded(connection: Connection, mark: UUID, revision: int) -> bool | None:
    """Return whether writes up to a revision were committed, after waiting for writes that are about to be.

    None if that is not known: the revision is forgotten, or was a registration that was merged with others.
    """
    async with connection.transaction():
        head = await locked_head(connection)
        if revision <= head.oldest:
            return None
        if revision > head.revision:
            return False
        recorded: bool | None = await connection.fetchval(_WAS_RECORDED, mark, revision)
        return recorded


def encoded(change: Change, codec: DocumentCodec, *, is_registration: bool = False) -> EncodedChange:
    """Raises `TypeError` or `ValueError` for what JSON cannot say, or a column cannot take."""
    if not _is_text(*_names(change.key), change.author.name, change.author.origin):
        raise ValueError(f"{change.key!r}: PostgreSQL keeps no text with the character NUL, or with half a character")
    texts = (*columns.written(change.before, codec), *columns.written(change.after, codec))
    return EncodedChange(change, texts, is_registration)


async def record(
    connection: Connection, changes: Sequence[EncodedChange], head: Head, forgetting: Forgetting, mark: UUID
) -> None:
    """Make changes of one revision or more, log them, and forget what is too old. Who listens is told at the commit."""
    last_by_key = {row.change.key: index for index, row in enumerate(changes)}
    positions: dict[int, int] = {}
    written, ordinal, rows = head.written, head.ordinal, []
    for index, row in enumerate(changes):
        change, key = row.change, row.change.key
        position = positions[change.revision] = positions.get(change.revision, -1) + 1
        size = sum(len(text) for text in row.texts if text is not None)
        written += 0 if row.is_registration else size
        ordinal += 0 if row.is_registration or position > 0 else 1
        tallies = written, ordinal, max(1, size) if row.is_registration else 0
        by = change.at, change.author.name, change.author.origin
        is_last = last_by_key[key] == index
        rows.append((change.revision, position, *_names(key), *row.texts, *by, _created(change), *tallies, is_last))
    newest, limits = changes[-1].change.revision, forgetting.limits
    budget = (ordinal - limits.kept, written - limits.kept_bytes) if ordinal > head.ordinal else (-1, -1)
    tables = map(list, zip(*rows, strict=True))
    await connection.execute(_RECORD, *tables, mark, *budget, forgetting.eldest, newest, written, ordinal)
    if registered := [row.change.key for row in changes if row.is_registration]:
        await _merge_registrations(connection, list(dict.fromkeys(registered)))
        if is_check_due(head.revision, newest, limits):
            await _share_registrations(connection, newest, limits)


async def _merge_registrations(connection: Connection, keys: Sequence[Key]) -> None:
    names = zip(*map(_names, keys), strict=True)
    rows = await connection.fetch(_NEWEST_OF_DOCUMENTS, *map(list, names))
    for number, of_document in groupby(rows, key=itemgetter("number")):
        logged = (LoggedRegistration(row["revision"], row["registered"]) for row in of_document)
        merge = merge_for([*takewhile(lambda change: change.size > 0, logged)])
        if merge is not None:
            values = *_names(keys[number - 1]), merge.first, merge.target
            await connection.execute(_TAKE_BEFORE, *values)
            await connection.execute(_DROP_MERGED, *values)


async def _share_registrations(connection: Connection, newest: int, limits: HistoryLimits) -> None:
    tallies = {mesh: RegistrationTally(*tally) for mesh, *tally in await connection.fetch(_OF_MESHES)}
    for mesh, most in shares(tallies, limits).items():
        newest_first = starmap(LoggedRegistration, await connection.fetch(_OF_MESH, mesh))
        await connection.execute(_FORGET_OF_MESH, mesh, min(cut(newest_first, most), newest - 1))


def _names(key: Key) -> tuple[str, str, str]:
    return key.type, key.mesh, key.name


def _is_text(*texts: str) -> bool:
    """Whether a column takes them: a JSON string may be more."""
    return not any("\0" in text or _SURROGATE.search(text) for text in texts)


def _created(change: Change) -> datetime | None:
    return None if change.after is None else moment(change.after.source.created) or change.at


def document_columns(row: Record) -> DocumentColumns:
    kind, mesh, name, data, source, revision, created, modified = (row[column] for column in _DOCUMENT_NAMES)
    return DocumentColumns(Key(kind, mesh, name), data.encode(), source, revision, created, modified)


def change_columns(row: Record) -> ChangeColumns:
    before, after_ = row["before"], row["after"]
    return ChangeColumns(
        row["revision"],
        Key(row["type"], row["mesh"], row["name"]),
        None if before is None else before.encode(),
        row["before_source"],
        None if after_ is None else after_.encode(),
        row["after_source"],
        row["at"],
        Author(row["author"], row["origin"]),
        row["created"],
    )


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_DOCUMENT_NAMES: Final = ("type", "mesh", "name", "data", "source", "changed", "created", "modified")

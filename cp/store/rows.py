"""Documents and changes as rows of SQLite, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import starmap, takewhile
from sqlite3 import Connection
from typing import Any, Final, TypeAlias

from cp.model.names import Key
from cp.store import columns
from cp.store.columns import (
    BEGINNING,
    VERSIONS,
    ChangeColumns,
    DocumentColumns,
    NoteColumns,
    disclosed,
    is_sealed,
    last_good,
    readable,
)
from cp.store.encryption import PLAIN, DocumentCodec
from cp.store.port import Author, Change, ChangeNote, HistoryLimits, Stored
from cp.store.registrations import (
    OF_DATAPLANE,
    LoggedRegistration,
    RegistrationTally,
    cut,
    is_check_due,
    is_registration,
    merge_for,
    shares,
)

Row: TypeAlias = tuple[Any, ...]

# As bytes: of a damaged text that is no UTF-8, SQLite's library would read nothing, and print what it is.
_DOCUMENT = "SELECT type, mesh, name, CAST(data AS BLOB), source, revision, created, modified FROM documents"
# The last column is when the document that is there now was made, for rows of before each had that of its document.
_CHANGE = """
    SELECT
        revision, type, mesh, name, CAST(before AS BLOB), before_source, CAST(after AS BLOB), after_source, at,
        author, origin,
        (SELECT created FROM documents AS held
         WHERE held.type = changes.type AND held.mesh = changes.mesh AND held.name = changes.name)
    FROM changes
"""
_NOTE = """
    SELECT
        revision, type, mesh, name, at, author, origin,
        substr(CAST(before AS BLOB), 1, ?), substr(CAST(after AS BLOB), 1, ?), before = after
    FROM changes
"""
# Of the last write that is forgotten its number is left, in rows without documents. They are no changes.
_KEPT: Final = "(before IS NOT NULL OR after IS NOT NULL)"
_MOMENTS: Final = "SELECT revision, at FROM changes"
_OLDEST: Final = f"{_MOMENTS} WHERE {_KEPT} ORDER BY revision, position LIMIT 1"
_BOUNDS: Final = """
    SELECT
        (SELECT revision FROM changes WHERE before IS NOT NULL OR after IS NOT NULL ORDER BY revision LIMIT 1),
        (SELECT max(revision) FROM changes)
"""
_EMPTY: Final = """
    UPDATE changes SET before = NULL, before_source = NULL, after = NULL, after_source = NULL WHERE revision = ?
"""
_TALLIES: Final = "SELECT revision, written, ordinal FROM changes"
_FIRST: Final = f"{_TALLIES} ORDER BY revision, position LIMIT 1"
# An older version that writes here knows of no `ordinal` and leaves it at 0.
_LAST: Final = f"{_TALLIES} WHERE ordinal > 0 ORDER BY revision DESC, position DESC LIMIT 1"

_NAMED: Final = "type = ? AND mesh = ? AND name = ?"
_NEWEST_OF_DOCUMENT: Final = f"""
    SELECT revision, registered FROM changes WHERE {_NAMED} ORDER BY revision DESC LIMIT {OF_DATAPLANE + 1}
"""
_TAKE_BEFORE: Final = f"""
    UPDATE changes SET (before, before_source) = (
        SELECT before, before_source FROM changes WHERE {_NAMED} AND revision = ?
    ) WHERE {_NAMED} AND revision = ?
"""
_MEASURE: Final = f"""
    UPDATE changes SET registered = max(1,
        ifnull(length(before), 0) + ifnull(length(before_source), 0)
        + ifnull(length(after), 0) + ifnull(length(after_source), 0)
    ) WHERE {_NAMED} AND revision = ?
"""
# A Dataplane that came and went again leaves nothing.
_DROP_MERGED: Final = f"""
    DELETE FROM changes WHERE {_NAMED} AND revision >= ?
        AND (revision < ? OR (revision = ? AND before IS NULL AND after IS NULL))
"""
_OF_MESHES: Final = "SELECT mesh, count(*), sum(registered) FROM changes WHERE registered > 0 GROUP BY mesh"
_OF_MESH: Final = """
    SELECT revision, registered FROM changes WHERE mesh = ? AND registered > 0 ORDER BY revision DESC
"""
_PUT = """
    INSERT INTO documents (type, mesh, name, data, source, revision, created, modified)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET
        data = excluded.data, source = excluded.source, revision = excluded.revision, modified = excluded.modified
"""
_LOG = """
    INSERT INTO changes (
        revision, position, type, mesh, name, before, before_source, after, after_source, at, author, origin, written,
        ordinal, registered
    )
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def everything(connection: Connection, codec: DocumentCodec = PLAIN) -> tuple[Stored, ...]:
    """Every document. One that cannot be decrypted is as it was last good, or is left out."""
    documents = [
        _document_columns(row).stored(codec) for row in connection.execute(f"{_DOCUMENT} ORDER BY type, mesh, name")
    ]
    if any(is_sealed(stored.document) for stored in documents):
        return tuple(filter(None, (_last_good(connection, stored, codec) for stored in documents)))
    return tuple(documents)


def find(connection: Connection, keys: Iterable[Key], codec: DocumentCodec = PLAIN) -> dict[Key, Stored]:
    """Those of the documents that are there, also as they were last good."""
    stored_by_key = find_as_is(connection, keys, codec)
    good = ((key, _last_good(connection, stored, codec)) for key, stored in stored_by_key.items())
    return {key: stored for key, stored in good if stored is not None}


def find_as_is(connection: Connection, keys: Iterable[Key], codec: DocumentCodec) -> dict[Key, Stored]:
    """Those of the documents that are there; with `SealedData` where one cannot be decrypted."""
    query = f"{_DOCUMENT} WHERE type = ? AND mesh = ? AND name = ?"
    rows = (connection.execute(query, _names(key)).fetchone() for key in keys)
    return {
        stored.document.key: stored
        for stored in (_document_columns(row).stored(codec) for row in rows if row is not None)
    }


def _last_good(connection: Connection, stored: Stored, codec: DocumentCodec) -> Stored | None:
    """A document or, if it cannot be decrypted, the newest version of it in the log that can."""
    if not is_sealed(stored.document):
        return stored
    return last_good(stored, history(connection, stored.document.key, VERSIONS, codec=codec))


def bounds(connection: Connection) -> tuple[int, int]:
    """The oldest revision after which every change is kept, and the newest."""
    first, newest = connection.execute(_BOUNDS).fetchone()
    return (newest or 0) if first is None else first - 1, newest or 0


def followed_from(connection: Connection) -> int:
    """The oldest revision from which the log can be followed."""
    oldest, _ = bounds(connection)
    [forgotten] = connection.execute("SELECT revision FROM registrations_forgotten").fetchone()
    return max(oldest, int(forgotten))


def record(connection: Connection, changes: Sequence[Change], codec: DocumentCodec = PLAIN) -> None:
    """Make changes of one revision, and log them."""
    of_proxy, (_, written, ordinal) = is_registration(changes), _end_of_log(connection)
    ordinal += 0 if of_proxy else 1
    for position, change in enumerate(changes):
        before, after = columns.written(change.before, codec), columns.written(change.after, codec)
        at = change.at.isoformat()
        size = sum(len(text) for text in (*before, *after) if text is not None)
        written += 0 if of_proxy else size
        tallies = written, ordinal, max(1, size) if of_proxy else 0
        by = change.author.name, change.author.origin
        connection.execute(_LOG, (change.revision, position, *_names(change.key), *before, *after, at, *by, *tallies))
        if change.after is None:
            connection.execute("DELETE FROM documents WHERE type = ? AND mesh = ? AND name = ?", _names(change.key))
        else:
            created = change.after.source.created or at
            connection.execute(_PUT, (*_names(change.key), *after, change.revision, created, at))


def forget(connection: Connection, limits: HistoryLimits) -> None:
    """Drop the beginning of the log that is beyond the budget of people's writes; but never the last revision."""
    newest, written, ordinal = _end_of_log(connection)
    oldest, size_before, number = connection.execute(_FIRST).fetchone()
    while oldest < newest and (number <= ordinal - limits.kept or size_before <= written - limits.kept_bytes):
        connection.execute("DELETE FROM changes WHERE revision = ?", (oldest,))
        oldest, size_before, number = connection.execute(_FIRST).fetchone()


def forget_registrations(connection: Connection, key: Key, newest: int, limits: HistoryLimits) -> None:
    """Merge and forget registrations beyond their budget, after one of this Dataplane at the newest revision."""
    logged = starmap(LoggedRegistration, connection.execute(_NEWEST_OF_DOCUMENT, _names(key)))
    merge = merge_for([*takewhile(lambda change: change.size > 0, logged)])
    if merge is not None:
        names = _names(key)
        connection.execute(_TAKE_BEFORE, (*names, merge.first, *names, merge.target))
        connection.execute(_MEASURE, (*names, merge.target))
        connection.execute(_DROP_MERGED, (*names, merge.first, merge.target, merge.target))
    if is_check_due(newest - 1, newest, limits):
        tallies = {mesh: RegistrationTally(*tally) for mesh, *tally in connection.execute(_OF_MESHES)}
        for mesh, most in shares(tallies, limits).items():
            until = cut(starmap(LoggedRegistration, connection.execute(_OF_MESH, (mesh,))), most)
            _forget_of_mesh(connection, mesh, min(until, newest - 1))


def _forget_of_mesh(connection: Connection, mesh: str, revision: int) -> None:
    connection.execute("DELETE FROM changes WHERE mesh = ? AND registered > 0 AND revision <= ?", (mesh, revision))
    connection.execute("UPDATE registrations_forgotten SET revision = max(revision, ?)", (revision,))


def forget_before(connection: Connection, moment: datetime) -> None:
    """Drop the beginning of the log that is older than a moment. Of the last revision the number stays."""
    _, newest = bounds(connection)
    # One after the other: a clock may have been set back, and what is dropped out of the middle would be a gap.
    while (old := _oldest_before(connection, moment)) is not None:
        connection.execute("DELETE FROM changes WHERE revision <= ? AND revision < ?", (old, newest))
        if old == newest:
            connection.execute(_EMPTY, (newest,))


def has_before(connection: Connection, moment: datetime) -> bool:
    """Whether the log begins before a moment."""
    return _oldest_before(connection, moment) is not None


def _oldest_before(connection: Connection, moment: datetime) -> int | None:
    first = connection.execute(_OLDEST).fetchone()
    return None if first is None or datetime.fromisoformat(first[1]) >= moment else first[0]


def note_plain_text(connection: Connection) -> None:
    """Note that a secret is written in plain text. Its traces stay until all secrets are encrypted anew."""
    connection.execute("UPDATE secrets_at_rest SET plain = 1 WHERE plain <> 1")


def _end_of_log(connection: Connection) -> tuple[int, int, int]:
    """The newest revision, and the size and the number of people's writes so far, which only grow."""
    # By the end of the key, as a maximum over all rows costs more with each of them.
    row = connection.execute(_LAST).fetchone()
    return (0, 0, 1) if row is None else row  # numbers begin behind 1, so that those before any write have one too


def changes_after(connection: Connection, revision: int, codec: DocumentCodec = PLAIN) -> tuple[Change, ...]:
    query = f"{_CHANGE} WHERE revision > ? ORDER BY revision, position"
    return tuple(readable(map(_change_columns, connection.execute(query, (revision,))), codec))


def history(
    connection: Connection,
    key: Key | None,
    limit: int,
    before: int | None = None,
    codec: DocumentCodec = PLAIN,
) -> tuple[Change, ...]:
    """The newest changes of one document or of all, newest first, of revisions below `before`."""
    where, values = _part_of_history(key, before)
    query = f"{_CHANGE} {where} ORDER BY revision DESC, position DESC LIMIT ?"
    return tuple(disclosed(map(_change_columns, connection.execute(query, (*values, limit))), codec))


def log(
    connection: Connection, key: Key | None, limit: int, before: int | None = None, codec: DocumentCodec = PLAIN
) -> tuple[ChangeNote, ...]:
    """The same without the documents."""
    where, values = _part_of_history(key, before)
    query = f"{_NOTE} {where} ORDER BY revision DESC, position DESC LIMIT ?"
    return tuple(
        _note_columns(row).note(codec) for row in connection.execute(query, (BEGINNING, BEGINNING, *values, limit))
    )


def _part_of_history(key: Key | None, before: int | None) -> tuple[str, Row]:
    conditions = [
        _KEPT,
        *([] if key is None else ["type = ? AND mesh = ? AND name = ?"]),
        *([] if before is None else ["revision < ?"]),
    ]
    return f"WHERE {' AND '.join(conditions)}", (
        *(() if key is None else _names(key)),
        *(() if before is None else (before,)),
    )


def _note_columns(row: Row) -> NoteColumns:
    revision, kind, mesh, name, at, author, origin, before, after, is_same = row
    was, is_now = (None if side is None else side.decode("utf-8", "replace") for side in (before, after))
    key, by, moment = Key(kind, mesh, name), Author(author, origin), datetime.fromisoformat(at)
    return NoteColumns(revision, key, moment, by, was, is_now, bool(is_same))


def _names(key: Key) -> tuple[str, str, str]:
    return key.type, key.mesh, key.name


def _document_columns(row: Row) -> DocumentColumns:
    kind, mesh, name, data, source, revision, created, modified = row
    key, moments = Key(kind, mesh, name), (datetime.fromisoformat(created), datetime.fromisoformat(modified))
    return DocumentColumns(key, data, source, revision, *moments)


def _change_columns(row: Row) -> ChangeColumns:
    revision, kind, mesh, name, before, before_source, after, after_source, at, author, origin, created = row
    made = None if created is None else datetime.fromisoformat(created)
    key, by = Key(kind, mesh, name), Author(author, origin)
    moment = datetime.fromisoformat(at)
    return ChangeColumns(revision, key, before, before_source, after, after_source, moment, by, made)

"""Documents and changes as rows of SQLite, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from sqlite3 import Connection
from typing import Any, Final, TypeAlias

from cp.model.document import Document, Source
from cp.model.lines import Lines
from cp.model.names import Key
from cp.store.port import Change, Stored

Row: TypeAlias = tuple[Any, ...]

_DOCUMENT = "SELECT type, mesh, name, data, source, revision, created, modified FROM documents"
_CHANGE = "SELECT revision, type, mesh, name, before, before_source, after, after_source, at FROM changes"
_SIZES: Final = "SELECT revision, written FROM changes"
_PUT = """
    INSERT INTO documents (type, mesh, name, data, source, revision, created, modified)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET
        data = excluded.data, source = excluded.source, revision = excluded.revision, modified = excluded.modified
"""
_LOG = """
    INSERT INTO changes (revision, position, type, mesh, name, before, before_source, after, after_source, at, written)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def everything(connection: Connection) -> tuple[Stored, ...]:
    return tuple(map(_stored, connection.execute(f"{_DOCUMENT} ORDER BY type, mesh, name")))


def find(connection: Connection, keys: Iterable[Key]) -> dict[Key, Stored]:
    """Those of the documents that are there."""
    query = f"{_DOCUMENT} WHERE type = ? AND mesh = ? AND name = ?"
    rows = (connection.execute(query, _names(key)).fetchone() for key in keys)
    return {held.document.key: held for held in map(_stored, filter(None, rows))}


def bounds(connection: Connection) -> tuple[int, int]:
    """The oldest revision after which every change is kept, and the newest."""
    query = "SELECT (SELECT min(revision) FROM changes), (SELECT max(revision) FROM changes)"
    oldest, newest = connection.execute(query).fetchone()
    return (0, 0) if newest is None else (oldest - 1, newest)


def record(connection: Connection, changes: Iterable[Change]) -> None:
    """Make changes, and log them."""
    _, written = _end_of_log(connection)
    for position, change in enumerate(changes):
        before, after = _written(change.before), _written(change.after)
        at = change.at.isoformat()
        written += sum(len(text) for text in (*before, *after) if text is not None)
        connection.execute(_LOG, (change.revision, position, *_names(change.key), *before, *after, at, written))
        if change.after is None:
            connection.execute("DELETE FROM documents WHERE type = ? AND mesh = ? AND name = ?", _names(change.key))
        else:
            connection.execute(_PUT, (*_names(change.key), *after, change.revision, at, at))


def forget(connection: Connection, revision: int, size: int) -> None:
    """Drop the log up to a revision, and more of it if the rest is larger than a size; but never the last revision."""
    connection.execute("DELETE FROM changes WHERE revision <= ?", (revision,))
    newest, written = _end_of_log(connection)
    oldest, size_before = connection.execute(f"{_SIZES} ORDER BY revision, position LIMIT 1").fetchone()
    while oldest < newest and size_before <= written - size:
        connection.execute("DELETE FROM changes WHERE revision = ?", (oldest,))
        oldest, size_before = connection.execute(f"{_SIZES} ORDER BY revision, position LIMIT 1").fetchone()


def _end_of_log(connection: Connection) -> tuple[int, int]:
    """The newest revision, and the size of all that was ever written to the log; it only grows."""
    # By the end of the key, as a maximum over all rows costs more with each of them.
    row = connection.execute(f"{_SIZES} ORDER BY revision DESC, position DESC LIMIT 1").fetchone()
    return (0, 0) if row is None else row


def changes_after(connection: Connection, revision: int) -> tuple[Change, ...]:
    query = f"{_CHANGE} WHERE revision > ? ORDER BY revision, position"
    return tuple(map(_change, connection.execute(query, (revision,))))


def changes_of(connection: Connection, key: Key, limit: int) -> tuple[Change, ...]:
    query = f"{_CHANGE} WHERE type = ? AND mesh = ? AND name = ? ORDER BY revision DESC LIMIT ?"
    return tuple(map(_change, connection.execute(query, (*_names(key), limit))))


def _names(key: Key) -> tuple[str, str, str]:
    return key.type, key.mesh, key.name


def _stored(row: Row) -> Stored:
    kind, mesh, name, data, source, revision, created, modified = row
    document = _read(Key(kind, mesh, name), data, source)
    return Stored(document, revision, datetime.fromisoformat(created), datetime.fromisoformat(modified))


def _change(row: Row) -> Change:
    revision, kind, mesh, name, before, before_source, after, after_source, at = row
    key = Key(kind, mesh, name)
    was = None if before is None else _read(key, before, before_source)
    is_now = None if after is None else _read(key, after, after_source)
    return Change(revision, key, was, is_now, datetime.fromisoformat(at))


def _read(key: Key, data: str, source: str) -> Document:
    return Document(key, json.loads(data), _place(json.loads(source)))


def _place(source: Mapping[str, Any]) -> Source:
    """Rows of before lines were a tree have a table of paths, of which the line of the document itself is kept."""
    lines = source["lines"]
    return Source(source["file"], Lines(lines.get("", 0)) if isinstance(lines, Mapping) else Lines.of_plain(lines))


def _written(document: Document | None) -> tuple[str | None, str | None]:
    if document is None:
        return None, None
    source = document.source
    return _json(document.data), _json({"file": source.file, "lines": source.lines.plain()})


def _json(data: Mapping[str, Any]) -> str:
    # What JSON cannot say must not be stored as something else: better to fail than to come back changed.
    return json.dumps(data, separators=(",", ":"), allow_nan=False, default=_mapping)


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a document holds plain data only, not {type(value).__name__}")

"""Documents and changes as rows of SQLite, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from sqlite3 import Connection
from typing import Any, Final, TypeAlias

from cp.model.document import Document, Source
from cp.model.lines import Lines
from cp.model.names import Key
from cp.store.encryption import PLAIN, DocumentCodec, SealedData
from cp.store.port import Change, Stored

Row: TypeAlias = tuple[Any, ...]

# As bytes: of a damaged text that is no UTF-8, SQLite's library would read nothing, and print what it is.
_DOCUMENT = "SELECT type, mesh, name, CAST(data AS BLOB), source, revision, created, modified FROM documents"
_CHANGE = """
    SELECT revision, type, mesh, name, CAST(before AS BLOB), before_source, CAST(after AS BLOB), after_source, at
    FROM changes
"""
_VERSIONS: Final = 100
"""How many versions of a document are tried where the newest cannot be decrypted."""

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


def everything(connection: Connection, codec: DocumentCodec = PLAIN) -> tuple[Stored, ...]:
    """Every document. One that cannot be decrypted is as it was last good, or is left out."""
    documents = [_stored(row, codec) for row in connection.execute(f"{_DOCUMENT} ORDER BY type, mesh, name")]
    if any(_is_sealed(held.document) for held in documents):
        return tuple(filter(None, (_last_good(connection, held, codec) for held in documents)))
    return tuple(documents)


def find(connection: Connection, keys: Iterable[Key], codec: DocumentCodec = PLAIN) -> dict[Key, Stored]:
    """Those of the documents that are there, also as they were last good."""
    held_by_key = find_as_is(connection, keys, codec)
    good = ((key, _last_good(connection, held, codec)) for key, held in held_by_key.items())
    return {key: held for key, held in good if held is not None}


def find_as_is(connection: Connection, keys: Iterable[Key], codec: DocumentCodec) -> dict[Key, Stored]:
    """Those of the documents that are there; with `SealedData` where one cannot be decrypted."""
    query = f"{_DOCUMENT} WHERE type = ? AND mesh = ? AND name = ?"
    rows = (connection.execute(query, _names(key)).fetchone() for key in keys)
    return {held.document.key: held for held in (_stored(row, codec) for row in rows if row is not None)}


def _last_good(connection: Connection, held: Stored, codec: DocumentCodec) -> Stored | None:
    """A document or, if it cannot be decrypted, the newest version of it in the log that can."""
    if not _is_sealed(held.document):
        return held
    changes = changes_of(connection, held.document.key, _VERSIONS, codec)
    after = next((change.after for change in changes if change.after is not None), None)
    return None if after is None else replace(held, document=after)


def bounds(connection: Connection) -> tuple[int, int]:
    """The oldest revision after which every change is kept, and the newest."""
    query = "SELECT (SELECT min(revision) FROM changes), (SELECT max(revision) FROM changes)"
    oldest, newest = connection.execute(query).fetchone()
    return (0, 0) if newest is None else (oldest - 1, newest)


def record(connection: Connection, changes: Iterable[Change], codec: DocumentCodec = PLAIN) -> None:
    """Make changes, and log them."""
    _, written = _end_of_log(connection)
    for position, change in enumerate(changes):
        before, after = _written(change.before, codec), _written(change.after, codec)
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


def note_plain_text(connection: Connection) -> None:
    """Note that a secret is written in plain text. Its traces stay until all secrets are encrypted anew."""
    connection.execute("UPDATE secrets_at_rest SET plain = 1 WHERE plain <> 1")


def _end_of_log(connection: Connection) -> tuple[int, int]:
    """The newest revision, and the size of all that was ever written to the log; it only grows."""
    # By the end of the key, as a maximum over all rows costs more with each of them.
    row = connection.execute(f"{_SIZES} ORDER BY revision DESC, position DESC LIMIT 1").fetchone()
    return (0, 0) if row is None else row


def changes_after(connection: Connection, revision: int, codec: DocumentCodec = PLAIN) -> tuple[Change, ...]:
    query = f"{_CHANGE} WHERE revision > ? ORDER BY revision, position"
    return tuple(_readable(connection.execute(query, (revision,)), codec))


def changes_of(connection: Connection, key: Key, limit: int, codec: DocumentCodec = PLAIN) -> tuple[Change, ...]:
    query = f"{_CHANGE} WHERE type = ? AND mesh = ? AND name = ? ORDER BY revision DESC LIMIT ?"
    return tuple(_readable(connection.execute(query, (*_names(key), limit)), codec))


def _readable(rows: Iterable[Row], codec: DocumentCodec) -> Iterator[Change]:
    """The changes whose outcome can be read; whoever follows the others keeps what he has. See `SecretsAtRest`."""
    for row in rows:
        change = _change(row, codec)
        if not _is_sealed(change.after):
            yield replace(change, before=None) if _is_sealed(change.before) else change


def _is_sealed(document: Document | None) -> bool:
    return document is not None and type(document.data) is SealedData


def _names(key: Key) -> tuple[str, str, str]:
    return key.type, key.mesh, key.name


def _stored(row: Row, codec: DocumentCodec) -> Stored:
    kind, mesh, name, data, source, revision, created, modified = row
    document = _read(Key(kind, mesh, name), data, source, codec)
    return Stored(document, revision, datetime.fromisoformat(created), datetime.fromisoformat(modified))


def _change(row: Row, codec: DocumentCodec) -> Change:
    revision, kind, mesh, name, before, before_source, after, after_source, at = row
    key = Key(kind, mesh, name)
    was = None if before is None else _read(key, before, before_source, codec)
    is_now = None if after is None else _read(key, after, after_source, codec)
    return Change(revision, key, was, is_now, datetime.fromisoformat(at))


def _read(key: Key, data: bytes, source: str, codec: DocumentCodec) -> Document:
    return Document(key, codec.decode(key, data), _place(json.loads(source)))


def _place(source: Mapping[str, Any]) -> Source:
    """Rows of before lines were a tree have a table of paths, of which the line of the document itself is kept."""
    lines = source["lines"]
    return Source(source["file"], Lines(lines.get("", 0)) if isinstance(lines, Mapping) else Lines.of_plain(lines))


def _written(document: Document | None, codec: DocumentCodec) -> tuple[str | None, str | None]:
    if document is None:
        return None, None
    source = document.source
    place = json.dumps({"file": source.file, "lines": source.lines.plain()}, separators=(",", ":"))
    return codec.encode(document.key, document.data), place

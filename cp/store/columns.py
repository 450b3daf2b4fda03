"""Documents and changes as the columns of a database, whichever it is, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from cp.model.document import Document, Source
from cp.model.lines import Lines
from cp.model.moments import timestamp
from cp.model.names import Key
from cp.store.encryption import DocumentCodec, SealedData
from cp.store.port import Author, Change, ChangeNote, Stored

VERSIONS: Final = 100
"""How many versions of a document are tried where the newest cannot be decrypted."""


@dataclass(frozen=True, slots=True)
class DocumentColumns:
    """A row of `documents`."""

    key: Key
    data: bytes
    source: str
    revision: int
    created: datetime
    modified: datetime

    @property
    def size(self) -> int:
        """Bytes, about."""
        return len(self.data) + len(self.source)

    def stored(self, codec: DocumentCodec) -> Stored:
        document = _read(self.key, self.data, self.source, self.created, codec)
        return Stored(document, self.revision, self.created, self.modified)


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """A row of `changes`."""

    revision: int
    key: Key
    before: bytes | None
    before_source: str
    after: bytes | None
    after_source: str
    at: datetime
    author: Author
    created: datetime | None
    """When the document that is there now was made, for rows of before each had that of its document."""

    @property
    def size(self) -> int:
        """Bytes, about."""
        return sum(len(text) for text in (self.before, self.before_source, self.after, self.after_source) if text)

    def change(self, codec: DocumentCodec) -> Change:
        created = self.created
        was = None if self.before is None else _read(self.key, self.before, self.before_source, created, codec)
        is_now = None if self.after is None else _read(self.key, self.after, self.after_source, created, codec)
        return Change(self.revision, self.key, was, is_now, self.at, self.author)


BEGINNING: Final = 200
"""Characters of a document that name its key."""


@dataclass(frozen=True, slots=True)
class NoteColumns:
    """A row of `changes` with the beginnings of its documents."""

    revision: int
    key: Key
    at: datetime
    author: Author
    before: str | None
    after: str | None
    is_same: bool

    def note(self, codec: DocumentCodec) -> ChangeNote:
        known = all(codec.knows_key(side) for side in (self.before, self.after) if side is not None)
        return ChangeNote(
            self.revision,
            self.key,
            self.at,
            self.author,
            self.before is not None,
            self.after is not None,
            self.is_same,
            not known,
        )


def written(document: Document | None, codec: DocumentCodec) -> tuple[str | None, str | None]:
    """What stands in the columns for a document and for its place."""
    if document is None:
        return None, None
    source = document.source
    # With its age: what is gone has it nowhere else, and comes back as old as it was.
    place = {"file": source.file, "lines": source.lines.plain(), "created": source.created}
    return codec.encode(document.key, document.data), json.dumps(place, separators=(",", ":"))


def readable(rows: Iterable[ChangeColumns], codec: DocumentCodec) -> Iterator[Change]:
    """The changes whose outcome can be read; whoever follows the others keeps what he has. See `SecretsAtRest`."""
    for row in rows:
        change = row.change(codec)
        if not is_sealed(change.after):
            yield replace(change, before=None) if is_sealed(change.before) else change


def disclosed(rows: Iterable[ChangeColumns], codec: DocumentCodec) -> Iterator[Change]:
    """All changes, for a history; each without what cannot be decrypted of it."""
    for row in rows:
        change = row.change(codec)
        was_sealed = is_sealed(change.before)
        if was_sealed or is_sealed(change.after):
            before, after = (None if is_sealed(document) else document for document in (change.before, change.after))
            yield replace(change, before=before, after=after, is_unreadable=True, is_unreadable_before=was_sealed)
        else:
            yield change


def last_good(stored: Stored, newest_first: Iterable[Change]) -> Stored | None:
    """A document that cannot be decrypted as the newest of its changes has it that can."""
    after = next((change.after for change in newest_first if change.after is not None), None)
    return None if after is None else replace(stored, document=after)


def is_sealed(document: Document | None) -> bool:
    """Whether it could not be decrypted."""
    return document is not None and type(document.data) is SealedData


def _read(key: Key, data: bytes, source: str, created: datetime | None, codec: DocumentCodec) -> Document:
    made = "" if created is None else timestamp(created)
    return Document(key, codec.decode(key, data), _place(json.loads(source), made))


def _place(source: Mapping[str, Any], created: str) -> Source:
    """Rows of before lines were a tree have a table of paths, of which the line of the document itself is kept.

    `created` is for rows of before each had it: it is that of the document of this name that is there now.
    """
    lines = source["lines"]
    tree = Lines(lines.get("", 0)) if isinstance(lines, Mapping) else Lines.of_plain(lines)
    return Source(source["file"], tree, source.get("created") or created)

"""What writes change: decided before anything is done, and in every store the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cp.model.document import Document, Source
from cp.model.moments import moment, timestamp
from cp.model.names import Key
from cp.store.port import ABSENT, UNKNOWN, Author, Change, Conflict, Delete, Put, Stored


def dated(
    writes: Sequence[Put | Delete], stored_by_key: Mapping[Key, Stored], at: datetime
) -> tuple[Put | Delete, ...]:
    """The same writes, with the time in each document at which its resource was made.

    It stays as it is for as long as there is such a document. A new one may bring it along, as an export does. Others
    are made in the order in which they are written: of legacy policies in one file the last is the newest.
    """
    last = len(writes) - 1
    moments = (at - timedelta(microseconds=last - index) for index in range(len(writes)))
    return tuple(
        _dated(write, stored_by_key.get(write.key), made) if isinstance(write, Put) else write
        for write, made in zip(writes, moments, strict=True)
    )


def changes(
    writes: Sequence[Put | Delete],
    stored_by_key: Mapping[Key, Stored],
    revision: int,
    at: datetime,
    author: Author = UNKNOWN,
) -> tuple[Change, ...]:
    """What these writes change in what is stored, as one revision. Raises `Conflict` if one is based on another."""
    for write in writes:
        must_find(write, stored_by_key.get(write.key))
    wanted = {write.key: write.document if isinstance(write, Put) else None for write in writes}
    before = {key: stored_by_key[key].document if key in stored_by_key else None for key in wanted}
    return tuple(
        Change(revision, key, before[key], after, at, author)
        for key, after in wanted.items()
        if not _same(before[key], after)
    )


def stored(change: Change, before: Stored | None) -> Stored | None:
    """How a document is stored once the change is made."""
    if change.after is None:
        return None
    first = change.at if before is None else before.created
    return Stored(change.after, change.revision, moment(change.after.source.created) or first, change.at)


def _dated(write: Put, before: Stored | None, at: datetime) -> Put:
    source = write.document.source
    created = (source.created or timestamp(at)) if before is None else timestamp(before.created)
    return replace(write, document=replace(write.document, source=replace(source, created=created)))


def must_find(write: Put | Delete, before: Stored | None) -> None:
    """Check that a write finds what it is based on. Raises `Conflict`."""
    actual = ABSENT if before is None else before.revision
    if write.based_on is not None and write.based_on != actual:
        raise Conflict(write.key, write.based_on, actual)


def _same(before: Document | None, after: Document | None) -> bool:
    if before is None or after is None:
        return before is after
    # Documents are equal wherever they stand, but lines that moved must reach those who name them, and dates those who
    # ask which is the newest.
    return before is after or (before == after and _origin(before) == _origin(after))


def _origin(document: Document) -> tuple[Source, str]:
    return document.source, document.source.created

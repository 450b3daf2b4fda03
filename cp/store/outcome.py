"""What writes change: decided before anything is done, and in every store the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from cp.model.document import Document
from cp.model.names import Key
from cp.store.port import ABSENT, Change, Conflict, Delete, Put, Stored


def changes(
    writes: Sequence[Put | Delete], held: Mapping[Key, Stored], revision: int, at: datetime
) -> tuple[Change, ...]:
    """What these writes change in what is held, as one revision. Raises `Conflict` if one is based on another."""
    for write in writes:
        _check(write, held.get(write.key))
    wanted = {write.key: write.document if isinstance(write, Put) else None for write in writes}
    before = {key: held[key].document if key in held else None for key in wanted}
    return tuple(
        Change(revision, key, before[key], after, at) for key, after in wanted.items() if not _same(before[key], after)
    )


def stored(change: Change, before: Stored | None) -> Stored | None:
    """How a document is held once the change is made."""
    if change.after is None:
        return None
    created = change.at if before is None else before.created
    return Stored(change.after, change.revision, created, change.at)


def _check(write: Put | Delete, held: Stored | None) -> None:
    actual = ABSENT if held is None else held.revision
    if write.based_on is not None and write.based_on != actual:
        raise Conflict(write.key, write.based_on, actual)


def _same(before: Document | None, after: Document | None) -> bool:
    if before is None or after is None:
        return before is after
    # Documents are equal wherever they stand, but lines that moved must reach those who name them.
    return before is after or (before == after and before.source == after.source)

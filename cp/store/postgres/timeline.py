"""`Timeline`: notices that the database has gone back, and what was read of it is not there any longer.

A failover to a replica that lacked the last writes does that, and a backup that is restored. Others may have written
since, so that the revision alone tells nothing: beside it we keep the mark of its write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from cp.store.postgres.rows import Head

_REMEMBERED: Final = 64


@dataclass(frozen=True, slots=True)
class LastWrite:
    """The newest write that was seen."""

    revision: int = 0
    mark: UUID | None = None
    number: int = 0
    """Of the line of writes: one more each time the database was found to have gone back."""


class Timeline:
    """The line of writes that is followed."""

    def __init__(self) -> None:
        self.seen = LastWrite()
        self._read: dict[int, int] = {}

    def begin(self, revision: int) -> int:
        """The line to which belongs what was read at a revision, for whoever follows from there."""
        return self._read.get(revision, self.seen.number)

    def note_read(self, revision: int, number: int) -> None:
        self._read.pop(revision, None)
        self._read[revision] = number
        if len(self._read) > _REMEMBERED:
            del self._read[next(iter(self._read))]

    def note(self, asked: LastWrite, head: Head) -> int | None:
        """To which line an answer belongs, which was asked for when `asked` was the newest write; None: ask again."""
        if asked.number != self.seen.number:
            return None
        # A write that is forgotten by now has no mark. Whoever has not read beyond it is told so by its revision.
        is_another = None not in {asked.mark, head.known_mark} and asked.mark != head.known_mark
        if head.revision < asked.revision or is_another:
            self.seen = LastWrite(head.revision, head.mark, asked.number + 1)
        elif head.revision > self.seen.revision:
            self.seen = LastWrite(head.revision, head.mark, asked.number)
        return self.seen.number

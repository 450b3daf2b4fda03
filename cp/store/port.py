"""The `Store` port: where documents are kept, in an order that everyone can follow.

Every write has a revision, one higher than the write before. Who has read the store at a revision and follows its
changes from there knows all that is in it, without ever reading it again.

See record 0014.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import Finding

ABSENT: Final = 0
"""The `based_on` of a write that must create: there is no document of this name yet."""

KEPT: Final = 10_000
"""How many revisions back a store remembers its changes, unless told otherwise."""

KEPT_BYTES: Final = 64 * 1024 * 1024
"""How many bytes of changes it remembers at the most, in the form in which they are stored. The last it always does."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A document as the store holds it: the revision of its last write, and when it was made and changed."""

    document: Document
    revision: int
    created: datetime
    modified: datetime


@dataclass(frozen=True, slots=True)
class Put:
    """Write a document. With `based_on` only if its last revision is still that one."""

    document: Document
    based_on: int | None = None

    @property
    def key(self) -> Key:
        return self.document.key


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a document, with `based_on` only if its last revision is still that one. Removing nothing is no error."""

    key: Key
    based_on: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What one write did to one document: what it was, what it is; `None` where there was or is none.

    A document that says the same as before, but stands on other lines or in another file, is a change too: it makes
    nothing new, but what explains where a value comes from has to know. There `before == after`.
    """

    revision: int
    key: Key
    before: Document | None
    after: Document | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything that is stored, at one revision, and what is wrong with the store itself (an unreadable file)."""

    revision: int
    stored: Sequence[Stored]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """What came after a revision, up to another; changes that one write made together are never cut apart.

    The findings are all that stand at this revision. What is wrong with the store can change by itself: then there
    are findings, or none any longer, and no changes.
    """

    revision: int
    changes: tuple[Change, ...]
    findings: tuple[Finding, ...] = ()


class Conflict(Exception):
    """A write was based on a revision that is no longer the last one."""

    def __init__(self, key: Key, based_on: int, actual: int) -> None:
        self.key, self.based_on, self.actual = key, based_on, actual
        was = "does not exist" if actual == ABSENT else f"is at revision {actual}"
        super().__init__(f"{key} {was}, not at {based_on}: read it again and repeat the change")


class Outdated(Exception):
    """The changes after a revision are not there to be followed: too long ago, or of another store."""

    def __init__(self, since: int, oldest: int, newest: int) -> None:
        self.since, self.oldest, self.newest = since, oldest, newest
        super().__init__(
            f"the store can be followed from revisions {oldest} to {newest}, not from {since}: read all of it again"
        )


class ReadOnly(Exception):
    """The store is written by other means, such as an editor."""


class Unusable(Exception):
    """What is there is no store of ours, is damaged, was made by a newer version, or cannot be reached or written."""


class Closed(Exception):
    """The store was closed, by us."""

    def __init__(self) -> None:
        super().__init__("the store is closed")


class Store(Protocol):
    """Where documents are kept. Each implementation passes `tests/store/test_contract.py`."""

    async def read(self) -> Contents:
        """Everything, at one revision."""
        ...

    async def get(self, key: Key) -> Stored | None: ...

    async def find(self, *keys: Key) -> Mapping[Key, Stored]:
        """Those of some documents that are there, at one revision."""
        ...

    async def revision(self) -> int:
        """The revision of the last write."""
        ...

    async def write(self, *writes: Put | Delete) -> int:
        """All of them or, if one conflicts, none; answers with the revision reached.

        A write that changes nothing makes no revision. Each is compared with what was there before all of them, and
        of several to one document the last counts. When this returns, the write is kept: a crash loses nothing that
        was answered as stored.
        """
        ...

    def follow(self, since: int) -> AsyncIterator[ChangeBatch]:
        """Every change after a revision, in order and without gaps, until the store is closed.

        Waits for the next change without polling. A reader that is slow gets several changes in one batch; one that
        asks for changes that are no longer kept gets `Outdated`, and reads everything again.
        """
        ...

    async def history(self, key: Key, limit: int = 100) -> Sequence[Change]:
        """The changes of one document, newest first, as far back as they are kept."""
        ...

    async def close(self) -> None:
        """Ends every `follow`; anything else that is asked afterwards is answered with `Closed`."""
        ...

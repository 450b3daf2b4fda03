"""The `Store` port: where documents are kept, in an order that everyone can follow.

Every write has a revision, one higher than the write before. Who has read the store at a revision and follows its
changes from there knows all that is in it, without ever reading it again.

See records 0014 and 0078 and, for fences, record 0083.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import Finding
from cp.store.roster import Fence, Roster

ABSENT: Final = 0
"""The `based_on` of a write that must create: there is no document of this name yet."""

KEPT: Final = 10_000
"""How many revisions back a store remembers its changes, unless told otherwise."""

KEPT_BYTES: Final = 64 * 1024 * 1024
"""How many bytes of changes it remembers at the most, in the form in which they are stored. The last it always does."""

KEPT_REGISTRATIONS: Final = 10_000
"""How many registrations of proxies a store remembers. They take no place of other changes."""

KEPT_REGISTRATION_BYTES: Final = 16 * 1024 * 1024
"""How many bytes of registrations it remembers."""


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How much a store remembers of its changes. What is beyond any of these it forgets with the next write.

    What is too old it forgets as well when it is told to (`Store.forget`), so that it goes where nobody writes.
    """

    kept: int = KEPT
    kept_bytes: int = KEPT_BYTES
    kept_age: timedelta | None = None
    """How old a change may be."""

    kept_registrations: int = KEPT_REGISTRATIONS
    kept_registration_bytes: int = KEPT_REGISTRATION_BYTES

    def __post_init__(self) -> None:
        if self.kept < 1:
            raise ValueError(f"a store keeps at least its last revision, not {self.kept}")

    def eldest(self, now: datetime) -> datetime | None:
        """The moment before which changes are forgotten; None if none is too old."""
        return None if self.kept_age is None else now - self.kept_age


USUAL_LIMITS: Final = HistoryLimits()


@dataclass(frozen=True, slots=True)
class Author:
    """Who made a change, and where it came from, as far as that is known."""

    name: str = ""
    """A user of the API, a proxy or a part of the control plane."""

    origin: str = ""
    """By which way, and from which address: `apply from 192.0.2.7`."""


UNKNOWN: Final = Author()


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
    author: Author = UNKNOWN
    is_unreadable: bool = False
    """Whether a document of it cannot be decrypted: then nothing stands in its place, though something was there.

    Only a history has such changes. Who follows the store keeps what he has.
    """

    is_unreadable_before: bool = False
    """Whether that is the document before it: there was one, and nobody knows how it was."""


@dataclass(frozen=True, slots=True)
class ChangeNote:
    """That there was a change, without the documents, which may be large."""

    revision: int
    key: Key
    at: datetime
    author: Author
    was_there: bool
    is_there: bool
    is_same: bool = False
    """Whether the document says the same as before, as far as that can be seen without its key."""

    is_unreadable: bool = False
    """Whether the key is missing with which a document of it was encrypted."""

    @classmethod
    def of(cls, change: Change) -> ChangeNote:
        before, after = change.before, change.after
        was_there, is_there = before is not None, after is not None
        is_same = was_there and is_there and before == after
        return cls(
            change.revision, change.key, change.at, change.author, was_there, is_there, is_same, change.is_unreadable
        )


@dataclass(frozen=True, slots=True, weakref_slot=True)
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


class LeaseLost(Conflict):
    """A write of somebody who has been taken for gone: another one holds the lease by now. Nothing was written."""

    def __init__(self, lease: str) -> None:
        Exception.__init__(self, f"the lease `{lease}` is held by another control plane, or by nobody")


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


class WritesRefused(Unusable):
    """The store is there and takes no writes, whatever is written: its disk is full, or it may only be read."""


class StoreUnreachable(Unusable):
    """The store cannot be reached at the moment. Nothing was written, and it can be tried again."""


class WriteUncertain(Unusable):
    """The store went away while it was writing: it may have been written or not. Read before you repeat it."""


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

    async def oldest(self) -> int:
        """The oldest revision that can be gone back to: every change after it is kept."""
        ...

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
        """All of them or, if one conflicts, none; answers with the revision reached.

        With a fence only if its lease has not been taken by another one since (`LeaseLost`).

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

    async def history(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[Change]:
        """The changes of one document or of all, newest first, as far back as they are kept.

        With `before` only those of revisions below it. A document that is gone is as old in it as it was.
        """
        ...

    async def log(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[ChangeNote]:
        """The same without the documents. It takes little memory, however large these are."""
        ...

    async def forget(self) -> None:
        """Forget the changes that are older than it remembers, the last one too: what it says may be a secret.

        It makes no revision, and nobody who follows hears of it.
        """
        ...

    @property
    def outage(self) -> str:
        """Since when the store cannot be reached, and why; empty while it can.

        Whoever follows it waits until it can be reached again; whoever asks it or writes is answered with `Unusable`.
        """
        ...

    @property
    def refusal(self) -> str:
        """Why the last write was not taken though the store can be read (`WritesRefused`); empty if it was."""
        ...

    @property
    def roster(self) -> Roster:
        """Who shares the store."""
        ...

    async def close(self) -> None:
        """Ends every `follow`; anything else that is asked afterwards is answered with `Closed`."""
        ...

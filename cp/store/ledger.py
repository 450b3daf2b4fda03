"""`DocumentLedger`: what is stored and how it came to be, in memory, for stores that have no database."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import Finding
from cp.store import outcome
from cp.store.port import (
    UNKNOWN,
    USUAL_LIMITS,
    Author,
    Change,
    ChangeBatch,
    Contents,
    Delete,
    HistoryLimits,
    Outdated,
    Put,
    Stored,
)


class DocumentLedger:
    """The documents at the newest revision, and the changes that led there. It does no I/O and never waits."""

    def __init__(self, limits: HistoryLimits = USUAL_LIMITS) -> None:
        self.revision = 0
        self.findings: tuple[Finding, ...] = ()
        self.stored: dict[Key, Stored] = {}
        self._log: deque[tuple[Change, ...]] = deque()  # one entry a revision, without gaps
        self._sizes: deque[int] = deque()  # of these entries
        self._size = 0
        self._moments: deque[datetime] = deque()  # of these entries
        self._limits = limits

    def write(
        self,
        writes: Sequence[Put | Delete],
        at: datetime,
        findings: tuple[Finding, ...] = (),
        author: Author = UNKNOWN,
    ) -> int:
        """Make one revision of what these writes and findings change, if they change anything."""
        changes = outcome.changes(writes, self.stored, self.revision + 1, at, author)
        if not changes and findings == self.findings:
            return self.revision
        for change in changes:
            self._apply(change)
        self._keep(changes, at)
        self.findings = findings
        self.revision += 1
        return self.revision

    def _keep(self, changes: tuple[Change, ...], at: datetime) -> None:
        size = sum(map(_size, changes))
        self._log.append(changes)
        self._sizes.append(size)
        self._moments.append(at)
        self._size += size
        while self._has_too_much(at):
            self._forget_first()

    def _has_too_much(self, at: datetime) -> bool:
        if len(self._log) > self._limits.kept:
            return True
        return len(self._log) > 1 and (self._is_first_old(at) or self._size > self._limits.kept_bytes)

    def forget(self, at: datetime) -> None:
        """Forget what is too old by now."""
        while self._log and self._is_first_old(at):
            self._forget_first()

    def _is_first_old(self, at: datetime) -> bool:
        eldest = self._limits.eldest(at)
        return eldest is not None and self._moments[0] < eldest

    def _forget_first(self) -> None:
        self._log.popleft()
        self._moments.popleft()
        self._size -= self._sizes.popleft()

    def contents(self) -> Contents:
        by_key = sorted(self.stored.values(), key=_place)
        return Contents(self.revision, tuple(by_key), self.findings)

    def after(self, since: int) -> ChangeBatch | None:
        """What came after a revision. Costs what it answers, however long the log is."""
        if not self.oldest <= since <= self.revision:
            raise Outdated(since, self.oldest, self.revision)
        if since == self.revision:
            return None
        newest_first = islice(reversed(self._log), self.revision - since)
        changes = [change for entry in reversed(list(newest_first)) for change in entry]
        return ChangeBatch(self.revision, tuple(changes), self.findings)

    @property
    def oldest(self) -> int:
        """The oldest revision after which every change is kept."""
        return self.revision - len(self._log)

    def history(self, key: Key | None, limit: int, before: int | None) -> Sequence[Change]:
        newest_first = (change for entry in reversed(self._log) for change in reversed(entry))
        wanted = (
            change
            for change in newest_first
            if (key is None or change.key == key) and (before is None or change.revision < before)
        )
        return tuple(islice(wanted, limit))

    def _apply(self, change: Change) -> None:
        stored = outcome.stored(change, self.stored.get(change.key))
        if stored is None:
            del self.stored[change.key]
        else:
            self.stored[change.key] = stored


def _place(stored: Stored) -> tuple[str, str, str]:
    key = stored.document.key
    return key.type, key.mesh, key.name


def _size(change: Change) -> int:
    return sum(size_of(document) for document in (change.before, change.after) if document is not None)


def size_of(document: Document) -> int:
    """Bytes, about: as they would be stored."""
    return _length(document.data) + _length(document.source.lines.plain())


def _length(data: Any) -> int:
    try:
        return len(msgspec.json.encode(data))
    except (OverflowError, TypeError, ValueError):
        return len(repr(data))

"""`DocumentLedger`: what is stored and how it came to be, in memory, for stores that have no database."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, takewhile
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
from cp.store.registrations import (
    LoggedRegistration,
    cut,
    is_check_due,
    is_registration,
    merge_for,
    shares,
    tally,
)


@dataclass(slots=True)
class _LoggedWrite:
    revision: int
    changes: tuple[Change, ...]
    size: int
    at: datetime
    is_registration: bool
    written: int  # bytes of the writes up to this one that are no registrations
    ordinal: int  # their number

    @property
    def registration(self) -> LoggedRegistration:
        return LoggedRegistration(self.revision, self.size)


class DocumentLedger:
    """The documents at the newest revision, and the changes that led there. It does no I/O and never waits."""

    def __init__(self, limits: HistoryLimits = USUAL_LIMITS) -> None:
        self.revision = 0
        self.findings: tuple[Finding, ...] = ()
        self.stored: dict[Key, Stored] = {}
        self._log: OrderedDict[int, _LoggedWrite] = OrderedDict()  # by revision
        self._written = self._ordinal = 0  # bytes and number of all writes that were no registrations
        self._registrations: defaultdict[Key, list[int]] = defaultdict(list)  # since the last other write of each
        self._registrations_forgotten = 0  # the revision up to which they may be missing in the middle
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
        size, of_proxy = sum(map(_size, changes)), is_registration(changes)
        if not of_proxy:
            self._written, self._ordinal = self._written + size, self._ordinal + 1
        revision, tallies = self.revision + 1, (self._written, self._ordinal)
        self._log[revision] = _LoggedWrite(revision, changes, size, at, of_proxy, *tallies)
        if of_proxy:
            self._keep_registration(changes[0].key, revision)
        else:
            for change in changes:
                self._registrations.pop(change.key, None)
            self._forget_surplus()
        while len(self._log) > 1 and self._is_first_old(at):
            self._forget_first()

    def _forget_surplus(self) -> None:
        """Forget the beginning of the log that is beyond the budget of people's writes."""
        ordinal, written = self._ordinal - self._limits.kept, self._written - self._limits.kept_bytes
        while len(self._log) > 1 and (self._first.ordinal <= ordinal or self._first.written <= written):
            self._forget_first()

    @property
    def _first(self) -> _LoggedWrite:
        return next(iter(self._log.values()))

    def forget(self, at: datetime) -> None:
        """Forget what is too old by now."""
        while self._log and self._is_first_old(at):
            self._forget_first()

    def _is_first_old(self, at: datetime) -> bool:
        eldest = self._limits.eldest(at)
        return eldest is not None and self._first.at < eldest

    def _forget_first(self) -> None:
        self._drop(next(iter(self._log)))

    def _drop(self, revision: int) -> None:
        logged = self._log.pop(revision)
        for change in logged.changes if logged.is_registration else ():
            revisions = self._registrations.get(change.key, [])
            if revision in revisions:
                revisions.remove(revision)
            if not revisions:
                self._registrations.pop(change.key, None)

    def _keep_registration(self, key: Key, revision: int) -> None:
        """Merge and forget registrations beyond their budget, after one of this Dataplane."""
        revisions = self._registrations[key]
        revisions.append(revision)
        merge = merge_for([self._log[logged].registration for logged in reversed(revisions)])
        if merge is not None:
            self._merge(merge.first, merge.target, revisions)
        if is_check_due(revision - 1, revision, self._limits):
            self._share_registrations(revision)

    def _merge(self, first: int, target: int, revisions: Sequence[int]) -> None:
        [before], [after] = self._log[first].changes, self._log[target].changes
        merged = replace(after, before=before.before)
        self._log[target].changes, self._log[target].size = (merged,), _size(merged)
        is_nothing = merged.before is None and merged.after is None  # it came and went again
        for revision in [revision for revision in revisions if revision < target + is_nothing]:
            self._drop(revision)

    def _share_registrations(self, newest: int) -> None:
        by_mesh: defaultdict[str, list[LoggedRegistration]] = defaultdict(list)
        for logged in reversed(self._log.values()):
            if logged.is_registration:
                by_mesh[logged.changes[0].key.mesh].append(logged.registration)
        tallies = {mesh: tally(logged) for mesh, logged in by_mesh.items()}
        for mesh, most in shares(tallies, self._limits).items():
            until = min(cut(by_mesh[mesh], most), newest - 1)
            for revision in [logged.revision for logged in by_mesh[mesh] if logged.revision <= until]:
                self._drop(revision)
            self._registrations_forgotten = max(self._registrations_forgotten, until)

    def contents(self) -> Contents:
        by_key = sorted(self.stored.values(), key=_place)
        return Contents(self.revision, tuple(by_key), self.findings)

    def after(self, since: int) -> ChangeBatch | None:
        """What came after a revision. Costs what it answers, however long the log is."""
        oldest = max(self.oldest, self._registrations_forgotten)
        if not oldest <= since <= self.revision:
            raise Outdated(since, oldest, self.revision)
        if since == self.revision:
            return None
        newest_first = takewhile(lambda logged: logged.revision > since, reversed(self._log.values()))
        changes = [change for logged in reversed(list(newest_first)) for change in logged.changes]
        return ChangeBatch(self.revision, tuple(changes), self.findings)

    @property
    def oldest(self) -> int:
        """The oldest revision after which every change is kept."""
        return self._first.revision - 1 if self._log else self.revision

    def history(self, key: Key | None, limit: int, before: int | None) -> Sequence[Change]:
        newest_first = (change for logged in reversed(self._log.values()) for change in reversed(logged.changes))
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

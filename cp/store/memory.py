"""`MemoryStore`: documents in memory, for tests, trials and tools. They end with the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from cp.model.names import Key
from cp.store import outcome
from cp.store.clock import Clock, utc
from cp.store.feed import RevisionSignal, follow
from cp.store.ledger import DocumentLedger
from cp.store.memory_roster import MemoryRoster
from cp.store.port import (
    UNKNOWN,
    USUAL_LIMITS,
    Author,
    Change,
    ChangeBatch,
    ChangeNote,
    Closed,
    Contents,
    Delete,
    HistoryLimits,
    Put,
    Stored,
)
from cp.store.roster import Fence


class MemoryStore:
    """A store that nobody else sees."""

    def __init__(self, *, limits: HistoryLimits = USUAL_LIMITS, clock: Clock = utc) -> None:
        self._contents = DocumentLedger(limits)
        self._news = RevisionSignal()
        self._clock = clock
        self.roster = MemoryRoster()

    async def read(self) -> Contents:
        return self._open().contents()

    async def get(self, key: Key) -> Stored | None:
        return self._open().stored.get(key)

    async def find(self, *keys: Key) -> Mapping[Key, Stored]:
        stored = self._open().stored
        return {key: stored[key] for key in keys if key in stored}

    async def revision(self) -> int:
        return self._open().revision

    async def oldest(self) -> int:
        return self._open().oldest

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
        await asyncio.sleep(0)  # others run meanwhile, as with any other store; who writes in a loop starves nobody
        before, at = self._open().revision, self._clock()
        self.roster.check(fence)
        revision = self._contents.write(outcome.dated(writes, self._contents.stored, at), at, author=author)
        if revision != before:
            self._news.publish()
        return revision

    def follow(self, since: int) -> AsyncIterator[ChangeBatch]:
        return follow(self._news, since, self._after)

    async def history(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[Change]:
        return self._open().history(key, limit, before)

    async def log(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[ChangeNote]:
        return tuple(map(ChangeNote.of, self._open().history(key, limit, before)))

    async def forget(self) -> None:
        self._open().forget(self._clock())

    @property
    def outage(self) -> str:
        return ""

    @property
    def refusal(self) -> str:
        return ""

    async def close(self) -> None:
        self._news.close()

    async def _after(self, since: int) -> ChangeBatch | None:
        return self._open().after(since)

    def _open(self) -> DocumentLedger:
        if self._news.closed:
            raise Closed
        return self._contents

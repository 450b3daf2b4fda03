"""`MemoryStore`: documents in memory, for tests, trials and tools. They end with the process."""

from __future__ import annotations

import asyncio

from cp.store import outcome
from cp.store.clock import Clock, utc
from cp.store.ledger_store import LedgerStore
from cp.store.port import UNKNOWN, USUAL_LIMITS, Author, Delete, HistoryLimits, Put
from cp.store.roster import Fence


class MemoryStore(LedgerStore):
    """A store that nobody else sees."""

    def __init__(self, *, limits: HistoryLimits = USUAL_LIMITS, clock: Clock = utc) -> None:
        super().__init__(limits, clock)

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
        await asyncio.sleep(0)  # others run meanwhile, as with any other store; who writes in a loop starves nobody
        before, at = self._open().revision, self._clock()
        self.roster.check(fence)
        revision = self._contents.write(outcome.dated(writes, self._contents.stored, at), at, author=author)
        if revision != before:
            self._news.publish()
        return revision

    async def close(self) -> None:
        self._news.close()

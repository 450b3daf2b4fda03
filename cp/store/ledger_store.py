"""`LedgerStore`: what stores share that have no database: they answer from a ledger in memory, and tell of news."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from cp.model.names import Key
from cp.store.clock import Clock
from cp.store.feed import RevisionSignal, follow
from cp.store.ledger import DocumentLedger
from cp.store.memory_roster import MemoryRoster
from cp.store.port import Change, ChangeBatch, ChangeNote, Closed, Contents, HistoryLimits, Stored


class LedgerStore:
    """All of a `Store` but `write` and `close`."""

    def __init__(self, limits: HistoryLimits, clock: Clock) -> None:
        self._contents, self._clock = DocumentLedger(limits), clock
        self._news = RevisionSignal()
        self.roster = MemoryRoster()  # revisions are those of this process, so others could not be asked about them

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

    def follow(self, since: int) -> AsyncIterator[ChangeBatch]:
        return follow(self._news, since, self._batch_after)

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

    async def _batch_after(self, since: int) -> ChangeBatch | None:
        return self._open().after(since)

    def _open(self) -> DocumentLedger:
        """Raises `Closed`."""
        if self._is_closed:
            raise Closed
        return self._contents

    @property
    def _is_closed(self) -> bool:
        return self._news.closed

"""`ObservedStore`: a store of which it is counted how long it takes, and how often it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from time import monotonic, time_ns
from typing import Final, TypeVar

from cp.metrics import Metrics
from cp.model.names import Key
from cp.store.port import (
    UNKNOWN,
    Author,
    Change,
    ChangeBatch,
    ChangeNote,
    Closed,
    Conflict,
    Contents,
    Delete,
    Outdated,
    Put,
    ReadOnly,
    Store,
    Stored,
    StoreUnreachable,
    Unusable,
    WriteUncertain,
)
from cp.store.roster import Fence, Roster
from cp.tracing.spans import Attribute
from cp.tracing.writes import WriteTraces

T = TypeVar("T")

_NAMED: Final = 20
"""Resources of one write that a trace names."""

_SORTS: Final = (
    (Conflict, "conflict"),
    (ReadOnly, "read only"),
    (Outdated, "outdated"),
    (Closed, "closed"),
    (StoreUnreachable, "unreachable"),
    (WriteUncertain, "uncertain"),
    (Unusable, "unusable"),
)


class ObservedStore:
    """Stands before a store, and does as it does."""

    def __init__(self, store: Store, metrics: Metrics, traces: WriteTraces | None = None) -> None:
        """Without `traces` writes are not traced."""
        self._store, self._metrics, self._traces = store, metrics, traces

    async def read(self) -> Contents:
        return await self._timed("read", self._store.read())

    async def get(self, key: Key) -> Stored | None:
        return await self._timed("get", self._store.get(key))

    async def find(self, *keys: Key) -> Mapping[Key, Stored]:
        return await self._timed("find", self._store.find(*keys))

    async def revision(self) -> int:
        return await self._timed("revision", self._store.revision())

    async def oldest(self) -> int:
        return await self._timed("oldest", self._store.oldest())

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
        began = time_ns()
        revision = await self._timed("write", self._store.write(*writes, author=author, fence=fence))
        if self._traces is not None:
            self._traces.note_write(began, revision, _attributes(writes, revision, author))
        return revision

    def follow(self, since: int) -> AsyncIterator[ChangeBatch]:
        return self._store.follow(since)

    async def history(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[Change]:
        return await self._timed("history", self._store.history(key, limit, before))

    async def log(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[ChangeNote]:
        return await self._timed("log", self._store.log(key, limit, before))

    async def forget(self) -> None:
        await self._timed("forget", self._store.forget())

    @property
    def outage(self) -> str:
        return self._store.outage

    @property
    def refusal(self) -> str:
        return self._store.refusal

    @property
    def roster(self) -> Roster:
        return self._store.roster

    async def close(self) -> None:
        await self._store.close()

    async def _timed(self, operation: str, answer: Awaitable[T]) -> T:
        began = monotonic()
        try:
            return await answer
        except Exception as error:
            self._metrics.store_errors.labels(operation, _sort(error)).inc()
            raise
        finally:
            self._metrics.store_seconds.labels(operation).observe(monotonic() - began)


def _attributes(writes: Sequence[Put | Delete], revision: int, author: Author) -> dict[str, Attribute]:
    """What is told of a write: whom and which, and nothing of what it says."""
    return {
        "koguma.revision": revision,
        "koguma.author": author.name,
        "koguma.origin": author.origin,
        "koguma.resources": tuple(str(write.key) for write in writes[:_NAMED]),
        "koguma.resource_count": len(writes),
    }


def _sort(error: Exception) -> str:
    return next((sort for kind, sort in _SORTS if isinstance(error, kind)), "fault")

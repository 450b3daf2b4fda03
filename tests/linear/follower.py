"""`Follower`: the log of a store as one who follows it is given it, from the first revision on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cp.model.document import Document
from cp.model.names import Key
from cp.store.open import open_store
from cp.store.port import Change, Store
from tests.linear.clients import KIND, value_of
from tests.linear.history import NO_VALUE, LogEntry
from tests.support.waiting import eventually_on_loop

FOREIGN = "-"
"""The value of documents that no client writes."""


class Follower:
    """Follows in a thread of its own, while the log is written, so that it may be longer than what is kept."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._revision = 0
        self.log: list[LogEntry] = []

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow until the block ends, and then up to the revision that the store has come to."""
        following, ending = threading.Event(), threading.Event()
        thread = threading.Thread(target=asyncio.run, args=(self._run(following, ending),))
        thread.start()
        following.wait(30)
        try:
            yield
        finally:
            ending.set()
            thread.join()

    async def _run(self, following: threading.Event, ending: threading.Event) -> None:
        async with open_store(self._store) as store, asyncio.TaskGroup() as group:
            task = group.create_task(self._follow(store))
            following.set()
            await asyncio.to_thread(ending.wait)
            async with open_store(self._store) as fresh:
                newest = await fresh.revision()
            await eventually_on_loop(lambda: self._revision >= newest, within=30)
            task.cancel()

    async def _follow(self, store: Store) -> None:
        async for batch in store.follow(0):
            self.log += map(_entry, batch.changes)
            self._revision = batch.revision


def _entry(change: Change) -> LogEntry:
    return LogEntry(change.revision, _name(change.key), _value(change.after))


def _name(key: Key) -> str:
    return key.name if key.type == KIND else str(key)


def _value(document: Document | None) -> str:
    if document is None:
        return NO_VALUE
    return value_of(document.data) if document.key.type == KIND else FOREIGN

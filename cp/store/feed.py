"""Following a store: wait until there is something new, read it, wait again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from cp.store.port import ChangeBatch, Closed

BatchAfter: TypeAlias = Callable[[int], Awaitable[ChangeBatch | None]]
"""What came after a revision, or `None` if nothing did."""


def tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *about: object) -> None:
    """Call something on the loop, from any thread. If the loop is gone, so are those who would have listened."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *about)


class RevisionSignal:
    """Wakes whoever waits for something newer than what he has seen.

    Each publication is a new edition. A reader notes the edition before he reads the store: what is written while
    he reads is then never slept over.
    """

    def __init__(self) -> None:
        self.edition = 0
        self.closed = False
        self.failure: Exception | None = None
        self._next = asyncio.Event()

    def publish(self) -> None:
        self.edition += 1
        self._next.set()
        self._next = asyncio.Event()

    def close(self) -> None:
        self.closed = True
        self.publish()

    def fail(self, failure: Exception) -> None:
        """Nothing new can be noticed any more: everybody should know, rather than wait for ever."""
        self.failure = failure
        self.close()

    async def after(self, edition: int) -> None:
        while edition == self.edition:
            await self._next.wait()


async def follow(news: RevisionSignal, since: int, batch_after: BatchAfter) -> AsyncIterator[ChangeBatch]:
    """Every batch after a revision, until there is no more news."""
    while not news.closed:
        edition = news.edition
        try:
            batch = await batch_after(since)
        except Closed:
            break
        if batch is not None:
            since = batch.revision
            yield batch
        # What was written after the store was read makes another edition: it need not be asked whether there is more.
        await news.after(edition)
    if news.failure is not None:
        raise news.failure

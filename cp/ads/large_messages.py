"""`LargeMessageSlots`: how many large messages are under way at once, as a push to all would hold all in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LargeMessageSlots:
    """A client that does not read gives its turn back after a while, so that it delays nobody else for longer."""

    def __init__(self, at_once: int, patience: float) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._patience = patience

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        await self._free.acquire()
        given_back = asyncio.Event()
        overdue = asyncio.get_running_loop().call_later(self._patience, self._give_back, given_back)
        try:
            yield
        finally:
            overdue.cancel()
            self._give_back(given_back)

    def _give_back(self, given_back: asyncio.Event) -> None:
        if not given_back.is_set():
            given_back.set()
            self._free.release()

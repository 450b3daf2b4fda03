"""`LargeMessageSlots`: a limit on how many large messages are being written at once.

gRPC holds a message in memory until the client has read it. A push to a thousand proxies would hold a thousand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LargeMessageSlots:
    """A client that does not read loses its slot after `patience` seconds, so that others wait no longer for it."""

    def __init__(self, at_once: int, patience: float) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._patience = patience

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot, and hold it for as long as the block lasts or `patience` allows."""
        await self._free.acquire()
        # Both the clock and the end of the block give the slot back: whichever comes first, and only once.
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

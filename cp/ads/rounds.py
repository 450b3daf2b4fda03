"""`Rounds`: in each round of the event loop so many streams begin something, and then somebody else has it.

When a thousand proxies answer at once, all of their streams are ready in one round, and timers, requests and pings
would wait for the last of them.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Rounds:
    """Whoever comes too late for a round waits in line for one of the next."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._line: deque[asyncio.Future[None]] = deque()
        self._goes_on = False

    async def turn(self) -> None:
        """Go on at once, or in a later round."""
        loop = asyncio.get_running_loop()
        if not self._goes_on:
            self._goes_on = True
            loop.call_soon(self._next, loop)  # which the loop does in its next round
        if self._left > 0 and not self._line:
            self._left -= 1
            return
        self._line.append(place := loop.create_future())
        await place

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left = self._most
        while self._line and self._left > 0:
            place = self._line.popleft()
            if not place.done():  # as it is if the stream ended meanwhile
                place.set_result(None)
                self._left -= 1
        self._goes_on = self._left < self._most
        if self._goes_on:
            loop.call_soon(self._next, loop)

"""`LoopRounds`: streams have some of each round of the event loop, and then somebody else has it.

When a thousand proxies answer or come back at once, all of their streams are ready in one round, and timers, requests
and pings would wait for the last of them. Smaller rounds cost more in sum, so they are as large as time allows.

See record 0037.
"""

from __future__ import annotations

import asyncio
from collections import deque


class LoopRounds:
    """Whoever comes when a round is full waits in line for one of the next."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = self._fit = most  # so many fit into a round, as far as is known
        self._begun = 0
        self._ends: float | None = None  # when the time of this round is used up, if there is one under way
        self._line: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Go on at once, or in a later round."""
        loop = asyncio.get_running_loop()
        if self._ends is None:
            self._begun, self._ends = 0, loop.time() + self._seconds
            loop.call_soon(self._next, loop)  # which the loop does in its next round
        if self._line or self._is_full(loop):
            self._line.append(place := loop.create_future())
            await place
        else:
            self._begun += 1

    def _is_full(self, loop: asyncio.AbstractEventLoop) -> bool:
        if self._ends is not None and loop.time() > self._ends:
            self._fit = max(1, self._begun)
        return self._begun >= self._fit

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._learn(loop)
        if not self._line:
            self._ends = None
            return
        self._begun, self._ends = 0, loop.time() + self._seconds
        while self._line and self._begun < self._fit:
            place = self._line.popleft()
            if not place.done():  # as it is if the stream ended meanwhile
                place.set_result(None)
                self._begun += 1
        loop.call_soon(self._next, loop)  # behind those who go on now

    def _learn(self, loop: asyncio.AbstractEventLoop) -> None:
        """From the round that is over: how many fit into one."""
        left = 0.0 if self._ends is None else self._ends - loop.time()
        if left < 0:
            self._fit = max(1, min(self._fit, self._begun) // 2)
        elif left > self._seconds / 2:
            self._fit = min(self._most, self._fit * 2)

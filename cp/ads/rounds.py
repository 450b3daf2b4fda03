"""`LoopRounds`: a limit on how much of each round of the event loop streams may have (record docs/adr/0037).

When a thousand proxies answer or come back at once, all of their streams are ready in one round, and timers, requests
to the API and pings would wait for the last of them. Smaller rounds cost more in sum. So a round has as many streams as
fit into its time: the number is halved when a round took too long, and doubled when it took less than half of its time.
Answers to questions wait during rounds (`cp.precedence`).
"""

from __future__ import annotations

import asyncio
from collections import deque

from cp.precedence import Precedence


class LoopRounds:
    """A stream that is ready when a round is full waits for one of the next rounds, in order."""

    def __init__(self, seconds: float, most: int, precedence: Precedence | None = None) -> None:
        self._precedence = Precedence() if precedence is None else precedence
        self._seconds = seconds
        self._most = self._capacity = most  # streams that fit into a round, as far as we know
        self._started = 0  # streams in this round
        self._ends_at: float | None = None  # when the time of the current round is used up
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Return at once if the current round has room, otherwise in a later round."""
        loop = asyncio.get_running_loop()
        if self._ends_at is None:
            self._started, self._ends_at = 0, loop.time() + self._seconds
            self._precedence.begin()
            loop.call_soon(self._start_next, loop)  # the loop calls it in its next round
        if self._waiting or self._is_full(loop):
            self._waiting.append(waiter := loop.create_future())
            await waiter
        else:
            self._started += 1

    def _is_full(self, loop: asyncio.AbstractEventLoop) -> bool:
        if self._ends_at is not None and loop.time() > self._ends_at:
            self._capacity = max(1, self._started)
        return self._started >= self._capacity

    def _start_next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._adapt_capacity(loop)
        if not self._waiting:
            self._ends_at = None
            self._precedence.end()
            return
        self._started, self._ends_at = 0, loop.time() + self._seconds
        while self._waiting and self._started < self._capacity:
            waiter = self._waiting.popleft()
            if not waiter.done():  # a stream that has ended has cancelled it
                waiter.set_result(None)
                self._started += 1
        loop.call_soon(self._start_next, loop)  # behind the streams that go on now

    def _adapt_capacity(self, loop: asyncio.AbstractEventLoop) -> None:
        """Learn from the round that is over how many streams fit into one."""
        seconds_left = 0.0 if self._ends_at is None else self._ends_at - loop.time()
        if seconds_left < 0:
            self._capacity = max(1, min(self._capacity, self._started) // 2)
        elif seconds_left > self._seconds / 2:
            self._capacity = min(self._most, self._capacity * 2)

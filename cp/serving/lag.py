"""How late the event loop is: while a callback keeps it, no request of a proxy is read and no response is sent.

Where other programs have the processors it is late through no fault of its callbacks. So it is also measured how much
of a lag they can account for: no more than the processor time that the loop's thread has had since the last look.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import thread_time
from typing import Final

from cp.metrics import Metrics

_EVERY: Final = 0.02
_REMEMBERED: Final = 60.0


class Lag:
    """Measures how late the loop wakes up, and remembers the worst of the last minute."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        # When each lag was measured, and the lag. A lag drops out when a later one is at least as large, so lags fall
        # from the first to the last, and the first is the worst.
        self._worst: deque[tuple[float, float]] = deque()
        metrics.register(
            "event_loop_lag_max_seconds",
            "The latest that the event loop woke up in the last minute",
            lambda: self.worst,
        )

    @property
    def worst(self) -> float:
        return self._worst[0][1] if self._worst else 0.0

    async def watch(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        due: list[asyncio.TimerHandle] = []

        def look_at(planned: float) -> None:
            due[:] = [loop.call_at(planned, look, planned, thread_time())]

        def look(planned: float, spent_before: float) -> None:
            now = loop.time()
            self.note(now, now - planned)
            self._metrics.own_lag.observe(min(now - planned, thread_time() - spent_before))
            look_at(now + _EVERY)

        look_at(loop.time() + _EVERY)
        try:
            await loop.create_future()
        finally:
            due.pop().cancel()

    def note(self, now: float, lag: float) -> None:
        self._metrics.lag.observe(lag)
        while self._worst and self._worst[-1][1] <= lag:
            self._worst.pop()
        self._worst.append((now, lag))
        while self._worst[0][0] < now - _REMEMBERED:
            self._worst.popleft()

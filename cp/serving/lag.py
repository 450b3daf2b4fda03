"""How late the event loop is: while something else has it, no proxy is heard and none is told anything."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from cp.metrics import Metrics

_EVERY: Final = 0.02
_REMEMBERED: Final = 60.0


class Lag:
    """Looks often whether the loop is on time, and remembers the worst of the last minute."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._worst: deque[tuple[float, float]] = (
            deque()
        )  # of falling lags, when they were seen: the first is the worst
        metrics.asked(
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
            due[:] = [loop.call_at(planned, look, planned)]

        def look(planned: float) -> None:
            now = loop.time()
            self.seen(now, now - planned)
            look_at(now + _EVERY)

        look_at(loop.time() + _EVERY)
        try:
            await loop.create_future()
        finally:
            due.pop().cancel()

    def seen(self, now: float, lag: float) -> None:
        self._metrics.lag.observe(lag)
        while self._worst and self._worst[-1][1] <= lag:
            self._worst.pop()
        self._worst.append((now, lag))
        while self._worst[0][0] < now - _REMEMBERED:
            self._worst.popleft()

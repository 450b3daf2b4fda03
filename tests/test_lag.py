"""How late the event loop is."""

from __future__ import annotations

import asyncio
import time

from cp.metrics import Metrics
from cp.serving.lag import Lag


def test_the_worst_of_the_last_minute_is_remembered_and_no_older_one() -> None:
    lag = Lag(Metrics())
    for now, late in ((0, 0.2), (1, 0.5), (30, 0.1), (50, 0.3)):
        lag.note(now, late)
    assert lag.worst == 0.5

    lag.note(62, 0.01)
    assert lag.worst == 0.3

    lag.note(200, 0.01)
    assert lag.worst == 0.01


def test_a_loop_that_is_kept_busy_is_noticed() -> None:
    async def busy() -> float:
        lag = Lag(Metrics())
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(lag.watch())
            await asyncio.sleep(0)
            time.sleep(0.2)  # noqa: ASYNC251  keeping the loop busy is the point
            while lag.worst == 0:  # noqa: ASYNC110  who watches tells nobody
                await asyncio.sleep(0)
            watching.cancel()
        return lag.worst

    assert asyncio.run(busy()) > 0.1

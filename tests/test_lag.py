"""How late the event loop is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

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


def test_lag_is_counted_up_to_each_bound() -> None:
    metrics = Metrics()
    lines = [line for line in metrics.text().decode().splitlines() if "event_loop_lag_seconds_bucket" in line]

    bounds = [line.partition('le="')[2].partition('"')[0] for line in lines]
    assert bounds[:7] == ["0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1"]
    assert bounds[7:] == ["0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "+Inf"]


def test_a_loop_that_is_kept_busy_is_noticed() -> None:
    lag, own_lag = measured(work)

    assert lag > 0.1
    assert own_lag > 0.1


def test_what_others_take_is_no_lag_of_its_own() -> None:
    lag, own_lag = measured(partial(time.sleep, 0.2))  # as long as another program has the processor

    assert lag > 0.1
    assert own_lag < 0.1


def work() -> None:
    """As long as it takes to have had 0.2 s of processor time."""
    began = time.thread_time()
    while time.thread_time() - began < 0.2:
        pass


def measured(callback: Callable[[], None]) -> tuple[float, float]:
    """How late one callback makes the loop, and how much of that is its own."""
    metrics = Metrics()

    async def busy() -> float:
        lag = Lag(metrics)
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(lag.watch())
            await asyncio.sleep(0)
            callback()
            while lag.worst == 0:  # noqa: ASYNC110  who watches tells nobody
                await asyncio.sleep(0)
            watching.cancel()
        return lag.worst

    worst = asyncio.run(busy())
    own_lag = metrics.registry.get_sample_value("koguma_event_loop_own_lag_seconds_sum")
    assert own_lag is not None
    return worst, own_lag

"""So many at once and no more, whoever keeps the others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from cp.ads.large_messages import LargeMessageSlots

WITHIN = 10


class Crowd:
    """Those who want a turn: how many had one at the same time."""

    def __init__(self, slots: LargeMessageSlots) -> None:
        self._slots = slots
        self.now = self.most = 0

    async def take(self, during: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        async with self._slots.slot():
            self.now += 1
            self.most = max(self.most, self.now)
            await during()
            self.now -= 1


async def a_moment() -> None:
    await asyncio.sleep(0)


def test_no_more_have_a_turn_at_once_than_there_are() -> None:
    async def most() -> int:
        crowd = Crowd(LargeMessageSlots(at_once=2, patience=WITHIN))
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as tasks:
            for _ in range(10):
                tasks.create_task(crowd.take(a_moment))
        return crowd.most

    assert asyncio.run(most()) == 2


def test_who_takes_too_long_keeps_nobody_waiting_for_longer() -> None:
    async def others() -> None:
        slots, done = LargeMessageSlots(at_once=1, patience=0.01), asyncio.Event()
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as tasks:
            tasks.create_task(Crowd(slots).take(done.wait))
            await asyncio.sleep(0)
            await Crowd(slots).take(a_moment)
            done.set()

    asyncio.run(others())


def test_a_turn_that_was_taken_away_is_not_given_back_as_well() -> None:
    async def most() -> int:
        slots, done = LargeMessageSlots(at_once=1, patience=0.01), asyncio.Event()
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as tasks:
            tasks.create_task(Crowd(slots).take(done.wait))
            await asyncio.sleep(0)
            await Crowd(slots).take(a_moment)
            done.set()
        crowd = Crowd(slots)
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(crowd.take(a_moment))
        return crowd.most

    assert asyncio.run(most()) == 1

"""However many streams have something to do, others get the event loop in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from cp.ads.rounds import LoopRounds

STREAMS = 50
MOST = 16


class SlowLoop(asyncio.SelectorEventLoop):
    """Its clock stands still, but for what streams do: they take so long each."""

    now = 0.0
    rounds = 0
    takes = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        self.rounds += 1
        super()._run_once()  # type: ignore[misc]


Scene = Callable[[SlowLoop, LoopRounds], Coroutine[Any, Any, None]]


def play(scene: Scene) -> None:
    with asyncio.Runner(loop_factory=SlowLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SlowLoop)
        runner.run(scene(loop, LoopRounds(10.0, MOST)))


async def began(loop: SlowLoop, rounds: LoopRounds, streams: int) -> list[tuple[int, int]]:
    """In which round of the loop each stream began, in the order in which they did."""
    found: list[tuple[int, int]] = []

    async def stream(which: int) -> None:
        await rounds.turn()
        found.append((loop.rounds, which))
        loop.now += loop.takes

    await asyncio.gather(*(stream(which) for which in range(streams)))
    return found


async def sizes(loop: SlowLoop, rounds: LoopRounds, streams: int) -> list[int]:
    return [*Counter(number for number, _ in await began(loop, rounds, streams)).values()]


def test_no_more_begin_in_a_round_than_is_good() -> None:
    async def scene(loop: SlowLoop, rounds: LoopRounds) -> None:
        assert await sizes(loop, rounds, STREAMS) == [16, 16, 16, 2]

    play(scene)


def test_none_begin_any_more_in_a_round_whose_time_is_used_up() -> None:
    async def scene(loop: SlowLoop, rounds: LoopRounds) -> None:
        loop.takes = 3
        assert max(await sizes(loop, rounds, STREAMS)) * loop.takes < 10.0 + loop.takes

    play(scene)


def test_one_begins_in_each_round_however_long_it_takes() -> None:
    async def scene(loop: SlowLoop, rounds: LoopRounds) -> None:
        loop.takes = 100
        assert await sizes(loop, rounds, 5) == [1] * 5

    play(scene)


def test_rounds_get_larger_again() -> None:
    async def scene(loop: SlowLoop, rounds: LoopRounds) -> None:
        loop.takes = 100
        await began(loop, rounds, 5)
        loop.takes = 0
        assert await sizes(loop, rounds, STREAMS) == [1, 2, 4, 8, 16, 16, 3]

    play(scene)


def test_rounds_that_take_most_of_their_time_get_no_larger() -> None:
    async def scene(loop: SlowLoop, rounds: LoopRounds) -> None:
        loop.takes = 100
        await began(loop, rounds, 5)
        loop.takes = 6
        assert await sizes(loop, rounds, 5) == [1] * 5

    play(scene)


def test_they_go_on_in_the_order_in_which_they_came() -> None:
    async def scene(loop: SlowLoop, rounds: LoopRounds) -> None:
        loop.takes = 1
        assert [which for _, which in await began(loop, rounds, STREAMS)] == list(range(STREAMS))

    play(scene)


def test_whoever_ends_while_it_waits_is_left_out() -> None:
    async def scene(loop: SlowLoop, rounds: LoopRounds) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(rounds.turn()) for _ in range(STREAMS)]
            await asyncio.sleep(0)
            for task in tasks[MOST + 2 : -2]:
                task.cancel()

        assert sum(task.cancelled() for task in tasks) == STREAMS - MOST - 4
        assert len(await began(loop, rounds, STREAMS)) == STREAMS

    play(scene)

"""However many streams have something to do, others get the event loop in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from cp.ads.rounds import Rounds

STREAMS = 50
MOST = 8


def play(scene: Callable[[Rounds], Awaitable[None]]) -> None:
    async def played() -> None:
        async with asyncio.timeout(10):
            await scene(Rounds(MOST))

    asyncio.run(played())


async def began(rounds: Rounds, streams: int) -> list[tuple[int, int]]:
    """In which round of the loop each stream began, in the order in which they did."""
    found: list[tuple[int, int]] = []
    loop, number = asyncio.get_running_loop(), 0

    def count() -> None:
        nonlocal number
        number += 1
        if len(found) < streams:
            loop.call_soon(count)

    async def stream(which: int) -> None:
        await rounds.turn()
        found.append((number, which))

    loop.call_soon(count)
    await asyncio.gather(*(stream(which) for which in range(streams)))
    return found


def test_in_each_round_of_the_loop_so_many_begin_something_and_no_more() -> None:
    async def scene(rounds: Rounds) -> None:
        found = await began(rounds, STREAMS)

        assert max(Counter(number for number, _ in found).values()) == MOST
        assert len({number for number, _ in found}) == -(-STREAMS // MOST)

    play(scene)


def test_they_go_on_in_the_order_in_which_they_came() -> None:
    async def scene(rounds: Rounds) -> None:
        assert [which for _, which in await began(rounds, STREAMS)] == list(range(STREAMS))

    play(scene)


def test_few_streams_wait_for_nothing() -> None:
    async def scene(rounds: Rounds) -> None:
        for _ in range(3):
            assert len({number for number, _ in await began(rounds, MOST)}) == 1
            await asyncio.sleep(0.01)
        assert not rounds._goes_on

    play(scene)


def test_whoever_ends_while_it_waits_is_left_out() -> None:
    async def scene(rounds: Rounds) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(rounds.turn()) for _ in range(STREAMS)]
            await asyncio.sleep(0)
            for task in tasks[MOST : 3 * MOST]:
                task.cancel()

        assert sum(task.cancelled() for task in tasks) == 2 * MOST
        assert len(await began(rounds, STREAMS)) == STREAMS

    play(scene)

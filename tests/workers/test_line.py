"""What two processes of a control plane say to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from socket import socketpair
from typing import Any

import pytest

from cp.serving.workers.link import LinkClosed, LinkTimeout, ProcessLink

WITHIN = 10


class Unfit(Exception):
    """What cannot be made again from its arguments."""

    def __init__(self, one: str, other: Callable[[], None]) -> None:
        super().__init__(one)
        self.other = other


async def answer(what: str, about: tuple[Any, ...]) -> Any:
    if what == "sum":
        return sum(about)
    if what == "wait":
        await asyncio.Event().wait()
    if what == "unfit":
        raise Unfit("x", lambda: None)
    if what == "time":
        raise TimeoutError("the disk")
    raise LookupError(what)


def talk(test: Callable[[ProcessLink, asyncio.Task[None]], Awaitable[None]]) -> None:
    """One end asks, the other answers."""

    async def both() -> None:
        asking, answering = socketpair()
        ours, theirs = await ProcessLink.over(asking, answer), await ProcessLink.over(answering, answer)
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as group:
            listening = [group.create_task(line.listen()) for line in (ours, theirs)]
            await test(ours, listening[1])
            for task in listening:
                task.cancel()

    asyncio.run(both())


def test_a_question_is_answered_while_others_wait_for_their_answers() -> None:
    async def test(line: ProcessLink, _: asyncio.Task[None]) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(line.ask("wait"))
            await asyncio.sleep(0)
            assert await asyncio.gather(*(line.ask("sum", n, 1) for n in range(3))) == [1, 2, 3]
            waiting.cancel()

    talk(test)


def test_what_went_wrong_there_is_raised_here() -> None:
    async def test(line: ProcessLink, _: asyncio.Task[None]) -> None:
        with pytest.raises(LookupError, match="nothing"):
            await line.ask("nothing")
        with pytest.raises(RuntimeError, match="Unfit"):
            await line.ask("unfit")

    talk(test)


def test_an_answer_that_something_took_too_long_is_no_silence() -> None:
    async def test(line: ProcessLink, _: asyncio.Task[None]) -> None:
        with pytest.raises(TimeoutError, match="the disk"):
            await line.ask("time", within=WITHIN)
        with pytest.raises(LinkTimeout):
            await line.ask("wait", within=0.01)

    talk(test)


def test_who_waits_for_an_answer_learns_that_nobody_is_there_any_more() -> None:
    async def test(line: ProcessLink, other_end: asyncio.Task[None]) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_hung_up(line))
            await asyncio.sleep(0)
            other_end.cancel()
            await waiting
        await _hung_up(line)

    talk(test)


async def _hung_up(line: ProcessLink) -> None:
    with pytest.raises(LinkClosed):
        await line.ask("wait")

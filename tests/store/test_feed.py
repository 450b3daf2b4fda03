"""Followers wait without asking again and again, and sleep over nothing."""

from __future__ import annotations

import asyncio

import pytest

from cp.store.feed import RevisionSignal, follow, tell
from cp.store.port import ChangeBatch, Closed
from tests.store.harness import run


class Log:
    """Revisions that can be read, with a count of the readings."""

    def __init__(self) -> None:
        self.newest = 0
        self.readings = 0

    async def after(self, since: int) -> ChangeBatch | None:
        self.readings += 1
        return ChangeBatch(self.newest, ()) if self.newest > since else None


async def rest() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_who_waits_reads_once_for_each_edition() -> None:
    async def scenario() -> None:
        news, log = RevisionSignal(), Log()
        seen: list[int] = []

        async def listen() -> None:
            seen.extend([batch.revision async for batch in follow(news, 0, log.after)])

        async with asyncio.TaskGroup() as running:
            running.create_task(listen())
            await rest()
            assert log.readings == 1
            log.newest = 1
            await rest()
            assert log.readings == 1
            news.publish()
            await rest()
            assert log.readings == 2
            news.publish()
            await rest()
            assert log.readings == 3
            news.close()
        assert seen == [1]

    run(scenario())


def test_what_is_published_while_one_reads_is_not_slept_over() -> None:
    async def scenario() -> None:
        news, log = RevisionSignal(), Log()

        async def after(since: int) -> ChangeBatch | None:
            batch = await log.after(since)
            if log.readings == 1:  # written after it was looked for, published before anyone waits
                log.newest = 1
                news.publish()
            return batch

        assert (await anext(follow(news, 0, after))).revision == 1

    run(scenario())


def test_what_is_written_while_one_is_given_something_is_not_slept_over() -> None:
    async def scenario() -> None:
        news, log = RevisionSignal(), Log()
        log.newest = 1
        following = follow(news, 0, log.after)
        assert (await anext(following)).revision == 1
        log.newest = 2
        news.publish()
        assert (await anext(following)).revision == 2

    run(scenario())


def test_all_who_wait_are_told_of_a_failure() -> None:
    async def scenario() -> None:
        news, log = RevisionSignal(), Log()
        waiting = asyncio.gather(*(anext(follow(news, 0, log.after)) for _ in range(3)), return_exceptions=True)
        await rest()
        failure = OSError("the disk is gone")
        news.fail(failure)

        assert await waiting == [failure] * 3
        with pytest.raises(OSError, match="the disk is gone"):
            await anext(follow(news, 0, log.after))

    run(scenario())


def test_a_store_that_closes_while_it_is_read_ends_the_follower() -> None:
    async def after(since: int) -> ChangeBatch | None:
        raise Closed

    async def scenario() -> list[ChangeBatch]:
        return [batch async for batch in follow(RevisionSignal(), 0, after)]

    assert run(scenario()) == []


def test_telling_a_loop_that_is_gone_is_no_error() -> None:
    loop = asyncio.new_event_loop()
    loop.close()

    tell(loop, pytest.fail, "called")

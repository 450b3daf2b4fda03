"""Writes that wait while another is being committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from cp.store.port import UNKNOWN, Author, Closed, StoreUnreachable, Unusable, WriteUncertain
from cp.store.postgres import writing
from cp.store.postgres.writing import QueuedWrite, WriteQueue, WriteResult
from tests.store.harness import put, run


class SlowDatabase:
    """Commits when it is told to, and notes what it was given together."""

    def __init__(self, most: int = 64) -> None:
        self.together: list[list[str]] = []
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.queue = WriteQueue(self.commit, most)

    async def commit(self, together: Sequence[QueuedWrite]) -> Sequence[WriteResult]:
        self.together.append([write.key.name for queued in together for write in queued.writes])
        self.begun.set()
        await self.go_on.wait()
        if "unusable" in self.together[-1]:
            raise Unusable("it took too long")
        if "bad" in self.together[-1]:
            raise OSError("no disk")
        if "far" in self.together[-1]:
            raise StoreUnreachable("no way")
        return range(len(together))

    async def write(self, name: str, within: float = 60, author: Author = UNKNOWN, value: object = 0) -> int:
        return await self.queue.write([put(name, value)], author, within)


@asynccontextmanager
async def running(most: int = 64) -> AsyncIterator[tuple[SlowDatabase, asyncio.TaskGroup]]:
    """A database in the middle of a first commit."""
    database = SlowDatabase(most)
    async with asyncio.TaskGroup() as group:
        queue = group.create_task(database.queue.run())
        first = group.create_task(database.write("first"))
        await database.begun.wait()
        yield database, group
        database.go_on.set()
        await first
        queue.cancel()


def test_what_comes_meanwhile_goes_together_in_its_order() -> None:
    async def scenario() -> None:
        async with running() as (database, group):
            waiting = [group.create_task(database.write(name)) for name in "abc"]
            await asyncio.sleep(0)
            database.go_on.set()
            assert await asyncio.gather(*waiting) == [0, 1, 2]
        assert database.together == [["first"], ["a", "b", "c"]]

    run(scenario())


def test_no_more_go_together_than_may() -> None:
    async def scenario() -> None:
        async with running(most=2) as (database, group):
            waiting = [group.create_task(database.write(name)) for name in "abc"]
            await asyncio.sleep(0)
            database.go_on.set()
            await asyncio.gather(*waiting)
        assert database.together == [["first"], ["a", "b"], ["c"]]

    run(scenario())


def test_a_small_write_goes_with_the_first_large_one_of_somebody_else() -> None:
    large, heavy = "x" * 3_000_000, Author("heavy")

    async def scenario() -> None:
        async with running() as (database, group):
            waiting = [group.create_task(database.write(name, author=heavy, value=large)) for name in "abc"]
            waiting.append(group.create_task(database.write("d", author=heavy)))
            waiting.append(group.create_task(database.write("small", author=Author("light"))))
            await asyncio.sleep(0)
            database.go_on.set()
            await asyncio.gather(*waiting)
        assert database.together == [["first"], ["a", "small"], ["b"], ["c", "d"]]

    run(scenario())


def test_where_one_cannot_be_made_the_others_are_made_without_it() -> None:
    async def scenario() -> None:
        async with running() as (database, _):
            waiting = asyncio.gather(*map(database.write, ("a", "unusable", "b")), return_exceptions=True)
            await asyncio.sleep(0)
            database.go_on.set()
            assert [str(answer) for answer in await waiting] == ["0", "it took too long", "0"]
        assert database.together == [["first"], ["a", "unusable", "b"], ["a"], ["unusable"], ["b"]]

    run(scenario())


def test_what_is_given_up_before_its_turn_is_not_made() -> None:
    async def scenario() -> None:
        async with running() as (database, group):
            given_up, other = group.create_task(database.write("a")), group.create_task(database.write("b"))
            await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(TimeoutError):
                await database.write("c", within=0)
            database.go_on.set()
            await other
        assert database.together == [["first"], ["b"]]

    run(scenario())


def test_a_failure_is_told_to_all_who_went_together_and_to_no_other() -> None:
    async def scenario() -> None:
        async with running(most=2) as (database, _):
            waiting = asyncio.gather(*map(database.write, ("bad", "a", "b")), return_exceptions=True)
            await asyncio.sleep(0)
            database.go_on.set()
            assert [str(answer) for answer in await waiting] == ["no disk", "no disk", "0"]

    run(scenario())


def test_nobody_is_committed_for_where_all_have_given_up() -> None:
    async def scenario() -> None:
        async with running() as (database, group):
            given_up = group.create_task(database.write("a"))
            await asyncio.sleep(0)
            given_up.cancel()
            database.go_on.set()
            await asyncio.wait([given_up])
        assert database.together == [["first"]]

    run(scenario())


def test_a_failure_is_told_to_each_by_himself() -> None:
    """One that is raised twice would tell each of the way of the other."""

    async def scenario() -> None:
        async with running() as (database, _):
            waiting = asyncio.gather(*map(database.write, ("far", "a")), return_exceptions=True)
            await asyncio.sleep(0)
            database.go_on.set()
            one, other = await waiting
            assert (type(one), str(one)) == (type(other), str(other)) == (StoreUnreachable, "no way")
            assert one is not other

    run(scenario())


def test_at_the_end_those_who_wait_are_told_so_and_what_is_being_committed_is_told_to_be_uncertain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "GRACE", 0)

    async def scenario() -> None:
        database = SlowDatabase()
        queue = asyncio.gather(database.queue.run(), return_exceptions=True)
        first = asyncio.gather(database.write("a"), return_exceptions=True)
        await database.begun.wait()
        waiting = asyncio.gather(database.write("b"), return_exceptions=True)
        await asyncio.sleep(0)
        queue.cancel()
        assert [type(answer) for answer in (*await first, *await waiting)] == [WriteUncertain, Closed]
        with pytest.raises(Closed):
            await database.write("c")

    run(scenario())


def test_what_is_committed_soon_after_the_end_is_told_so() -> None:
    async def scenario() -> None:
        database = SlowDatabase()
        queue = asyncio.gather(database.queue.run(), return_exceptions=True)
        first = asyncio.gather(database.write("a"))
        await database.begun.wait()
        queue.cancel()
        await asyncio.sleep(0)
        database.go_on.set()
        assert (await first)[0] == 0

    run(scenario())

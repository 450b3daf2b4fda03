"""Several callers that ask the same wait for one evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cp.api.shared_progress import SharedProgress
from tests.support.waiting import eventually_on_loop


class Evaluations:
    """Evaluations that yield two results, the second one once they may."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.go_on = asyncio.Event()

    async def __call__(self) -> AsyncIterator[str]:
        self.begun += 1
        try:
            yield "first"
            await self.go_on.wait()
            yield "second"
        finally:
            self.ended += 1


async def collected(shared: SharedProgress[str], question: str, evaluations: Evaluations) -> list[str]:
    return [result async for result in shared.results(question, evaluations)]


def test_equal_questions_share_one_evaluation() -> None:
    async def scenario() -> None:
        shared, evaluations = SharedProgress[str](), Evaluations()
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(collected(shared, "same", evaluations)) for _ in range(200)]
            readers.append(group.create_task(collected(shared, "other", evaluations)))
            await eventually_on_loop(lambda: evaluations.begun == 2)
            evaluations.go_on.set()
        assert {tuple(reader.result()) for reader in readers} == {("first", "second")}
        assert (evaluations.begun, evaluations.ended, shared._evaluations) == (2, 2, {})

    asyncio.run(scenario())


def test_an_evaluation_ends_with_its_last_reader() -> None:
    async def scenario() -> None:
        shared, evaluations = SharedProgress[str](), Evaluations()
        readers = [asyncio.get_running_loop().create_task(collected(shared, "same", evaluations)) for _ in range(3)]
        await eventually_on_loop(lambda: evaluations.begun == 1)
        for ended, reader in enumerate(readers):
            assert (evaluations.ended, len(shared._evaluations)) == (0, 1), ended
            reader.cancel()
            await asyncio.wait([reader])
        await eventually_on_loop(lambda: evaluations.ended == 1)
        assert not shared._evaluations

    asyncio.run(scenario())


def test_an_old_evaluation_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        shared, evaluations = SharedProgress[str](), Evaluations()
        evaluations.go_on.set()
        monkeypatch.setattr("cp.api.shared_progress._JOINED_WITHIN", -1.0)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(collected(shared, "same", evaluations))
        assert (evaluations.begun, evaluations.ended, shared._evaluations) == (3, 3, {})

    asyncio.run(scenario())


def test_a_fault_reaches_every_reader() -> None:
    async def broken() -> AsyncIterator[str]:
        yield "first"
        raise ValueError("broken")

    async def scenario() -> None:
        shared = SharedProgress[str]()
        results = [shared.results("same", broken) for _ in range(2)]
        assert [await anext(result) for result in results] == ["first", "first"]
        for result in results:
            with pytest.raises(ValueError, match="broken"):
                await anext(result)

    asyncio.run(scenario())

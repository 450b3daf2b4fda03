"""A worker that hangs is told as such, and ended, so that its proxies come to another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from socket import socketpair
from typing import Any, cast

import pytest
import structlog

from cp.serving.delivery import ChangeProgress
from cp.serving.workers import crew as crew_module
from cp.serving.workers.crew import Crew, SilentWorkers, WorkerProcess
from cp.serving.workers.link import ALIVE, ProcessLink
from cp.serving.workers.observers import CombinedObserver
from cp.settings import Settings

WITHIN = 20


class Process:
    """A process of which only its end matters."""

    def __init__(self) -> None:
        self.pid = 1
        self.killed = asyncio.Event()

    def kill(self) -> None:
        self.killed.set()


async def answering(what: str, _about: tuple[Any, ...]) -> Any:
    if what == ALIVE:
        return None
    return ChangeProgress(7, proxies=1, have=1, is_done=True)


async def hung(line: ProcessLink) -> None:
    """The end of a line at which nobody listens."""
    try:
        await asyncio.Event().wait()
    finally:
        line._writer.close()


async def worker(number: int, group: asyncio.TaskGroup, *, hangs: bool) -> tuple[WorkerProcess, Process]:
    """A worker with its line; at the other end somebody answers, unless it hangs."""
    ours, theirs = socketpair()
    line, other = await ProcessLink.over(ours, answering), await ProcessLink.over(theirs, answering)
    process = Process()
    group.create_task(line.listen())
    group.create_task(hung(other) if hangs else other.listen())
    return WorkerProcess(number, cast("asyncio.subprocess.Process", process), line), process


def crew_of(workers: Iterable[WorkerProcess]) -> Crew:
    made = Crew(Settings(), 1, silence=0.1)
    made._workers = {one.number: one for one in workers}
    return made


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "_ANSWERS", 0.1)
    monkeypatch.setattr(crew_module, "_LOOKS_EVERY", 0.01)


def play(scene: Callable[[asyncio.TaskGroup], Coroutine[Any, Any, None]]) -> None:
    async def played() -> None:
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as group:
            scenes = group.create_task(scene(group))
            await scenes
            for task in asyncio.all_tasks() - {asyncio.current_task(), scenes}:
                task.cancel()

    asyncio.run(played())


def test_whoever_asks_is_told_that_a_worker_does_not_answer() -> None:
    async def scene(group: asyncio.TaskGroup) -> None:
        well, hanging = await worker(1, group, hangs=False), await worker(2, group, hangs=True)
        crew = crew_of([well[0], hanging[0]])

        with pytest.raises(SilentWorkers, match="worker 2 does not answer") as silent:
            await crew.ask("so_far")

        assert list(silent.value.answers) == [1]

    play(scene)


def test_what_proxies_of_a_hanging_worker_have_is_not_taken_for_granted() -> None:
    async def scene(group: asyncio.TaskGroup) -> None:
        well, hanging = await worker(1, group, hangs=False), await worker(2, group, hangs=True)
        observers = CombinedObserver(crew_of([well[0], hanging[0]]))

        said = [progress async for progress in observers.progress([7], [], 0.2)]

        assert said[-1].waiting == ("all of worker 2",)

    play(scene)


def test_a_worker_that_hangs_is_ended_and_no_longer_counts() -> None:
    async def scene(group: asyncio.TaskGroup) -> None:
        hanging, process = await worker(1, group, hangs=True)
        crew = crew_of([hanging])
        assert crew.is_ready
        with structlog.testing.capture_logs() as logs:
            await crew._watch(hanging)

        assert process.killed.is_set()
        assert not crew.is_ready
        assert [entry["event"] for entry in logs] == ["worker.silent"]

    play(scene)


def test_a_worker_that_answers_is_left_alone() -> None:
    async def scene(group: asyncio.TaskGroup) -> None:
        well, process = await worker(1, group, hangs=False)
        crew = crew_of([well])
        with suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await crew._watch(well)

        assert not process.killed.is_set()
        assert crew.is_ready

    play(scene)

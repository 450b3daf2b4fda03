"""A worker that hangs is told as such, and ended, so that its proxies come to another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from socket import AF_INET, SO_REUSEADDR, SO_REUSEPORT, SOL_SOCKET, create_connection, socket, socketpair
from typing import Any, cast

import pytest
import structlog

from cp.listening import CannotListen
from cp.serving.delivery import ChangeProgress, OwnRevision
from cp.serving.workers import crew as crew_module
from cp.serving.workers.crew import Crew, SilentWorkers, WorkerProcess, reserved
from cp.serving.workers.link import BrokenFrame, ProcessLink
from cp.serving.workers.messages import to_message
from cp.serving.workers.observers import CombinedObserver
from cp.settings import Settings
from koguma.v1 import workers_pb2 as pb
from tests.support.waiting import eventually_on_loop

WITHIN = 20


class Process:
    """A process of which only its end matters."""

    def __init__(self) -> None:
        self.pid = 1
        self.killed = asyncio.Event()

    def kill(self) -> None:
        self.killed.set()


FINAL_PROGRESS = pb.Request(final_progress=pb.ChangeScope())


async def answering(request: pb.Request) -> pb.Answer:
    if request.HasField("alive"):
        return pb.Answer(alive=pb.Nothing())
    return pb.Answer(final_progress=to_message(ChangeProgress(7, proxies=1, have=1, is_done=True)))


async def hung(link: ProcessLink) -> None:
    """The end of a link at which nobody listens."""
    try:
        await asyncio.Event().wait()
    finally:
        link._writer.close()


async def worker(number: int, group: asyncio.TaskGroup, *, hangs: bool) -> tuple[WorkerProcess, Process]:
    """A worker with its link; at the other end somebody answers, unless it hangs."""
    front_end, worker_end = socketpair()
    front_link = await ProcessLink.connect(front_end, answering)
    worker_link = await ProcessLink.connect(worker_end, answering)
    process = Process()
    group.create_task(front_link.listen())
    group.create_task(hung(worker_link) if hangs else worker_link.listen())
    return WorkerProcess(number, cast("asyncio.subprocess.Process", process), front_link), process


def crew_of(workers: Iterable[WorkerProcess], on_loss: Callable[[], None] = lambda: None) -> Crew:
    crew = Crew(Settings(), 1, silence=0.1, on_loss=on_loss)
    crew._workers = {process.number: process for process in workers}
    return crew


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "_ANSWERS_WITHIN", 0.1)
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
            await crew.ask(FINAL_PROGRESS)

        assert list(silent.value.answers) == [1]

    play(scene)


def test_what_proxies_of_a_hanging_worker_have_is_not_taken_for_granted() -> None:
    async def scene(group: asyncio.TaskGroup) -> None:
        well, hanging = await worker(1, group, hangs=False), await worker(2, group, hangs=True)
        observers = CombinedObserver(crew_of([well[0], hanging[0]]), lambda: OwnRevision(7, lambda _: None))

        steps = [progress async for progress in observers.progress([7], [], 0.2)]

        assert steps[-1].waiting == ("all of worker 2",)

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


@pytest.mark.parametrize("hangs", [True, False])
def test_crew_reports_each_lost_worker_once(hangs: bool) -> None:
    """Its proxies are expected back from the first answer that leaves them out."""

    async def scene(group: asyncio.TaskGroup) -> None:
        losses: list[bool] = []

        def note_loss() -> None:
            losses.append(hangs)

        lost, _ = await worker(1, group, hangs=hangs)
        crew = crew_of([lost], note_loss)
        if hangs:
            await crew._watch(lost)
        else:
            lost.link._writer.close()
            await eventually_on_loop(lost.link._writer.is_closing)
            with suppress(SilentWorkers):
                await crew.ask(FINAL_PROGRESS)
        assert await crew.ask(FINAL_PROGRESS) == {}
        crew._lose(lost)

        assert losses == [hangs]

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


def test_a_worker_whose_link_breaks_is_told_of_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(_: asyncio.TaskGroup) -> None:
        crew, is_ready, replaced = crew_of([]), asyncio.Event(), asyncio.Event()
        starts: list[int] = []

        async def broken(number: int, ready: asyncio.Event) -> None:
            starts.append(number)
            ready.set()
            if len(starts) == 1:
                raise BrokenFrame("a frame that is no message")
            replaced.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(crew, "_run_process", broken)
        monkeypatch.setattr(crew_module, "_FIRST_PAUSE", 0)
        with structlog.testing.capture_logs() as logs:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(crew._keep(3, is_ready))
                await replaced.wait()
                keeping.cancel()

        assert [(entry["event"], entry["worker"]) for entry in logs] == [("worker.link_broken", 3), ("worker.died", 3)]
        assert logs[0]["reason"] == "a frame that is no message"

    play(scene)


def test_a_link_that_breaks_before_the_first_worker_is_ready_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(_: asyncio.TaskGroup) -> None:
        crew = crew_of([])

        async def broken(_: int, __: asyncio.Event) -> None:
            raise BrokenFrame("a frame that is no message")

        monkeypatch.setattr(crew, "_run_process", broken)
        with pytest.RaisesGroup(BrokenFrame):
            await crew._keep(3, asyncio.Event())

    play(scene)


def listening(port: int = 0) -> socket:
    """A socket that listens as gRPC's do, so that several processes can share the port."""
    listener = socket(AF_INET)
    listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    listener.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def test_port_is_free_after_its_connections_ended() -> None:
    with listening() as listener:
        port = listener.getsockname()[1]
        client = create_connection(("127.0.0.1", port))
        accepted, _ = listener.accept()
        accepted.close()  # this side ends first, so it keeps the address for a minute
        assert client.recv(1) == b""
        client.close()

    with reserved("127.0.0.1", port) as reserved_port:
        assert reserved_port == port


def test_port_of_another_program_is_taken() -> None:
    with listening() as listener:
        port = listener.getsockname()[1]

        with pytest.raises(CannotListen, match="cannot listen"), reserved("127.0.0.1", port):
            pass

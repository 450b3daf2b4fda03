"""`Crew`: starts the workers of a control plane, asks them, replaces those that die or hang, and ends them.

See record 0031.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SO_REUSEPORT, SOL_SOCKET, socket, socketpair
from typing import Final

import structlog

from cp.listening import bind
from cp.serving.workers.link import BrokenFrame, LinkClosed, LinkTimeout, ProcessLink
from cp.serving.workers.messages import RemoteError, settings_message
from cp.settings import Settings
from koguma.v1 import workers_pb2 as pb

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_STABLE_AFTER: Final = 30.0
"""Seconds for which a worker has to run for the pause before the next start to be short again."""

_READY_WITHIN: Final = 60.0
_ANSWERS_WITHIN: Final = 20.0

_ARE_YOU_ALIVE: Final = pb.Request(alive=pb.Nothing())
_LOOKS_EVERY: Final = 1.0
SILENCE: Final = 15.0
"""Seconds in which a worker has to answer that it is alive. Its event loop does nothing that takes nearly as long."""

_GRACE: Final = 15.0
"""Seconds in which a worker has to end, beyond the time in which it drains."""


@contextmanager
def reserved(host: str, port: int) -> Iterator[int]:
    """A port that our processes may share, bound for as long as the block lasts; any free one for 0.

    Raises `CannotListen` if another program listens on it, even one that shares the port too (record 0031): without
    SO_REUSEPORT the first bind fails in that case. Connections that ended a moment ago (TIME_WAIT) don't count.
    """
    family = AF_INET6 if ":" in host else AF_INET
    with socket(family) as alone:
        alone.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        bind(alone, host, port)
    with socket(family) as shared:
        shared.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
        bind(shared, host, port)
        yield shared.getsockname()[1]


class SilentWorkers(Exception):
    """Workers that run do not answer, so the answers of the others are incomplete."""

    def __init__(self, workers: Sequence[int], answers: Mapping[int, pb.Answer]) -> None:
        self.workers, self.answers = tuple(workers), answers
        named = ", ".join(map(str, self.workers))
        super().__init__(f"worker {named} does not answer; it is replaced if that lasts")


class WorkerFailed(Exception):
    """A worker did not get ready."""


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    number: int
    process: asyncio.subprocess.Process
    link: ProcessLink


class Crew:
    """As many workers as the settings say. One that dies is replaced; meanwhile its proxies connect to others."""

    def __init__(
        self, settings: Settings, port: int, silence: float = SILENCE, on_loss: Callable[[], None] = lambda: None
    ) -> None:
        """`silence` is for how many seconds a worker may answer nothing at all.

        `on_loss` is called when a worker has gone: nothing knows what its proxies have until they reconnect.
        """
        self._settings = settings
        self._silence, self._on_loss = silence, on_loss
        self._port = port
        self._workers: dict[int, WorkerProcess] = {}
        self._is_ending = False
        self._log = structlog.get_logger()

    @property
    def is_ready(self) -> bool:
        return len(self._workers) > 0

    async def ask(self, request: pb.Request) -> Mapping[int, pb.Answer]:
        """The answer of each worker, by its number; a worker that ended meanwhile is left out.

        Raises `SilentWorkers` if one of them does not answer in time, and `RemoteError` if one met an error.
        """
        workers = list(self._workers.values())
        pending = (worker.link.ask(request, within=_ANSWERS_WITHIN) for worker in workers)
        outcomes = await asyncio.gather(*pending, return_exceptions=True)
        answers, silent = {}, []
        for worker, outcome in zip(workers, outcomes, strict=True):
            if isinstance(outcome, LinkTimeout):
                silent.append(worker.number)
            elif isinstance(outcome, LinkClosed):
                self._lose(worker)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                answers[worker.number] = outcome
        if silent:
            raise SilentWorkers(silent, answers)
        return answers

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Every worker is ready when the block begins, and has ended when it is over."""
        async with asyncio.TaskGroup() as group:
            ready = [asyncio.Event() for _ in range(self._settings.workers)]
            keepers = [group.create_task(self._keep(number, is_ready)) for number, is_ready in enumerate(ready, 1)]
            try:
                for is_ready in ready:
                    await is_ready.wait()
                yield
            finally:
                self._is_ending = True
                for keeper in keepers:
                    keeper.cancel()

    async def _keep(self, number: int, is_ready: asyncio.Event) -> None:
        """Keep a worker of this number running. The first one has to get ready; later ones are tried again."""
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await self._run_process(number, is_ready)
            except* WorkerFailed:
                if not is_ready.is_set():
                    raise
            except* BrokenFrame as broken:
                if not is_ready.is_set():
                    raise
                self._log.error("worker.link_broken", worker=number, reason=str(broken.exceptions[0]))
            pause = _FIRST_PAUSE if time.monotonic() - began > _STABLE_AFTER else min(2 * pause, _LONGEST_PAUSE)
            self._log.error("worker.died", worker=number, replaced_after=pause)
            await asyncio.sleep(pause)

    async def _run_process(self, number: int, is_ready: asyncio.Event) -> None:
        """Start one process, and wait until it ends."""
        crew_end, worker_end = socketpair()
        with worker_end:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "cp.serving.workers.worker", str(worker_end.fileno())),
                pass_fds=(worker_end.fileno(),),
                start_new_session=True,  # a Ctrl-C in the terminal reaches this process alone, which ends the workers
            )
        try:
            link = await ProcessLink.connect(crew_end, _reject)
            worker = WorkerProcess(number, process, link)
            try:
                async with asyncio.TaskGroup() as group:
                    listening = group.create_task(link.listen())
                    await self._begin(worker, is_ready)
                    watching = group.create_task(self._watch(worker))
                    await listening
                    watching.cancel()
            finally:
                self._lose(worker)
        finally:
            await self._end(process)

    def _lose(self, worker: WorkerProcess) -> None:
        """Ask a worker no more. Called for the same one more than once, by all that notice that it has gone."""
        if self._workers.get(worker.number) is worker:
            del self._workers[worker.number]
            self._on_loss()

    async def _begin(self, worker: WorkerProcess, is_ready: asyncio.Event) -> None:
        order = pb.Serve(worker=worker.number, port=self._port, settings=settings_message(self._settings))
        try:
            await worker.link.ask(pb.Request(serve=order), within=_READY_WITHIN)
        except (LinkClosed, LinkTimeout):
            raise WorkerFailed(f"worker {worker.number} did not get ready: its log tells why") from None
        except RemoteError as error:
            raise WorkerFailed(f"worker {worker.number} cannot serve: {error.text or error.type}") from None
        self._workers[worker.number] = worker
        self._log.info("worker.ready", worker=worker.number, process=worker.process.pid)
        is_ready.set()

    async def _watch(self, worker: WorkerProcess) -> None:
        """Kill a worker that hangs: its proxies are sent nothing until they connect to another one."""
        with suppress(LinkClosed):
            while True:
                await asyncio.sleep(_LOOKS_EVERY)
                try:
                    await worker.link.ask(_ARE_YOU_ALIVE, within=self._silence)
                except LinkTimeout:
                    break
            self._log.error("worker.silent", worker=worker.number, process=worker.process.pid, seconds=self._silence)
            self._lose(worker)
            worker.process.kill()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._settings.drain + _GRACE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _reject(request: pb.Request) -> pb.Answer:
    raise LookupError(f"workers do not ask, but one asked {request.WhichOneof('question')}")

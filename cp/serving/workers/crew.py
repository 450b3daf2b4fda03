"""`Crew`: the workers of a control plane, from its side: started, watched, replaced, asked, ended.

See record 0031.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from socket import AF_INET, AF_INET6, SO_REUSEPORT, SOL_SOCKET, socket, socketpair
from typing import Any, Final

import structlog

from cp.listening import bind
from cp.serving.workers.link import ALIVE, LinkClosed, LinkTimeout, ProcessLink
from cp.settings import Settings
from cp.store.port import Unusable

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_WELL_AFTER: Final = 30.0
_PATIENCE: Final = 60.0
"""For a worker to get ready."""

_ANSWERS: Final = 20.0
"""For a worker to answer a question."""

_LOOKS_EVERY: Final = 1.0
SILENCE: Final = 15.0
"""For a worker to say that it is there. Its event loop does nothing that takes nearly as long."""

_GRACE: Final = 15.0
"""For a worker to end, beyond the time in which it drains."""


@contextmanager
def reserved(host: str, port: int) -> Iterator[int]:
    """A port that processes may share, kept for ours; any free one for 0. Raises `CannotListen`."""
    family = AF_INET6 if ":" in host else AF_INET
    with socket(family) as alone:  # who does not share finds out whether somebody else is there, sharing or not
        bind(alone, host, port)
    with socket(family) as shared:
        shared.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
        bind(shared, host, port)
        yield shared.getsockname()[1]


class SilentWorkers(Exception):
    """Workers that are there do not answer, so what they know is not known."""

    def __init__(self, workers: Sequence[int], answers: Mapping[int, Any]) -> None:
        self.workers, self.answers = tuple(workers), answers
        named = ", ".join(map(str, self.workers))
        super().__init__(f"worker {named} does not answer; it is replaced if that lasts")


class WorkerFailed(Exception):
    """A worker did not get ready."""


class WorkerProcess:
    """One process."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, line: ProcessLink) -> None:
        self.number = number
        self.process = process
        self.line = line


class Crew:
    """As many workers as wanted. One that dies is replaced; its proxies connect to another in the meantime."""

    def __init__(self, settings: Settings, port: int, silence: float = SILENCE) -> None:
        """`silence` is for how many seconds a worker may say nothing at all."""
        self._settings = settings
        self._silence = silence
        self._port = port
        self._workers: dict[int, WorkerProcess] = {}
        self._is_ending = False
        self._log = structlog.get_logger()

    @property
    def is_ready(self) -> bool:
        return len(self._workers) > 0

    async def ask(self, what: str, *about: Any) -> Mapping[int, Any]:
        """What each worker answers, by its number. Raises `SilentWorkers` if one of them does not answer in time."""
        workers = list(self._workers.values())
        asked = (worker.line.ask(what, *about, within=_ANSWERS) for worker in workers)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found, silent = {}, []
        for worker, answer in zip(workers, answers, strict=True):
            if isinstance(answer, LinkTimeout):
                silent.append(worker.number)
            elif isinstance(answer, BaseException) and not isinstance(answer, LinkClosed):
                raise answer
            elif not isinstance(answer, LinkClosed):
                found[worker.number] = answer
        if silent:
            raise SilentWorkers(silent, found)
        return found

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
        """See to it that there is a worker of this number. The first has to get ready; later ones are tried again."""
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await self._one(number, is_ready)
            except* WorkerFailed:
                if not is_ready.is_set():
                    raise
            pause = _FIRST_PAUSE if time.monotonic() - began > _WELL_AFTER else min(2 * pause, _LONGEST_PAUSE)
            self._log.error("worker.died", worker=number, replaced_after=pause)
            await asyncio.sleep(pause)

    async def _one(self, number: int, is_ready: asyncio.Event) -> None:
        """The life of one process."""
        ours, theirs = socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "cp.serving.workers.worker", str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a Ctrl-C is ours to pass on
            )
        try:
            line = await ProcessLink.over(ours, _nothing)
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(line.listen())
                worker = WorkerProcess(number, process, line)
                await self._begin(worker, is_ready)
                watching = group.create_task(self._watch(worker))
                await listening
                watching.cancel()
        finally:
            self._workers.pop(number, None)
            await self._end(process)

    async def _begin(self, worker: WorkerProcess, is_ready: asyncio.Event) -> None:
        try:
            await worker.line.ask("serve", worker.number, self._settings, self._port, within=_PATIENCE)
        except (LinkClosed, LinkTimeout):
            raise WorkerFailed(f"worker {worker.number} did not get ready: its log tells why") from None
        except (OSError, RuntimeError, ValueError, Unusable) as error:
            raise WorkerFailed(f"worker {worker.number} cannot serve: {error}") from None
        self._workers[worker.number] = worker
        self._log.info("worker.ready", worker=worker.number, process=worker.process.pid)
        is_ready.set()

    async def _watch(self, worker: WorkerProcess) -> None:
        """A worker that hangs keeps its proxies and tells them nothing: it is ended, and they come to another one."""
        with suppress(LinkClosed):
            while True:
                await asyncio.sleep(_LOOKS_EVERY)
                try:
                    await worker.line.ask(ALIVE, within=self._silence)
                except LinkTimeout:
                    break
            self._log.error("worker.silent", worker=worker.number, process=worker.process.pid, seconds=self._silence)
            self._workers.pop(worker.number, None)
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


async def _nothing(what: str, _about: tuple[Any, ...]) -> None:
    raise LookupError(f"workers do not ask, but one asked for {what}")

"""A worker: a process that serves proxies, and answers what the process that started it asks."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import structlog
from prometheus_client import disable_created_metrics

from cp import log
from cp.ads.loop import DrainLoop
from cp.serving import process
from cp.serving.serve import ProxyServing, proxies_served
from cp.serving.workers.link import ALIVE, ProcessLink
from cp.settings import Settings
from cp.store.open import open_store

OBSERVATIONS: Final = frozenset({"presences", "delivery", "complaints", "so_far", "owners", "brought"})
"""What is asked of a worker's observer, by the name of its method."""


class Worker:
    """Waits to be told how to serve, then answers what it is asked."""

    def __init__(self) -> None:
        self.orders: asyncio.Future[tuple[int, Settings, int]] = asyncio.get_running_loop().create_future()
        self.serving: asyncio.Future[ProxyServing] = asyncio.get_running_loop().create_future()

    async def answer(self, what: str, about: tuple[Any, ...]) -> Any:
        if what == "serve":
            number, settings, port = about
            self.orders.set_result((number, settings, port))
            await self.serving
            return None
        if what == ALIVE:
            return None
        serving = await self.serving
        if what == "metrics":
            return serving.metrics.text()
        if what in OBSERVATIONS:
            return await getattr(serving.observer, what)(*about)
        raise LookupError(f"no worker knows what {what} is")


async def work(end: socket.socket) -> None:
    """Until it is told to end, or nobody is there any more who would tell."""
    told_to_end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_end.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)  # what a closed terminal sends to all
    worker = Worker()
    line = await ProcessLink.over(end, worker.answer)
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(line.listen())
        listening.add_done_callback(lambda _: told_to_end.set())
        async with _serving(worker):
            await told_to_end.wait()
        listening.cancel()


@asynccontextmanager
async def _serving(worker: Worker) -> AsyncIterator[None]:
    number, settings, port = await worker.orders
    log.configure(settings.log_level, settings.log_format)
    structlog.contextvars.bind_contextvars(worker=number)
    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(open_store(settings.store, kept_bytes=settings.history_bytes))
            serving = await stack.enter_async_context(proxies_served(settings, store, port, shares_port=True))
        except Exception as error:
            worker.serving.set_exception(error)
            raise
        worker.serving.set_result(serving)
        yield


def main() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double what is served
    process.prepare()
    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        runner.run(work(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()

"""A worker: a process that serves proxies, and answers what the process that started it asks."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import structlog
from prometheus_client import disable_created_metrics

from cp import log
from cp.ads.loop import DrainLoop
from cp.serving import process
from cp.serving.forgetting import forgetting
from cp.serving.public_keys import offline_keys
from cp.serving.serve import ProxyDoor, ProxyServing, certificate_kept, proxies_served, worker_trust
from cp.serving.storage import store_of
from cp.serving.workers.answers import dated_answer_of
from cp.serving.workers.link import BrokenFrame, ProcessLink
from cp.serving.workers.messages import settings_of
from koguma.v1 import workers_pb2 as pb


class Worker:
    """Waits to be told how to serve, then answers what it is asked."""

    def __init__(self) -> None:
        self.order: asyncio.Future[pb.Serve | None] = asyncio.get_running_loop().create_future()
        """None if the link ended before there was an order."""

        self.serving: asyncio.Future[ProxyServing] = asyncio.get_running_loop().create_future()

    async def listen(self, link: ProcessLink) -> None:
        """Answer until the link ends."""
        try:
            await link.listen()
        except BrokenFrame as error:
            structlog.get_logger().error("worker.link_broken", reason=str(error))
        finally:
            if not self.order.done():
                self.order.set_result(None)

    async def answer(self, request: pb.Request) -> pb.Answer:
        match request.WhichOneof("question"):
            case "serve":
                self.order.set_result(request.serve)
                await self.serving
                return pb.Answer(serve=pb.Nothing())
            case "alive":
                return pb.Answer(alive=pb.Nothing())
            case "metrics":
                return pb.Answer(metrics=(await self.serving).metrics.text())
            case _:
                serving = await self.serving
                return await dated_answer_of(serving.observer, request, lambda: serving.reconciler.world.revision)


async def work(end: socket.socket) -> None:
    """Until it is told to end, or nobody is there any more who would tell."""
    told_to_end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_end.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)  # what a closed terminal sends to all
    worker = Worker()
    link = await ProcessLink.connect(end, worker.answer)
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(worker.listen(link))
        listening.add_done_callback(lambda _: told_to_end.set())
        if (order := await worker.order) is not None:
            async with _serving(worker, order):
                await told_to_end.wait()
        listening.cancel()


@asynccontextmanager
async def _serving(worker: Worker, order: pb.Serve) -> AsyncIterator[None]:
    structlog.contextvars.bind_contextvars(worker=order.worker)
    async with AsyncExitStack() as stack:
        try:
            settings = settings_of(order.settings)
            log.configure(settings.log_level, settings.log_format, file=settings.log_file)
            store = await stack.enter_async_context(store_of(settings))
            await stack.enter_async_context(forgetting(settings, store))  # of a folder each process has its own history
            certificate = await stack.enter_async_context(certificate_kept(settings, is_owner=False))
            door = ProxyDoor(certificate, offline_keys(settings))
            serving = await stack.enter_async_context(
                proxies_served(settings, store, order.port, door=door, shares_port=True)
            )
            await stack.enter_async_context(worker_trust(settings, store, serving))
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

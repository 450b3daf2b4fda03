"""Two thousand proxies come back at once, and every one of them is served."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from subprocess import PIPE, Popen

import grpc
import pytest

from cp.ads.hub import Hub
from cp.ads.loop import DrainLoop
from cp.ads.server import ServerOptions, serving
from cp.translate.packing import CLUSTER
from tests.ads.content import cluster, snapshot
from tests.ads.proxy import Proxy

PROXIES = 2000
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_no_stream_of_a_storm_is_cancelled() -> None:
    """The server does not get round to any of them before all are there, as when it is busy after a restart."""

    async def scene() -> str:
        hub = Hub()
        for number in range(PROXIES):
            hub.publisher.publish(f"default.p{number}", snapshot(cluster("a")))
        async with serving(hub, ServerOptions(grace=0), lambda: 0.5) as server:
            command = [sys.executable, "-m", "tests.ads.test_storm", str(server.port)]
            with Popen(command, stdout=PIPE, text=True, cwd=ROOT) as storm:  # noqa: ASYNC220  the loop has to stand still
                assert storm.stdout is not None
                assert storm.stdout.readline() == "all have called\n"
                return await asyncio.to_thread(storm.stdout.read)

    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        assert runner.run(scene()) == f"{{'served': {PROXIES}}}\n"


async def storm(port: int) -> None:
    """The other side, in a process of its own."""
    async with asyncio.TaskGroup() as tasks:
        calling = [asyncio.Event() for _ in range(PROXIES)]
        proxies = [tasks.create_task(come_back(port, number, calling[number])) for number in range(PROXIES)]
        for called in calling:
            await called.wait()
        print("all have called", flush=True)  # noqa: T201  this is how it tells the test
    print(dict(Counter(proxy.result() for proxy in proxies)), flush=True)  # noqa: T201  likewise


async def come_back(port: int, number: int, called: asyncio.Event) -> str:
    async with Proxy(port, f"default.p{number}", use_local_subchannel_pool=1) as proxy:
        try:
            await proxy.ask(CLUSTER)
            called.set()
            await proxy.hear(within=60)
        except (grpc.aio.AioRpcError, asyncio.CancelledError, AssertionError):
            called.set()
            return str((await proxy.end())[0])
    return "served"


if __name__ == "__main__":
    asyncio.run(storm(int(sys.argv[1])))

"""The floor: a server that knows nothing and sends recorded bytes, as fast as gRPC goes from Python.

python -m bench.serving.floor

A line on the input names a file with recordings, or a recording in one of these files. Each proxy, connected or not
yet, is sent the messages that were recorded for its name, in the order of the lines: each type as soon as it has
subscribed.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import grpc
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DiscoveryRequest

from cp.ads.loop import DrainLoop
from cp.ads.server import SERVICE, ServerOptions, channel_arguments
from cp.translate.packing import TYPES

_AT_ONCE = 32
_LARGE = 64 * 1024

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


@dataclass(frozen=True, slots=True)
class Message:
    type_url: str
    data: bytes


Scripts: TypeAlias = dict[str, dict[str, list[Message]]]
"""The recorded messages by scenario and proxy."""


def read(path: Path) -> Scripts:
    """The recorded messages. Equal messages are one object."""
    runs, recorded = pickle.loads(path.read_bytes())  # noqa: S301  the load wrote it
    messages: dict[tuple[bytes, tuple[int, ...]], Message] = {}

    def message(type_url: str, around: bytes, of_runs: list[int]) -> Message:
        key = (around, tuple(of_runs))
        if key not in messages:
            messages[key] = Message(type_url, b"".join((around, *(runs[number] for number in of_runs))))
        return messages[key]

    return {
        name: {proxy: [message(*arguments) for arguments in messages] for proxy, messages in script.items()}
        for name, script in recorded.items()
    }


class Floor:
    def __init__(self) -> None:
        self._scripts: Scripts = {}
        self._begun: list[str] = []
        self._news = asyncio.Event()
        self._free = asyncio.Semaphore(_AT_ONCE)

    def add(self, scripts: Scripts) -> None:
        self._scripts |= scripts

    def begin(self, name: str) -> None:
        self._begun.append(name)
        self._news.set()
        self._news = asyncio.Event()

    async def serve(self, context: Context, name: str, first: bytes) -> None:
        names_asked = Asked(first)
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(self._write(context, name, names_asked))
            await names_asked.read(context)
            writer.cancel()

    async def _write(self, context: Context, name: str, names_asked: Asked) -> None:
        done = 0
        while True:
            while done == len(self._begun):
                await self._news.wait()
            script, done = self._scripts[self._begun[done]], done + 1
            for message in script.get(name, ()):
                await names_asked.until(message.type_url)
                if len(message.data) < _LARGE:
                    await context.write(message.data)
                else:
                    async with self._free:
                        await context.write(message.data)


class Asked:
    """The types that a client has asked for."""

    def __init__(self, first: bytes) -> None:
        self._not_yet = set(TYPES)
        self._news = asyncio.Event()
        self._take(first)

    async def read(self, context: Context) -> None:
        while isinstance(data := await context.read(), bytes):
            if self._not_yet:
                self._take(data)

    async def until(self, type_url: str) -> None:
        while type_url in self._not_yet:
            self._news.clear()
            await self._news.wait()

    def _take(self, data: bytes) -> None:
        types = {type_url for type_url in self._not_yet if type_url.encode() in data}
        if types:
            self._not_yet -= types
            self._news.set()


def _server(floor: Floor) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server(options=channel_arguments(ServerOptions()))
    kinds: dict[str, Any] = {
        "StreamAggregatedResources": DiscoveryRequest,
        "DeltaAggregatedResources": DeltaDiscoveryRequest,
    }

    def handler(kind: Any) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def serve(_: object, context: Context) -> None:
            first = await context.read()
            if isinstance(first, bytes):
                await floor.serve(context, kind.FromString(first).node.id, first)

        return grpc.stream_stream_rpc_method_handler(serve)

    handlers = {name: handler(kind) for name, kind in kinds.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    return server, server.add_insecure_port("127.0.0.1:0")


async def _run() -> None:
    floor = Floor()
    server, port = _server(floor)
    await server.start()
    print(json.dumps({"port": port}), flush=True)
    while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if line.startswith("/"):
            floor.add(read(Path(line)))
        else:
            floor.begin(line)
        print("{}", flush=True)
    await server.stop(0)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        runner.run(_run())

"""gRPC's wake-up socket is emptied at each turn of the loop, and nobody else's socket is touched."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import pytest

from cp.ads.loop import DrainLoop


class PollerCompletionQueue:
    """As gRPC's own: for many bytes that were written it takes one a call, and all that there is to do.

    It is there for all loops of the process, and breaks off at an operation of one that is closed.
    """

    def __init__(self, reader: socket.socket) -> None:
        self.reader = reader
        self.calls = 0
        self.operations: deque[str] = deque()
        self.handed_over: list[str] = []

    def _handle_events(self, loop: object) -> None:
        assert self.reader.recv(1) == b"1"
        self.calls += 1
        while self.operations:
            operation = self.operations.popleft()
            if operation == "of a closed loop":
                raise RuntimeError("Event loop is closed")
            self.handed_over.append(operation)


class Reader(PollerCompletionQueue):
    """Any other that reads a socket."""


@contextmanager
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        yield reader, writer


def turns(loop: asyncio.AbstractEventLoop, count: int) -> None:
    async def turn() -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    loop.run_until_complete(turn())


def calls(kind: Callable[[socket.socket], PollerCompletionQueue], count: int, turned: int) -> int:
    """How often a reader is called in so many turns when so many bytes were written to its socket."""
    loop = DrainLoop()
    try:
        with sockets() as (reader, writer):
            queue = kind(reader)
            loop.add_reader(reader, partial(queue._handle_events, loop))
            writer.send(b"1" * count)
            turns(loop, turned)
            loop.remove_reader(reader)
            return queue.calls
    finally:
        loop.close()


@pytest.mark.parametrize("count", [1, 2, 200])
def test_however_many_bytes_wait_one_turn_takes_them(count: int) -> None:
    assert calls(PollerCompletionQueue, count, turned=20) == 1


def test_what_is_behind_an_operation_of_a_closed_loop_is_handed_over() -> None:
    loop = DrainLoop()
    loop.set_exception_handler(lambda *_: None)
    try:
        with sockets() as (reader, writer):
            queue = PollerCompletionQueue(reader)
            loop.add_reader(reader, partial(queue._handle_events, loop))
            queue.operations += ["first", "of a closed loop", "of a closed loop", "last"]
            writer.send(b"1" * len(queue.operations))
            turns(loop, 20)
            loop.remove_reader(reader)
            assert queue.handed_over == ["first", "last"]
    finally:
        loop.close()


def test_the_bytes_of_others_are_theirs() -> None:
    assert calls(Reader, 10, turned=20) == 10


def test_grpc_itself_is_recognised() -> None:
    """Should its internals get other names, this says so: then look whether the loop is still needed."""
    seen: list[tuple[Any, Any]] = []

    class Watched(DrainLoop):
        def _add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
            seen.append((fd, callback))
            return super()._add_reader(fd, callback, *args)  # type: ignore[misc]

    async def served() -> None:
        server = grpc.aio.server()
        server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await server.stop(0)

    with asyncio.Runner(loop_factory=Watched) as runner:
        runner.run(served())

    of_grpc = [callback for fd, callback in seen if isinstance(fd, socket.socket)]
    by_eventfd = [fd for fd, callback in seen if isinstance(fd, int) and isinstance(callback, partial)]
    assert [callback.__name__ for callback in of_grpc if hasattr(callback, "__name__")] == ["_drained"] or by_eventfd

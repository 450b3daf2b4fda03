"""The HTTP server: no client holds it up, and it comes back when there was no room for more."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import Any

import pytest
import structlog
from starlette.types import Receive, Scope, Send

from cp.serving import http_server
from cp.serving.http_server import ClientTimeouts, address, http_served, listening, most_connections

WITHIN = 20
GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: localhost\r\n"


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        async def limited() -> None:
            async with asyncio.timeout(WITHIN):
                await test()

        asyncio.run(limited())

    return run


class App:
    """Answers with the size of a body, or with as many bytes as it is made to."""

    def __init__(self, answer: int = 0) -> None:
        self.answer = answer
        self.answered = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        body = b"x" * self.answer or str(size).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            await send({"type": "http.response.body", "body": body})
        finally:
            self.answered.set()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return await reader.readexactly(size)


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the connection; it waits until it does."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def test_connections_send_at_once_what_they_have_to_send() -> None:
    """asyncio sets TCP_NODELAY on connections of a socket that says that it is TCP, and on no others."""
    with listening("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


@on_a_loop
async def test_each_connection_has_no_delay() -> None:
    made: list[socket.socket] = []

    class Watched(http_server._Connection):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            made.append(transport.get_extra_info("socket"))
            super().connection_made(transport)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "_Connection", Watched)
        async with http_served(App(), "127.0.0.1", 0) as port, connected(port) as (reader, writer):
            writer.write(GET)
            await answer(reader)
            assert [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in made] == [1]


@on_a_loop
async def test_a_kept_connection_answers_one_request_after_the_other() -> None:
    async with (
        http_served(App(), "127.0.0.1", 0, ClientTimeouts(request=0.5)) as port,
        connected(port) as (reader, writer),
    ):
        for _ in range(3):
            writer.write(GET)
            assert await answer(reader) == b"0"


@pytest.mark.parametrize("begins", [b"", b"GET / HT", POST + b"content-length: 10\r\n\r\n12345"])
def test_who_takes_too_long_to_ask_is_cut_off(begins: bytes) -> None:
    @on_a_loop
    async def scene() -> None:
        patience = ClientTimeouts(request=0.1)
        async with http_served(App(), "127.0.0.1", 0, patience) as port, connected(port) as (reader, writer):
            writer.write(begins)
            assert await ended(reader)

    scene()


@pytest.mark.parametrize("begins", [b"GE", POST + b"content-length: 10\r\n\r\n12345"])
def test_who_takes_too_long_for_a_request_that_came_with_the_one_before_is_cut_off(begins: bytes) -> None:
    """It is read when the first one is answered, not when it comes."""

    @on_a_loop
    async def scene() -> None:
        patience = ClientTimeouts(request=0.2)
        async with http_served(App(), "127.0.0.1", 0, patience) as port, connected(port) as (reader, writer):
            writer.write(GET + begins)
            assert await answer(reader) == b"0"
            with structlog.testing.capture_logs() as logs:
                assert await ended(reader)
            assert [entry["event"] for entry in logs] == ["http.too_slow"]

    scene()


@on_a_loop
async def test_requests_that_come_at_once_are_answered_in_turn() -> None:
    async with (
        http_served(App(), "127.0.0.1", 0, ClientTimeouts(request=0.2)) as port,
        connected(port) as (reader, writer),
    ):
        writer.write(GET * 3)
        assert [await answer(reader) for _ in range(3)] == [b"0"] * 3


@on_a_loop
async def test_who_goes_on_dripping_is_cut_off_all_the_same() -> None:
    async with (
        http_served(App(), "127.0.0.1", 0, ClientTimeouts(request=0.2)) as port,
        connected(port) as (reader, writer),
    ):
        writer.write(b"GET / HTTP/1.1\r\n")

        async def drip() -> None:
            while not writer.is_closing():
                writer.write(b"a: b\r\n")
                await asyncio.sleep(0.02)

        dripping = asyncio.get_running_loop().create_task(drip())
        assert await ended(reader)
        dripping.cancel()


@on_a_loop
async def test_who_takes_nothing_of_an_answer_is_cut_off() -> None:
    app = App(answer=50_000_000)
    async with http_served(app, "127.0.0.1", 0, ClientTimeouts(answer=0.1)) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(client, GET)
            await app.answered.wait()  # otherwise it would wait for ever for the client to take it


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_a_body_in_pieces_is_whole(size: int) -> None:
    @on_a_loop
    async def scene() -> None:
        async with http_served(App(), "127.0.0.1", 0) as port, connected(port) as (reader, writer):
            piece = f"{size:x}\r\n".encode() + b"x" * size + b"\r\n"
            for _ in range(2):
                writer.write(POST + b"transfer-encoding: chunked\r\n\r\n" + piece * 2000 + b"0\r\n\r\n")
                assert await answer(reader) == str(2000 * size).encode()

    scene()


@on_a_loop
async def test_others_are_answered_while_a_body_in_pieces_is_read() -> None:
    """Between the pieces the event loop is left to others: it makes many turns."""
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(count)

    async with http_served(App(), "127.0.0.1", 0) as port, connected(port) as (reader, writer):
        writer.write(POST + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")
        count()
        assert await answer(reader) == b"20000"

    assert turns > 100


@on_a_loop
async def test_without_file_descriptors_it_waits_says_so_once_and_goes_on() -> None:
    with structlog.testing.capture_logs() as logs, pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "_PAUSE", 0.05)
        failures = iter([OSError(errno.EMFILE, "Too many open files")] * 3)
        patch.setattr(http_server._Acceptor, "_take", _failing(http_server._Acceptor._take, failures))
        async with http_served(App(), "127.0.0.1", 0) as port, connected(port) as (reader, writer):
            writer.write(GET)
            assert await answer(reader) == b"0"

    assert [entry["event"] for entry in logs if entry["event"].startswith("http.")] == ["http.no_connections"] * 3


@on_a_loop
async def test_no_more_connections_are_taken_than_leave_room_for_others() -> None:
    with structlog.testing.capture_logs() as logs, pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "_PAUSE", 0.05)
        patch.setattr(http_server, "most_connections", lambda: 2)
        async with (
            http_served(App(), "127.0.0.1", 0, ClientTimeouts(request=0.5)) as port,
            connected(port),
            connected(port),
            connected(port) as (reader, writer),
        ):
            writer.write(GET)
            assert await answer(reader) == b"0"  # once the two that say nothing are cut off

    told = [entry["event"] for entry in logs if entry["event"].startswith("http.")]
    assert told[0] == "http.no_connections"
    assert "http.too_slow" in told


@pytest.mark.parametrize(("descriptors", "most"), [(1024, 256), (2, 1), (1 << 20, 16_384), (-1, 16_384)])
def test_a_server_has_a_part_of_all_file_descriptors(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))

    assert most_connections() == most


def _failing(original: Callable[..., Any], failures: Any) -> Callable[..., Any]:
    def take(self: Any) -> Any:
        failure = next(failures, None)
        if failure is not None:
            raise failure
        return original(self)

    return take


@on_a_loop
async def test_whoever_is_connected_is_cut_off_when_the_server_is_cancelled() -> None:
    """Nobody would end the connection: uvicorn does that only where it is told to end."""
    with suppress(ExceptionGroup):
        async with http_served(App(), "127.0.0.1", 0) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET)
            assert await answer(reader) == b"0"
            raise RuntimeError("something else has failed")

    async with asyncio.timeout(5):
        assert await ended(reader)
    writer.close()


@on_a_loop
async def test_it_listens_on_ipv6() -> None:
    async with http_served(App(), "::1", 0) as port:
        reader, writer = await asyncio.open_connection("::1", port)
        writer.write(GET)
        assert await answer(reader) == b"0"
        writer.close()


def test_an_address_that_is_taken_is_named() -> None:
    with listening("::1", 0) as listener, pytest.raises(OSError, match=r"cannot listen on \[::1\]:\d+: "):
        listening("::1", listener.getsockname()[1])


@pytest.mark.parametrize(("host", "text"), [("::1", "[::1]:80"), ("127.0.0.1", "127.0.0.1:80"), ("cp", "cp:80")])
def test_addresses_are_written_as_in_urls(host: str, text: str) -> None:
    assert address(host, 80) == text


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux alone can say so")
def test_who_acknowledges_nothing_is_gone_after_a_minute() -> None:
    with listening("127.0.0.1", 0) as listener:
        listener.setblocking(True)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as taken:
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000

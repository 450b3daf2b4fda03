"""HTTPS is served with every protection of the HTTP server, and with the certificate of the moment."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trustme
from starlette.types import Receive, Scope, Send

from cp.serving.http_server import ClientTimeouts, http_served
from tests.test_http_server import GET, POST, App, answer, ended, on_a_loop

AUTHORITY: Final = trustme.CA()


def served_with(authority: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def trusting(authority: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


CONTEXT: Final = served_with()
USUAL: Final = ClientTimeouts()


@asynccontextmanager
async def https(app: Any, patience: ClientTimeouts = USUAL) -> AsyncIterator[int]:
    async with http_served(app, "127.0.0.1", 0, patience, lambda: CONTEXT) as port:
        yield port


@asynccontextmanager
async def connected(port: int, authority: trustme.CA = AUTHORITY) -> AsyncIterator[Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting(authority))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@on_a_loop
async def test_a_kept_connection_answers_one_request_after_the_other() -> None:
    async with https(App(), ClientTimeouts(request=0.5)) as port, connected(port) as (reader, writer):
        for _ in range(3):
            writer.write(GET)
            assert await answer(reader) == b"0"


@on_a_loop
async def test_a_client_without_tls_gets_nothing_and_others_are_answered() -> None:
    async with https(App()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        assert b"HTTP" not in await reader.read()
        writer.close()
        async with connected(port) as (reader, writer):
            writer.write(GET)
            assert await answer(reader) == b"0"


@on_a_loop
async def test_who_never_ends_its_handshake_is_cut_off() -> None:
    async with https(App(), ClientTimeouts(handshake=0.1)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01")  # the begin of a ClientHello (RFC 8446, 5.1)
        assert await ended(reader)
        writer.close()


@pytest.mark.parametrize("begins", [b"", b"GET / HT", POST + b"content-length: 10\r\n\r\n12345"])
def test_who_takes_too_long_to_ask_is_cut_off(begins: bytes) -> None:
    @on_a_loop
    async def scene() -> None:
        async with https(App(), ClientTimeouts(request=0.1)) as port, connected(port) as (reader, writer):
            writer.write(begins)
            assert await ended(reader)

    scene()


@on_a_loop
async def test_who_takes_nothing_of_an_answer_is_cut_off() -> None:
    app = App(answer=20_000_000)
    async with https(app, ClientTimeouts(answer=0.1)) as port, connected(port) as (reader, writer):
        reader._transport.pause_reading()
        writer.write(GET)
        await app.answered.wait()  # otherwise it would wait for ever for the client to take it


@on_a_loop
async def test_a_body_in_pieces_is_whole() -> None:
    async with https(App()) as port, connected(port) as (reader, writer):
        for _ in range(2):
            writer.write(POST + b"transfer-encoding: chunked\r\n\r\n" + b"7\r\nxxxxxxx\r\n" * 2000 + b"0\r\n\r\n")
            assert await answer(reader) == b"14000"


@on_a_loop
async def test_each_connection_gets_the_certificate_of_its_time() -> None:
    later = trustme.CA()
    contexts = iter([CONTEXT, served_with(later)])
    async with http_served(App(), "127.0.0.1", 0, tls=lambda: next(contexts)) as port:
        for authority in (AUTHORITY, later):
            async with connected(port, authority) as (reader, writer):
                writer.write(GET)
                assert await answer(reader) == b"0"


class Caller:
    """Answers with the address and the scheme of the request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = f"{scope['scheme']} {scope['client'][0]}".encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@on_a_loop
async def test_a_header_changes_neither_the_address_of_a_caller_nor_the_scheme() -> None:
    headers = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 203.0.113.7\r\nx-forwarded-proto: https\r\n\r\n"
    async with http_served(Caller(), "127.0.0.1", 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(headers)
        assert await answer(reader) == b"http 127.0.0.1"
        writer.close()
    async with https(Caller()) as port, connected(port) as (reader, writer):
        writer.write(GET)
        assert await answer(reader) == b"https 127.0.0.1"

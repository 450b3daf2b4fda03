"""An HTTP server that no client can hold up: each has so long to send a request and to take its answer.

uvicorn serves; what is added here is what it leaves open: how long a client may take, how a request in very small
pieces is read, what happens when there are no file descriptors left, and that each connection gets the certificate of
its time.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, cast

import h11
import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from cp.listening import CannotListen, bind

_BACKLOG: Final = 128
_GONE_AFTER: Final = 60_000
"""Milliseconds in which the other end has to acknowledge what it was sent. Else a machine that has lost its power seems
to be there for a quarter of an hour."""

_PIECE: Final = 1024
"""Bytes of a chunked request that are read at once: each chunk costs the same, if it holds a single byte."""

_PAUSE: Final = 1.0
"""Seconds until connections are taken again, after there was no room for one."""

_PART_OF_DESCRIPTORS: Final = 4
"""Each server has at most one in so many of the process's file descriptors: there are up to three of this sort, beside
proxies and the database."""

_MOST_CONNECTIONS: Final = 16_384
"""Where there may be many more file descriptors: each connection takes memory too."""

_CLOSED: Final = -1
"""The descriptor of a socket that is closed."""

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

log = structlog.get_logger()

TlsContext: TypeAlias = Callable[[], ssl.SSLContext]
"""Asked at each connection, as the certificate may have changed."""


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """How long a client is waited for, in seconds."""

    request: float = 30.0
    """From the first byte of a request (or from the connection) to its last."""

    answer: float = 60.0
    """While the client takes nothing of an answer."""

    handshake: float = 10.0
    """From the connection to the end of the handshake of TLS. Whoever has got so far has no token yet."""


@asynccontextmanager
async def http_served(
    app: ASGIApp, host: str, port: int, patience: ClientTimeouts = ClientTimeouts(), tls: TlsContext | None = None
) -> AsyncIterator[int]:
    """An HTTP server for as long as the block lasts, of HTTPS with a context; yields the port that it got."""
    listener = listening(host, port)
    server = _Server(_config(app, patience), patience.handshake, tls)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]))
            try:
                yield listener.getsockname()[1]
            finally:
                server.should_exit = True
    finally:
        server.cut_off()
        listener.close()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises `CannotListen`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named. Without it, Nagle's algorithm and delayed
    # acknowledgements (RFC 1122, 4.2.3.2) make each answer on a kept connection wait for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux has it; connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_AFTER)
    try:
        bind(listener, host, port)
    except CannotListen:
        listener.close()
        raise
    listener.listen(_BACKLOG)
    listener.setblocking(False)  # noqa: FBT003  # as the socket module has it
    return listener


def most_connections() -> int:
    """How many a server has at once."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return min(max(1, descriptors // _PART_OF_DESCRIPTORS), _MOST_CONNECTIONS)


def address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address (RFC 3986, 3.2.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _config(app: ASGIApp, patience: ClientTimeouts) -> uvicorn.Config:
    def protocol(*arguments: Any, **named: Any) -> _Connection:
        return _Connection(patience, *arguments, **named)

    # Headers of proxies are not believed: who calls is who connected, and anybody can write a header (record 0060).
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=5, proxy_headers=False
    )
    config.load()
    config.http_protocol_class = cast("type[asyncio.Protocol]", protocol)
    return config


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, as the control plane ends as a whole, and taking connections by itself."""

    def __init__(self, config: uvicorn.Config, handshake: float, tls: TlsContext | None) -> None:
        super().__init__(config)
        self._opening = _Opening(self._new_protocol, handshake, tls)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        open_now = self.server_state.connections
        acceptors = [_Acceptor(loop, listener, self._opening, open_now) for listener in sockets or ()]
        self.servers = cast("list[asyncio.base_events.Server]", acceptors)
        self.started = True

    def cut_off(self) -> None:
        """End what is still open: uvicorn leaves it where it is cancelled, or has waited for an answer for too long."""
        for acceptor in cast("list[_Acceptor]", getattr(self, "servers", [])):
            acceptor.cut_off()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _new_protocol(self) -> asyncio.Protocol:
        protocol = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
        return protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


@dataclass(frozen=True, slots=True)
class _Opening:
    """How a connection that was taken begins."""

    protocol: Callable[[], asyncio.Protocol]
    handshake: float
    tls: TlsContext | None

    async def begin(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        """Speak with a client; one that is gone, or whose handshake fails, is nobody's fault here."""
        try:
            if self.tls is None:
                await loop.connect_accepted_socket(self.protocol, connection)
            else:
                context = self.tls()
                await loop.connect_accepted_socket(
                    self.protocol, connection, ssl=context, ssl_handshake_timeout=self.handshake
                )
        except OSError:
            connection.close()


class _Acceptor:
    """Takes connections of one listening socket.

    asyncio's own way tries as often as the backlog is long when there is no file descriptor left, each time with a line
    in the log and with one more attempt a second later: they multiply, and the loop never recovers.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, listener: socket.socket, opening: _Opening, open_now: Collection[Any]
    ) -> None:
        self._loop, self._listener, self._opening = loop, listener, opening
        self._open, self._most = open_now, most_connections()
        self._retry: asyncio.TimerHandle | None = None
        self._beginning: set[asyncio.Task[Any]] = set()
        self._begin()

    def close(self) -> None:
        if self._listener.fileno() != _CLOSED:
            self._loop.remove_reader(self._listener)
        if self._retry is not None:
            self._retry.cancel()

    def cut_off(self) -> None:
        """Take no more connections, and none of those that have not begun."""
        self.close()
        for beginning in self._beginning:
            beginning.cancel()

    async def wait_closed(self) -> None:
        """Connections are waited for by uvicorn."""

    def _begin(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        if len(self._open) + len(self._beginning) >= self._most:
            self._pause(f"{self._most} connections are open, and more would take what others need")
            return
        try:
            connection = self._take()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._pause(error.strerror)
            return
        connection.setblocking(False)  # noqa: FBT003  # as the socket module has it
        beginning = self._loop.create_task(self._opening.begin(self._loop, connection))
        self._beginning.add(beginning)
        beginning.add_done_callback(partial(self._begun, connection))

    def _begun(self, connection: socket.socket, beginning: asyncio.Task[Any]) -> None:
        self._beginning.discard(beginning)
        if beginning.cancelled():
            connection.close()

    def _take(self) -> socket.socket:
        return self._listener.accept()[0]

    def _pause(self, why: str | None) -> None:
        self._loop.remove_reader(self._listener)
        self._retry = self._loop.call_later(_PAUSE, self._begin)
        log.warning("http.no_connections", reason=why, tried_again_after=_PAUSE)


class _Connection(H11Protocol):
    """One connection, that ends if its client takes too long."""

    def __init__(self, patience: ClientTimeouts, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._patience = patience
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._unread = bytearray()
        self._reading: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._stalled, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._unread and (len(data) <= _PIECE or not self._is_chunked):
            self._read(data)
            return
        self._unread += data
        self.transport.pause_reading()
        if self._reading is None:
            self._continue()

    def on_response_complete(self) -> None:
        """A request that came together with the one before is read now, without `data_received`."""
        super().on_response_complete()
        if self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]:
            self._keep_deadline()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self._patience.answer, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _continue(self) -> None:
        """Read a piece, and leave the loop to others before the next one."""
        self._reading = None
        piece = bytes(self._unread[:_PIECE])
        del self._unread[:_PIECE]
        self._read(piece)
        if self.transport.is_closing():
            self._unread.clear()
        elif self._unread:
            self._reading = self.loop.call_soon(self._continue)
        elif not self.flow.read_paused:  # else uvicorn resumes it, when what was read is taken
            self.transport.resume_reading()

    def _read(self, data: bytes) -> None:
        super().data_received(data)
        self._keep_deadline()

    def _keep_deadline(self) -> None:
        """A request that is not whole has a deadline, and one that is whole has none."""
        if self.transport.is_closing():
            return
        is_whole = self.conn.their_state in {h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR}
        if is_whole and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif not is_whole and self._deadline is None:
            self._expect()

    @property
    def _is_chunked(self) -> bool:
        """Whether the body that is being read, or that may begin in what comes next, is in chunks."""
        if self.conn.their_state is not h11.SEND_BODY:
            return True
        return any(name == b"transfer-encoding" for name, _ in self.headers)

    def _expect(self) -> None:
        self._deadline = self.loop.call_later(self._patience.request, self._give_up)

    def _give_up(self) -> None:
        self._deadline = None
        log.info("http.too_slow", client=self.client and self.client[0], seconds=self._patience.request)
        self.transport.abort()

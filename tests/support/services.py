"""Workloads under the control of a test: they do as they are told, and count."""

import json
import socket
import socketserver
import ssl
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from tests.support.loopback import Address, new_address

HANG_UP: Final = 0
"""In place of a status: the connection is closed without an answer."""

PIECES: Final = 10


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a path is answered: after how long, and how many times with a failure before it succeeds."""

    delay: float = 0.0
    spread: float = 0.0
    """How long the body takes, which comes in pieces then."""

    failures: int = 0
    failure: int = 503
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of a failure."""


class HttpService:
    """An HTTP service that answers with its name, and with the request as it reached it."""

    def __init__(
        self,
        name: str = "service",
        address: Address | None = None,
        *,
        path: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`path` has it listen at a socket in the file system, `tls` speak TLS."""
        self.name = name
        self.address = address or new_address()
        self._behaviours: dict[str, Behaviour] = {}
        self._hits: Counter[str] = Counter()
        self._headers: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        handler = type("Handler", (_Handler,), {"service": self, "disable_nagle_algorithm": path is None})
        self._server = _Server(self.address, handler) if path is None else _SocketServer(path, handler)
        if tls is not None:  # a handshake is for the thread of its connection
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name=name, daemon=True)
        self._thread.start()

    @property
    def connections(self) -> tuple[int, int]:
        """How many have been opened, and how many of these are open."""
        return self._server.opened, self._server.opened - self._server.closed

    def on(
        self,
        path: str,
        *,
        delay: float = 0.0,
        spread: float = 0.0,
        failures: int = 0,
        failure: int = 503,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """What to do with requests for a path from now on."""
        with self._lock:
            self._behaviours[path] = Behaviour(delay, spread, failures, failure, tuple((headers or {}).items()))
            self._hits[path] = 0

    def hits(self, path: str) -> int:
        """How many requests for a path came here since it was last told what to do with them."""
        with self._lock:
            return self._hits[path]

    def headers(self, path: str) -> dict[str, str]:
        """The headers of the last request for a path."""
        with self._lock:
            return self._headers[path]

    def next(self, path: str, headers: dict[str, str]) -> Behaviour:
        """Count one request, and say what is to be done with it."""
        with self._lock:
            self._hits[path] += 1
            self._headers[path] = headers
            behaviour = self._behaviours.get(path, Behaviour())
            if behaviour.failures:
                self._behaviours[path] = replace(behaviour, failures=behaviour.failures - 1)
            return behaviour

    def pause(self, seconds: float) -> None:
        self._closing.wait(seconds)

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: Address, handler: type[BaseHTTPRequestHandler]) -> None:
        self.opened = self.closed = 0
        self.counting = threading.Lock()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # HTTPServer's asks for the name of a host as well: that takes seconds where no name server answers.
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.opened += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        super().process_request_thread(request, client_address)
        with self.counting:
            self.closed += 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, as one does whose time is out, is no news."""


class _SocketServer(_Server):
    address_family = socket.AF_UNIX

    def __init__(self, path: Path, handler: type[BaseHTTPRequestHandler]) -> None:
        where: Any = str(path)  # typeshed knows of no servers at sockets
        super().__init__(where, handler)


class _Handler(BaseHTTPRequestHandler):
    service: ClassVar[HttpService]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): ", ".join(self.headers.get_all(name, ())) for name in self.headers}
        behaviour = self.service.next(path, headers)
        self.service.pause(behaviour.delay)
        if behaviour.failures and behaviour.failure == HANG_UP:
            self.close_connection = True
            return
        body = json.dumps(self._seen(headers)).encode()
        self.send_response(behaviour.failure if behaviour.failures else 200)
        for name, value in behaviour.headers if behaviour.failures else ():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("x-service", self.service.name)
        self.end_headers()
        self._send(body, behaviour.spread)

    def _send(self, body: bytes, spread: float) -> None:
        size = len(body) // PIECES + 1 if spread else len(body)
        for at in range(0, len(body), size):
            self.wfile.write(body[at : at + size])
            self.service.pause(spread / PIECES)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815  # the names that http.server looks for

    def _seen(self, headers: dict[str, str]) -> dict[str, Any]:
        seen = {"service": self.service.name, "method": self.command, "path": self.path, "headers": headers}
        over_tls = isinstance(self.connection, ssl.SSLSocket)
        return seen | ({"alpn": self.connection.selected_alpn_protocol()} if over_tls else {})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is http.server's
        pass


class TcpService:
    """A TCP service that greets with its name and echoes what it is sent, unless it has another handler."""

    def __init__(
        self,
        name: str = "service",
        address: Address | None = None,
        handler: type[socketserver.BaseRequestHandler] | None = None,
    ) -> None:
        self.name = name
        self.address = address or new_address()
        handler = handler or type("Handler", (_Echo,), {"greeting": f"{name}\n".encode()})
        self._server = _TcpServer(self.address, handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _TcpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Echo(socketserver.StreamRequestHandler):
    greeting: ClassVar[bytes]

    def handle(self) -> None:
        self.wfile.write(self.greeting)
        for line in self.rfile:
            self.wfile.write(line)


@contextmanager
def deaf() -> Iterator[Address]:
    """An address that never answers who wants to connect: its queue is full, and nobody empties it."""
    address = new_address()
    with ExitStack() as open_sockets:
        listener = open_sockets.enter_context(socket.socket())
        listener.bind(address)
        listener.listen(0)
        for _ in range(QUEUED):
            waiting = open_sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield address


QUEUED: Final = 8
"""More than any queue takes that was asked to be as short as it can."""

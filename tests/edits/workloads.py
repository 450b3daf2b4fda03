"""Workloads that hold long conversations, and callers that hold them through a proxy."""

from __future__ import annotations

import queue
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self

import grpc

from tests.support.client import ClientTls, Connection, Conversation
from tests.support.loopback import Address, new_address
from tests.support.services import TcpService
from tests.support.waiting import eventually

UNARY: Final = "/koguma.test.Edits/Unary"
STREAM: Final = "/koguma.test.Edits/Stream"
HOST: Final = "edits.example.com"
_WITHIN: Final = 10.0
_UPGRADE: Final = "GET /socket HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
_SWITCHING: Final = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


class EchoingGrpc:
    """A gRPC service that echoes messages, one by one or on a stream."""

    def __init__(self) -> None:
        self.address = new_address()
        self._server = grpc.server(ThreadPoolExecutor(32))
        handlers: dict[str, Any] = {
            "Unary": grpc.unary_unary_rpc_method_handler(lambda message, _: message),
            "Stream": grpc.stream_stream_rpc_method_handler(lambda messages, _: iter(messages)),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("koguma.test.Edits", handlers),))
        self._server.add_insecure_port(str(self.address))
        self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(0).wait(5)


def echoing_socket(*, upgrades: bool, address: Address | None = None) -> TcpService:
    """A service that echoes lines: at once, or once it has accepted an upgrade. Envoy does not look into frames.

    The client speaks first: a proxy that takes plain text and TLS waits for its first bytes.
    """
    return TcpService(address=address, handler=_Upgraded if upgrades else _Echo)


class _Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line)


class _Upgraded(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(_SWITCHING)
        for line in self.rfile:
            self.wfile.write(line)


# --- callers ---


class Calling(Protocol):
    """One kind of call. Raises if a call, or a step of a conversation, fails."""

    def call(self) -> None: ...
    def close(self) -> None: ...


class KeptConnection:
    """HTTP/1 requests on a connection that is kept for as long as the server allows it."""

    def __init__(
        self, where: Callable[[], Address], longest: Callable[[], float], tls: ClientTls | None = None
    ) -> None:
        """`longest`: seconds after which it ends a connection itself."""
        self._where, self._longest, self._tls = where, longest, tls
        self._connection: Connection | None = None
        self._at: Address | None = None
        self._began = 0.0

    def call(self) -> None:
        if self._connection is None or self._connection.sock is None:
            self._connect()
        assert self._connection is not None
        try:
            self._connection.request("GET", "/", headers={"Host": HOST})
            response = self._connection.getresponse()
            body = response.read()
        except Exception:
            self.close()
            raise
        if response.status != 200:
            raise AssertionError(f"status {response.status}: {body.decode()}")
        if self._where() != self._at or time.monotonic() > self._began + self._longest():
            self.close()

    def _connect(self) -> None:
        self._at, self._began = self._where(), time.monotonic()
        self._connection = Connection(self._at, _WITHIN, self._tls)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Unary:
    """Calls over gRPC, and so over HTTP/2, without retries by the library."""

    def __init__(self, where: Callable[[], Address], longest: Callable[[], float]) -> None:
        self._where, self._longest = where, longest
        self._began = 0.0
        self._at: Address | None = None
        self._channel: grpc.Channel | None = None

    def call(self) -> None:
        is_old = self._where() != self._at or time.monotonic() > self._began + self._longest()
        if self._channel is None or is_old:
            self.close()
            self._at, self._began = self._where(), time.monotonic()
            self._channel = _channel(self._at)
        answered: Any = self._channel.unary_unary(UNARY)
        assert answered(b"hello", timeout=_WITHIN) == b"hello"

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class _Lasting:
    """A conversation of many steps, which a caller ends itself after some time."""

    def __init__(self, where: Callable[[], Address], seconds: float) -> None:
        self._where, self._seconds = where, seconds
        self._ends = 0.0
        self._is_open = False

    def call(self) -> None:
        try:
            if not self._is_open:
                self._open(self._where())
                self._is_open, self._ends = True, time.monotonic() + self._seconds
            self._step()
            if time.monotonic() > self._ends:
                self._end()
                self.close()
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        self._is_open = False
        with suppress(Exception):
            self._abandon()

    def _open(self, address: Address) -> None:
        raise NotImplementedError

    def _step(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        """End it as both sides have agreed."""

    def _abandon(self) -> None:
        raise NotImplementedError


class GrpcStream(_Lasting):
    """Messages to and fro on one stream."""

    def _open(self, address: Address) -> None:
        self._channel = _channel(address)
        self._said: queue.Queue[bytes | None] = queue.Queue()
        stream: Any = self._channel.stream_stream(STREAM)
        self._heard: Iterator[bytes] = stream(iter(self._said.get, None), timeout=self._seconds + _WITHIN)

    def _step(self) -> None:
        self._said.put(b"hello")
        assert next(self._heard) == b"hello"

    def _end(self) -> None:
        self._said.put(None)
        assert list(self._heard) == []

    def _abandon(self) -> None:
        self._said.put(None)
        self._channel.close()


class Lines(_Lasting):
    """Lines to and fro on one TCP connection."""

    def _open(self, address: Address) -> None:
        self._conversation = Conversation(address, _WITHIN)

    def _step(self) -> None:
        self._conversation.say("hello\n")
        heard = self._conversation.hear()
        assert heard == "hello", f"heard {heard!r}"

    def _abandon(self) -> None:
        self._conversation.__exit__(None, None, None)


class WebSocket(Lines):
    """The same after an upgrade of HTTP/1."""

    def _open(self, address: Address) -> None:
        super()._open(address)
        self._conversation.say(_UPGRADE.format(host=address))
        head = list(iter(self._conversation.hear, ""))
        assert head[:1] == ["HTTP/1.1 101 Switching Protocols"], f"{head[:1]} {self._conversation.hear()}"


def _channel(address: Address) -> grpc.Channel:
    return grpc.insecure_channel(str(address), [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)])


class Caller:
    """Makes calls of one kind from a thread, counts them, and notes the failures."""

    def __init__(self, name: str, calling: Calling, pause: float) -> None:
        self.name, self._calling, self._pause = name, calling, pause
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.calls = 0
        self.failures: list[str] = []

    def _run(self) -> None:
        while not self._stopping.wait(self._pause):
            try:
                self._calling.call()
            except Exception as error:  # noqa: BLE001  # whatever it is, the call was lost
                self.failures.append(_told(error))
            self.calls += 1
        self._calling.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(_WITHIN)


def _told(error: Exception) -> str:
    if isinstance(error, grpc.RpcError):
        call: Any = error
        return f"{call.code()}: {call.details()}"
    return f"{type(error).__name__}: {error}"


def goes_on(callers: list[Caller], steps: int) -> None:
    """Wait until each caller has made so many more calls."""
    before = {caller.name: caller.calls for caller in callers}
    eventually(lambda: all(caller.calls >= before[caller.name] + steps for caller in callers), within=60)

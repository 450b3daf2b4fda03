"""Requests as a workload sends them: one at a time with a stopwatch, or steadily in the background."""

import http.client
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tests.support.loopback import Address

T = TypeVar("T")

TICK: Final = 0.02
"""Seconds by which Envoy may be early: its timers tick in milliseconds and begin before the clock of the client."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one request, and after how long."""

    status: int
    seconds: float
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""

    @property
    def seen(self) -> dict[str, Any]:
        """The request as the service saw it."""
        try:
            data: dict[str, Any] = json.loads(self.body)
        except ValueError:
            raise AssertionError(f"no service answers: {self.status} {self.body!r}") from None
        return data

    @property
    def service(self) -> str:
        """Who answered; empty when it was an Envoy."""
        return self.headers.get("x-service", "")


@dataclass(frozen=True, slots=True)
class ClientTls:
    """How a client speaks TLS: whom it believes, and which host it asks for; empty: it names none."""

    context: ssl.SSLContext
    server_name: str = ""


def call(
    address: Address,
    path: str = "/",
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    timeout: float = 20,
    *,
    tls: ClientTls | None = None,
) -> Answer:
    """Send one request on a connection of its own."""
    connection = Connection(address, timeout, tls)
    try:
        return _exchange(connection, path, method, headers or {})
    finally:
        connection.close()


class Connection(http.client.HTTPConnection):
    def __init__(self, address: Address, timeout: float, tls: ClientTls | None) -> None:
        super().__init__(*address, timeout=timeout)
        self._tls = tls
        self.opened = 0

    def connect(self) -> None:
        super().connect()
        self.opened += 1
        if self._tls is not None:
            self.sock = self._tls.context.wrap_socket(self.sock, server_hostname=self._tls.server_name or None)


def _exchange(connection: http.client.HTTPConnection, path: str, method: str, headers: Mapping[str, str]) -> Answer:
    connection.connect() if connection.sock is None else None
    begun = time.monotonic()
    connection.request(method, path, headers=dict(headers))
    response = connection.getresponse()
    body = response.read().decode()
    answered = {name.lower(): ", ".join(response.headers.get_all(name, ())) for name in response.headers}
    return Answer(response.status, time.monotonic() - begun, answered, body)


class Conversation:
    """A connection on which lines are exchanged, such as a TCP service of the tests greets and echoes."""

    def __init__(self, address: Address, timeout: float = 5) -> None:
        self._socket = socket.create_connection(address, timeout)
        self._stream = self._socket.makefile("rwb")

    def hear(self) -> str:
        """The next line; empty when the other end has closed."""
        return self._stream.readline().decode().strip()

    def say(self, text: str) -> None:
        self._stream.write(text.encode())
        self._stream.flush()

    @property
    def is_silent(self) -> bool:
        """Whether nothing more has come, not even the end."""
        return not select.select([self._socket], [], [], 0)[0]

    def until_closed(self) -> tuple[float, str]:
        """After how long the other end closes, and what it said until then."""
        begun = time.monotonic()
        text = self._stream.read()
        return time.monotonic() - begun, text.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._stream.close()
        self._socket.close()


def greeting(address: Address, timeout: float = 5) -> str:
    """The name with which a TCP service answers; empty when nobody does."""
    with suppress(ConnectionError), Conversation(address, timeout) as conversation:
        return conversation.hear()
    return ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request of a steady stream: when it was sent, the status, or what went wrong."""

    at: float
    status: int
    seconds: float
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.status == http.client.OK


class Traffic:
    """Steady requests from a thread, on one connection that is kept open, each outcome recorded."""

    def __init__(
        self,
        address: Address,
        path: str = "/",
        per_second: float = 50,
        timeout: float = 5,
        *,
        headers: Mapping[str, str] | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self._path, self._timeout = path, timeout
        self._headers = headers or {}
        self._connection = Connection(address, timeout, tls)
        self._pause = 1 / per_second
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"traffic to {address}", daemon=True)
        self.outcomes: list[Outcome] = []

    @property
    def failures(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.ok]

    @property
    def connections(self) -> int:
        """How many it has needed so far."""
        return self._connection.opened

    def since(self, moment: float) -> list[Outcome]:
        """Outcomes of the requests that were sent after a moment of the monotonic clock."""
        return [outcome for outcome in self.outcomes if outcome.at >= moment]

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(self._timeout + 5)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        connection = self._connection
        due = time.monotonic()
        while not self._stopping.is_set():
            self.outcomes.append(self._outcome(connection))
            due = max(due + self._pause, time.monotonic())
            self._stopping.wait(due - time.monotonic())
        connection.close()

    def _outcome(self, connection: http.client.HTTPConnection) -> Outcome:
        begun = time.monotonic()
        try:
            answer = _exchange(connection, self._path, "GET", self._headers)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return Outcome(begun, 0, time.monotonic() - begun, f"{type(error).__name__}: {error}")
        return Outcome(begun, answer.status, answer.seconds)


def closed_after(address: Address, sent: str = "") -> tuple[float, str]:
    """After how long a connection is closed on which no more than this is sent, and what came until then."""
    with Conversation(address) as conversation:
        conversation.say(sent)
        return conversation.until_closed()

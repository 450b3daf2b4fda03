"""Requests as a workload sends them: one at a time with a stopwatch, or steadily in the background."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.support.loopback import Address


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
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def service(self) -> str:
        """Who answered; empty when it was an Envoy."""
        return self.headers.get("x-service", "")


def call(
    address: Address,
    path: str = "/",
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    timeout: float = 20,
) -> Answer:
    """Send one request on a connection of its own."""
    connection = http.client.HTTPConnection(*address, timeout=timeout)
    try:
        return _exchange(connection, path, method, headers or {})
    finally:
        connection.close()


def _exchange(connection: http.client.HTTPConnection, path: str, method: str, headers: Mapping[str, str]) -> Answer:
    connection.connect() if connection.sock is None else None
    begun = time.monotonic()
    connection.request(method, path, headers=dict(headers))
    response = connection.getresponse()
    body = response.read().decode()
    found = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, time.monotonic() - begun, found, body)


def greeting(address: Address, timeout: float = 5) -> str:
    """The name with which a TCP service answers; empty when nobody does."""
    with socket.create_connection(address, timeout) as connection, connection.makefile("rwb") as stream:
        return stream.readline().decode().strip()


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

    def __init__(self, address: Address, path: str = "/", per_second: float = 50, timeout: float = 5) -> None:
        self._address, self._path, self._timeout = address, path, timeout
        self._pause = 1 / per_second
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"traffic to {address}", daemon=True)
        self.outcomes: list[Outcome] = []

    @property
    def failures(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.ok]

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
        connection = http.client.HTTPConnection(*self._address, timeout=self._timeout)
        due = time.monotonic()
        while not self._stopping.is_set():
            self.outcomes.append(self._one(connection))
            due = max(due + self._pause, time.monotonic())
            self._stopping.wait(due - time.monotonic())
        connection.close()

    def _one(self, connection: http.client.HTTPConnection) -> Outcome:
        begun = time.monotonic()
        try:
            answer = _exchange(connection, self._path, "GET", {})
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return Outcome(begun, 0, time.monotonic() - begun, f"{type(error).__name__}: {error}")
        return Outcome(begun, answer.status, answer.seconds)


def measured(address: Address, path: str, seconds: float, tolerance: float = 0.1, attempts: int = 3) -> Answer:
    """The answer, measured again when it came too late: other tests may keep the machine busy, but not speed it up."""
    answer = call(address, path)
    for _ in range(attempts - 1):
        if answer.seconds <= seconds + tolerance:
            break
        answer = call(address, path)
    return answer

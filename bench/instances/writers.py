"""Who writes steadily, and who reads what came of it: on the feed of each instance, and in its log."""

from __future__ import annotations

import http.client
import json
import math
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from bench.serving import mesh
from cp.api.feed import PATH

CLIENTS: Final = 2
"""Of each instance, that write in turn."""

NAMES: Final = 50
"""Resources that are written again and again."""

_PLACE: Final = re.compile(rb"id: .*\.(\d+)\s")
"""Of a reader of the feed (`cp.api.feed_reader.FeedPlace`): it ends with a revision."""

_WITHIN: Final = 30.0
_JSON: Final = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Written:
    """A write by its revision, when it was begun, and when it was answered (`time.time`)."""

    revision: int
    began: float
    answered: float


@dataclass(slots=True)
class SteadyWriters:
    """Clients of some instances, that write what concerns no proxy."""

    apis: Sequence[str]
    name: str
    written: list[Written] = field(default_factory=list)

    @contextmanager
    def writing(self, rate: float, seconds: float) -> Iterator[None]:
        """They write so many times a second, in sum, for so long: the block is run meanwhile, and ends after them."""
        clients, start = len(self.apis) * CLIENTS, time.time()
        threads = [
            threading.Thread(target=self._steadily, args=(start, rate, range(number, round(rate * seconds), clients)))
            for number in range(clients)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for thread in threads:
                thread.join()

    def write(self, writes: int) -> None:
        """Write so many times in a row, at the first instance."""
        with _Client(self.apis[0]) as client:
            for number in range(writes):
                self.written.append(client.write(self.name, number))

    def _steadily(self, start: float, rate: float, numbers: range) -> None:
        with _Client(self.apis[numbers.start % len(self.apis)]) as client:
            for number in numbers:
                time.sleep(max(0.0, start + number / rate - time.time()))
                self.written.append(client.write(f"{self.name}-{number % NAMES}", number))


class _Client:
    """One kept connection to an instance."""

    def __init__(self, api: str) -> None:
        address = urlsplit(api)
        self._connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=120)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def write(self, name: str, number: int) -> Written:
        document = mesh.timeout_for_nobody(f"{number + 2}s") | {"name": name}
        began = time.time()
        self._connection.request("PUT", mesh.path_of(document), json.dumps(document), _JSON)
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status < 300, (answer.status, text[:500])
        return Written(int(answer.headers["koguma-revision"]), began, time.time())


class FeedReader(threading.Thread):
    """Notes up to which revision the feed of an instance has told of writes, and when."""

    def __init__(self, api: str) -> None:
        super().__init__(daemon=True)
        address = urlsplit(api)
        self._socket = socket.create_connection((str(address.hostname), address.port or 80))
        self._socket.sendall(f"GET {PATH} HTTP/1.1\r\nhost: {address.netloc}\r\n\r\n".encode())
        self.told: list[tuple[int, float]] = []

    @classmethod
    @contextmanager
    def of(cls, apis: Sequence[str]) -> Iterator[Sequence[FeedReader]]:
        """One of each instance, for as long as the block lasts."""
        readers = [cls(api) for api in apis]
        for reader in readers:
            reader.start()
        try:
            yield readers
        finally:
            for reader in readers:
                reader.close()

    def run(self) -> None:
        with self._socket.makefile("rb") as lines:
            for line in lines:
                if place := _PLACE.match(line):
                    self.told.append((int(place[1]), time.time()))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self.join()
        self._socket.close()

    def wait_for(self, revision: int) -> None:
        deadline = time.monotonic() + _WITHIN
        while self.told[-1:] < [(revision, 0.0)]:
            assert time.monotonic() < deadline, f"revision {revision} was never told: {self.told[-1:]}"
            time.sleep(0.05)


def served(log: Path) -> list[tuple[int, float]]:
    """Up to which revision an instance has served changes, and when, as it logs."""
    lines = (json.loads(line) for line in log.read_text().splitlines() if '"world.changed"' in line)
    return [(line["revision"], datetime.fromisoformat(line["timestamp"]).timestamp()) for line in lines]


def delays(written: Sequence[Written], reached: Sequence[tuple[int, float]]) -> Iterator[float]:
    """How long after its begin each write was reached."""
    places = iter(reached)
    revision, moment = 0, 0.0
    for write in sorted(written, key=lambda write: write.revision):
        while revision < write.revision:
            revision, moment = next(places, (0, -math.inf))
            assert moment > 0, f"revision {write.revision} was never reached"
        yield moment - write.began

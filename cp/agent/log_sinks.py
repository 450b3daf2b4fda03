"""Sends access log lines over TCP, with a thread for each address: an unreachable one does not delay the others."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from cp.agent.say import Say

_BATCH: Final = 64 * 1024
_GRACE: Final = 0.2


@dataclass(frozen=True, slots=True)
class SinkLimits:
    """How many lines are kept for an unreachable address, and how long to wait."""

    kept: int = 4 * 1024 * 1024
    """Bytes. Further lines are dropped and counted."""

    first_pause: float = 0.1
    longest_pause: float = 5.0
    patience: float = 5.0
    """Seconds for an attempt to connect, and for an address to read some of what was sent."""

    reminded_every: float = 60.0


class LogSinks:
    """The sinks of all addresses so far."""

    def __init__(self, say: Say, limits: SinkLimits | None = None) -> None:
        self._say, self._limits = say, limits or SinkLimits()
        self._sinks: dict[str, LogSink] = {}

    def put(self, address: str, line: bytes) -> None:
        if address not in self._sinks:
            self._sinks[address] = LogSink(address, self._say, self._limits)
        self._sinks[address].put(line)

    def close(self, within: float) -> None:
        """Send the remaining lines, for so many seconds at most."""
        deadline = time.monotonic() + within
        for sink in self._sinks.values():
            sink.end(deadline)
        for sink in self._sinks.values():
            sink.join()


class LogSink:
    """The sink of one address. It takes lines without blocking, and sends them in order."""

    def __init__(self, address: str, say: Say, limits: SinkLimits) -> None:
        self._address, self._say, self._limits = address, say, limits
        self._lines: deque[bytes] = deque()
        self._size = self._dropped = self._reported = 0
        self._deadline: float | None = None
        self._changed = threading.Condition()
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name=f"logs to {address}", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        with self._changed:
            if self._size + len(line) > self._limits.kept:
                self._dropped += 1
                return
            self._lines.append(line)
            self._size += len(line)
            self._changed.notify()

    def end(self, deadline: float) -> None:
        with self._changed:
            self._deadline = deadline
            self._changed.notify()

    def join(self) -> None:
        """Wait for the thread, after `end`. A connection that hangs is abandoned."""
        self._thread.join(max(0.0, (self._deadline or 0.0) - time.monotonic()) + _GRACE)
        with self._changed:
            lost = len(self._lines) + self._dropped - self._reported
        if lost:
            self._say(f"access logs for {self._address}: {lost} lines were not sent")

    def _run(self) -> None:
        while self._has_lines():
            connection = self._connected()
            if connection is None:
                break
            self._send(connection)
        self._disconnect()

    def _has_lines(self) -> bool:
        """Wait for a line. Returns false if the end has come and none is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._deadline is not None)
            return bool(self._lines)

    def _connected(self) -> socket.socket | None:
        """The open connection, or a new one however long that takes; None when the deadline has passed."""
        if self._connection is not None and _is_open(self._connection):
            return self._connection
        self._disconnect()
        pause, last_news = self._limits.first_pause, 0.0
        while True:
            try:
                self._connection = _connect(self._address, self._limits.patience)
            except (OSError, ValueError) as error:
                if not last_news or time.monotonic() - last_news > self._limits.reminded_every:
                    last_news = time.monotonic()
                    self._report_away(error)
            else:
                self._report_back(was_away=bool(last_news))
                return self._connection
            if self._paused(pause):
                return None
            pause = min(pause * 2, self._limits.longest_pause)

    def _paused(self, seconds: float) -> bool:
        """Wait before another attempt. Returns whether the deadline has passed."""
        with self._changed:
            self._changed.wait_for(lambda: self._deadline is not None, seconds)
            if self._deadline is None:
                return False
            if (seconds_left := self._deadline - time.monotonic()) > 0:
                self._changed.wait(min(seconds_left, self._limits.first_pause))
            return time.monotonic() >= self._deadline

    def _send(self, connection: socket.socket) -> None:
        """Send some lines. Lines that were not sent completely are sent again over the next connection."""
        batch = self._batch()
        data, sent = memoryview(b"".join(batch)), 0
        try:
            while sent < len(data):
                sent += connection.send(data[sent:])
        except OSError:
            self._disconnect()
        with self._changed:
            for line in batch:
                sent -= len(line)
                if sent < 0:
                    break
                self._lines.popleft()
                self._size -= len(line)

    def _batch(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        with self._changed:
            for line in self._lines:
                batch.append(line)
                size += len(line)
                if size >= _BATCH:
                    break
        return batch

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _report_away(self, error: Exception) -> None:
        with self._changed:
            kept, lost = len(self._lines), self._newly_dropped()
        dropped = f", {lost} were dropped" if lost else ""
        self._say(f"access logs for {self._address}: {_reason(error)}; {kept} lines are kept{dropped}")

    def _report_back(self, *, was_away: bool) -> None:
        with self._changed:
            lost = self._newly_dropped()
        if was_away or lost:
            self._say(f"access logs for {self._address}: connected{f'; {lost} lines were dropped' if lost else ''}")

    def _newly_dropped(self) -> int:
        """How many lines were dropped since the last report."""
        lost, self._reported = self._dropped - self._reported, self._dropped
        return lost


def _connect(address: str, patience: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("this is no address: write HOST:PORT")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=patience)


def _is_open(connection: socket.socket) -> bool:
    """Whether the other side has not closed the connection. Data from it is discarded."""
    try:
        while select.select([connection], [], [], 0)[0]:
            if not connection.recv(_BATCH):
                return False
    except (OSError, ValueError):
        return False
    return True


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)

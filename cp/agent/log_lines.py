"""Envoy's output. Of standard output, access log lines in envelopes go to their address, all others are passed on.

Standard error has Envoy's log, which is passed on without secrets: Envoy logs a resource that it rejects as a whole.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, Protocol

from cp.model.envelope import opened
from cp.model.envoy_dumps import DumpRedactor

_CHUNK: Final = 64 * 1024
_LONGEST: Final = 1024 * 1024
_SEND_WITHIN: Final = 2.0


class LogAddresses(Protocol):
    """Sends lines to addresses."""

    def put(self, address: str, line: bytes) -> None: ...

    def close(self, within: float) -> None: ...


@contextmanager
def forwarded_output(output: BinaryIO, key: str, addresses: LogAddresses, passed_on: BinaryIO) -> Iterator[None]:
    """Read the output until it ends, which is when Envoy does. It is always being read, so that Envoy never blocks."""
    reading = threading.Thread(target=_read, args=(output, key, addresses, passed_on), name="access logs", daemon=True)
    reading.start()
    try:
        yield
    finally:
        reading.join(_SEND_WITHIN)
        addresses.close(_SEND_WITHIN)


def _read(output: BinaryIO, key: str, addresses: LogAddresses, passed_on: BinaryIO) -> None:
    sorting = LogLineSorter(key, addresses)
    while data := os.read(output.fileno(), _CHUNK):
        _write(passed_on, sorting.take(data))
    _write(passed_on, sorting.end())


@contextmanager
def redacted_log(log: BinaryIO, passed_on: BinaryIO) -> Iterator[None]:
    """Pass the log on without its secrets, line by line, until it ends. It is always being read, as the output is."""
    reading = threading.Thread(target=_redact, args=(log, passed_on), name="log", daemon=True)
    reading.start()
    try:
        yield
    finally:
        reading.join(_SEND_WITHIN)


def _redact(log: BinaryIO, passed_on: BinaryIO) -> None:
    lines = LogLineRedactor()
    while data := os.read(log.fileno(), _CHUNK):
        _write(passed_on, lines.take(data))
    _write(passed_on, lines.end())


def _write(passed_on: BinaryIO, data: bytes) -> None:
    """Pass data on. If the reader is gone the data is lost, as it would be if Envoy wrote there itself."""
    try:
        passed_on.write(data)
        passed_on.flush()
    except (OSError, ValueError):
        return


class LogLineSorter:
    """Separates lines in envelopes from other lines; a read may end in the middle of a line."""

    def __init__(self, key: str, addresses: LogAddresses) -> None:
        self._key, self._addresses = key, addresses
        self._begun = b""

    def take(self, data: bytes) -> bytes:
        """Send the complete lines that are in envelopes, and return all others."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        kept = [line + b"\n" for line in lines if not self._is_sent(line)]
        if len(self._begun) > _LONGEST:
            kept.append(self._begun)
            self._begun = b""
        return b"".join(kept)

    def end(self) -> bytes:
        line, self._begun = self._begun, b""
        return b"" if self._is_sent(line) else line

    def _is_sent(self, line: bytes) -> bool:
        envelope = opened(line, self._key)
        if envelope is None:
            return False
        self._addresses.put(envelope.to, envelope.content)
        return True


class LogLineRedactor:
    """Redacts complete lines; a read may end in the middle of a line. A line beyond a limit is cut off there."""

    def __init__(self) -> None:
        self._dumps = DumpRedactor()
        self._begun = bytearray()
        self._left_out = 0

    def take(self, data: bytes) -> bytes:
        """Return the lines that are complete now."""
        *pieces, begun = data.split(b"\n")
        lines = [self._line(piece) + b"\n" for piece in pieces]
        self._add(begun)
        return b"".join(lines)

    def end(self) -> bytes:
        return self._line(b"")

    def _add(self, piece: bytes) -> None:
        room = _LONGEST - len(self._begun)
        self._begun += piece[:room]
        self._left_out += max(0, len(piece) - room)

    def _line(self, piece: bytes) -> bytes:
        self._add(piece)
        line, left_out = self._begun.decode(errors="surrogateescape"), self._left_out
        self._begun, self._left_out = bytearray(), 0
        try:
            shown = self._dumps.line(line).encode(errors="surrogateescape")
        except Exception:  # noqa: BLE001  # an Envoy whose log is no longer read would hang
            shown = b"[a line that cannot be redacted]"
        return shown + (f" [{left_out} more bytes]".encode() if left_out else b"")

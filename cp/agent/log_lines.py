"""Envoy's standard output: access log lines in envelopes go to their address, all other lines are passed on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, Protocol

from cp.model.envelope import opened

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

"""Envoy's standard output: lines of access logs that are for some address are sent there, all else is passed on."""

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
    """Who takes lines."""

    def put(self, address: str, line: bytes) -> None: ...

    def close(self, within: float) -> None: ...


@contextmanager
def forwarded_output(output: BinaryIO, key: str, addresses: LogAddresses, passed_on: BinaryIO) -> Iterator[None]:
    """Until the output ends, which is when Envoy does. It is read at all times, so that Envoy never waits for us."""
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
    """Where nobody reads what is passed on, it is lost, as it is where Envoy writes there itself."""
    try:
        passed_on.write(data)
        passed_on.flush()
    except (OSError, ValueError):
        return


class LogLineSorter:
    """Tells lines that are in envelopes from all others, wherever a read happens to end."""

    def __init__(self, key: str, addresses: LogAddresses) -> None:
        self._key, self._addresses = key, addresses
        self._begun = b""

    def take(self, data: bytes) -> bytes:
        """Lines go where they are for; what is for nobody is the answer."""
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

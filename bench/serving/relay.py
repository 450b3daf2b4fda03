"""A relay between a real Envoy and the control plane, which notes when each response was sent, and when answered.

So what Envoy needs for a response is told apart from what the control plane needs for it. It reads the frames of
HTTP/2 that pass, as far as they carry gRPC messages of the one stream that Envoy has.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse

_PREFACE: Final = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
_HEADER: Final = 9
_PREFIX: Final = struct.Struct(">BI")  # of a gRPC message: whether it is compressed, its length
_CHUNK: Final = 1 << 18


@dataclass(slots=True)
class Exchange:
    """A response, and Envoy's answer to it."""

    kind: str
    """The type, as a word: `RouteConfiguration`."""

    resources: int
    size: int
    sent: float
    """When the last byte of it had come from the control plane."""

    answered: float | None = None
    refused: str = ""

    @property
    def took(self) -> float:
        """How long Envoy needed for it."""
        return 0.0 if self.answered is None else self.answered - self.sent


class Messages:
    """The gRPC messages in one direction of a connection."""

    def __init__(self, preface: int = 0) -> None:
        self._left = preface
        self._bytes = bytearray()
        self._data = bytearray()

    def after(self, chunk: bytes) -> Iterator[bytes]:
        """The messages that are whole after some more bytes."""
        skipped = min(self._left, len(chunk))
        self._left -= skipped
        self._bytes += chunk[skipped:]
        self._take_frames()
        while len(self._data) >= _PREFIX.size:
            _, length = _PREFIX.unpack_from(self._data)
            if len(self._data) < _PREFIX.size + length:
                return
            yield bytes(self._data[_PREFIX.size : _PREFIX.size + length])
            del self._data[: _PREFIX.size + length]

    def _take_frames(self) -> None:
        at, end = 0, len(self._bytes)
        while end - at >= _HEADER:
            length = int.from_bytes(self._bytes[at : at + 3], "big")
            if end - at < _HEADER + length:
                break
            if self._bytes[at + 3] == 0:  # a frame of data
                self._data += self._bytes[at + _HEADER : at + _HEADER + length]
            at += _HEADER + length
        del self._bytes[:at]


class Relay:
    """Takes one connection after the other on a port of its own, and notes what passes."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._ends: list[socket.socket] = [self._listening]
        self._open: dict[str, Exchange] = {}
        self.exchanges: list[Exchange] = []
        self.began = 0.0
        """When Envoy last connected."""

        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def forget(self) -> None:
        self.exchanges = []

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                envoy, _ = self._listening.accept()
                self.began = time.monotonic()
                plane = socket.create_connection(("127.0.0.1", self._target))
                self._ends += [envoy, plane]
                self._pump(envoy, plane, Messages(_PREFACE), self._request)
                self._pump(plane, envoy, Messages(), self._response)

    def _pump(
        self, source: socket.socket, sink: socket.socket, messages: Messages, note: Callable[[bytes], None]
    ) -> None:
        def pump() -> None:
            with suppress(OSError):
                while chunk := source.recv(_CHUNK):
                    for message in messages.after(chunk):  # before Envoy has it, so that an answer finds its response
                        note(message)
                    sink.sendall(chunk)
                sink.shutdown(socket.SHUT_WR)

        threading.Thread(target=pump, daemon=True).start()

    def _response(self, message: bytes) -> None:
        response = DeltaDiscoveryResponse.FromString(message)
        kind = response.type_url.rpartition(".")[2]
        exchange = Exchange(kind, len(response.resources), len(message), time.monotonic())
        self._open[response.nonce] = exchange
        self.exchanges.append(exchange)

    def _request(self, message: bytes) -> None:
        request = DeltaDiscoveryRequest.FromString(message)
        exchange = self._open.pop(request.response_nonce, None)
        if exchange is not None:
            exchange.answered = time.monotonic()
            exchange.refused = request.error_detail.message

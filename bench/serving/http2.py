"""`Connection`: as much of HTTP/2 as one gRPC stream needs of a client, so that a thousand cost next to nothing.

It does no I/O: bytes in, messages out, and in `out` what has to be sent. Headers from the server are not decoded: that
a stream ends is all that they could say.
"""

from __future__ import annotations

import struct

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7, 0x8
_END_STREAM, _END_HEADERS, _ACK = 0x1, 0x4, 0x1
_INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE = 0x4, 0x5

_HEADER = struct.Struct(">HBBBI")  # of a frame: its length in three bytes, type, flags, stream
_PREFIX = struct.Struct(">BI")  # of a gRPC message: whether it is compressed, its length
_NUMBER = struct.Struct(">I")
_SETTING = struct.Struct(">HI")

_STREAM_WINDOW, _CONNECTION_WINDOW = 16 << 20, 24 << 20  # Envoy's
_FIRST_WINDOW = 65_535
_LARGEST_FRAME = 16_384
_REFILL = 4 << 20  # so many bytes taken, and the server may send as many again


class Ended(Exception):
    """The server ended the stream, or the connection."""


class Connection:
    __slots__ = (
        "_frame",
        "_message",
        "_needed",
        "_payload_left",
        "_taken",
        "_to_send",
        "_window",
        "_windows_first",
        "out",
    )

    def __init__(self, path: str) -> None:
        settings = _SETTING.pack(_INITIAL_WINDOW_SIZE, _STREAM_WINDOW)
        more = _CONNECTION_WINDOW - _FIRST_WINDOW
        self.out = bytearray(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, settings)
            + _frame(_WINDOW_UPDATE, 0, 0, _NUMBER.pack(more))
            + _frame(_HEADERS, _END_HEADERS, 1, _request(path))
        )
        self._frame = bytearray()  # the beginning of a frame of which the rest has not come
        self._payload_left = 0  # of the payload of a DATA frame
        self._message = bytearray()
        self._needed = 0
        self._taken = 0
        self._to_send = bytearray()
        self._window, self._windows_first = [_FIRST_WINDOW, _FIRST_WINDOW], _FIRST_WINDOW  # connection, stream

    # --- what goes out ---

    def say(self, message: bytes) -> None:
        self._to_send += _PREFIX.pack(0, len(message)) + message
        self._pump()

    def _pump(self) -> None:
        """Send as many bytes as the server's flow control window allows."""
        while self._to_send and (room := min(*self._window, _LARGEST_FRAME)) > 0:
            payload = bytes(self._to_send[:room])
            del self._to_send[:room]
            self._window = [window - len(payload) for window in self._window]
            self.out += _frame(_DATA, 0, 1, payload)

    # --- what comes in ---

    def hear(self, data: memoryview) -> list[bytearray]:
        """The messages that are complete now, each behind its prefix of five bytes."""
        whole: list[bytearray] = []
        at, end = 0, len(data)
        while at < end:
            if self._payload_left > 0:
                until = min(at + self._payload_left, end)
                self._message += data[at:until]
                self._payload_left -= until - at
                at = until
                self._collect(whole)
            else:
                at = self._next_frame(data, at)
        if self._taken >= _REFILL:
            number = _NUMBER.pack(self._taken)
            self.out += _frame(_WINDOW_UPDATE, 0, 0, number) + _frame(_WINDOW_UPDATE, 0, 1, number)
            self._taken = 0
        return whole

    def _collect(self, whole: list[bytearray]) -> None:
        message = self._message
        while len(message) >= (self._needed or _PREFIX.size):
            if self._needed == 0:
                compressed, length = _PREFIX.unpack_from(message)
                if compressed:
                    raise Ended("a compressed message, which was not asked for")
                self._needed = _PREFIX.size + length
            elif len(message) == self._needed:
                whole.append(message)
                self._message, self._needed = bytearray(), 0
                return
            else:
                whole.append(message[: self._needed])
                del message[: self._needed]
                self._needed = 0

    def _next_frame(self, data: memoryview, at: int) -> int:
        """Read a frame if it is complete, and return where the next one begins. DATA is read before it is complete."""
        frame = self._frame
        if len(frame) < _HEADER.size:
            until = at + _HEADER.size - len(frame)
            frame += data[at:until]
            if len(frame) < _HEADER.size:
                return len(data)
            at = until
        high, low, kind, flags, stream = _HEADER.unpack_from(frame)
        length = high << 8 | low
        if kind == _DATA:
            self._payload_left = length
            self._taken += length
            frame.clear()
            if flags & _END_STREAM:
                raise Ended("the server ended the stream")
            return at
        until = at + _HEADER.size + length - len(frame)
        frame += data[at:until]
        if len(frame) < _HEADER.size + length:
            return len(data)
        self._control(kind, flags, stream, bytes(frame[_HEADER.size :]))
        frame.clear()
        return int(until)

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            self._set(payload)
            self.out += _frame(_SETTINGS, _ACK, 0, b"")
        elif kind == _PING and not flags & _ACK:
            self.out += _frame(_PING, _ACK, 0, payload)
        elif kind == _WINDOW_UPDATE:
            self._window[min(stream, 1)] += _NUMBER.unpack(payload)[0]
            self._pump()
        elif kind in {_GOAWAY, _RST_STREAM} or (kind == _HEADERS and flags & _END_STREAM):
            raise Ended(f"the server ended the stream: {payload!r}")

    def _set(self, payload: bytes) -> None:
        for name, value in _SETTING.iter_unpack(payload):
            if name == _INITIAL_WINDOW_SIZE:
                self._window[1] += value - self._windows_first
                self._windows_first = value
                self._pump()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    length = len(payload)
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def _request(path: str) -> bytes:
    """The headers of a gRPC call: two from the static table, the others in full."""
    headers = {
        ":path": path,
        ":authority": "control-plane",
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "koguma-bench",
    }
    return b"\x83\x86" + b"".join(_literal(name) + _literal(value, b"") for name, value in headers.items())


def _literal(text: str, prefix: bytes = b"\0") -> bytes:
    return prefix + bytes((len(text),)) + text.encode()

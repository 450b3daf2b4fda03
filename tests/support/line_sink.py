"""Takes lines over TCP, as collectors of logs do, and can go away and come back."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.support.loopback import Address, new_address


class LineSink:
    """What came, by connection, in the order in which it came."""

    def __init__(self, address: Address | None = None) -> None:
        self.address = address or new_address()
        self.lines: list[str] = []
        self._connections: list[socket.socket] = []
        self._listening: socket.socket | None = None

    def open(self) -> None:
        """From now on it can be reached."""
        self._listening = socket.create_server(self.address)
        threading.Thread(target=self._accept, args=(self._listening,), name="sink", daemon=True).start()

    def away(self) -> None:
        """Nobody is at its address any more."""
        if self._listening is not None:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None
        for connection in self._connections:
            with suppress(OSError):  # it may have ended by itself
                connection.shutdown(socket.SHUT_RDWR)  # closing it alone would not wake up who reads
            connection.close()
        self._connections.clear()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._read, args=(connection,), name="sink's reader", daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        begun: list[bytes] = []
        while True:
            try:
                data = connection.recv(65536)
            except OSError:
                return
            if not data:
                return
            begun.append(data)
            if b"\n" in data:
                *lines, unfinished = b"".join(begun).split(b"\n")
                self.lines += [line.decode() for line in lines]
                begun = [unfinished]

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.away()

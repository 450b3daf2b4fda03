"""Servers that never end an answer, and never say nothing for long."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

CONTINUES: Final = (b"", b"HTTP/1.1 100 Continue\r\n\r\n")
HEADER: Final = (b"HTTP/1.1 200 OK\r\nx: ", b"a")
BODY: Final = (b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", b"a")
HANDSHAKE: Final = (b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb", b"a")
"""A record of TLS of which a byte comes now and then."""

ENDLESS: Final = {"continue": CONTINUES, "header": HEADER, "body": BODY}
_PAUSE: Final = 0.02


@contextmanager
def endless(answer: tuple[bytes, bytes]) -> Iterator[str]:
    """Where one listens that says the first part, and the second now and then until the block ends."""
    is_over = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer[0])
                while not is_over.wait(_PAUSE):
                    connection.sendall(answer[1])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join()

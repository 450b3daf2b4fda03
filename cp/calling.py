"""Connections to HTTP servers of others, who may take their time, but not for ever."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTP_PORT, HTTPS_PORT, HTTPConnection
from typing import Final
from urllib.parse import urlsplit

_TLS: Final = "https"


class OutgoingConnection(HTTPConnection):
    """One that another thread can end, whatever this one waits for."""

    def __init__(self, host: str, port: int, patience: float) -> None:
        super().__init__(host, port, timeout=patience)
        self.is_ended = False
        self._socket: socket.socket | None = None

    def connect(self) -> None:
        super().connect()
        self._hold(self.sock)

    def _hold(self, opened: socket.socket) -> None:
        """Keep the socket: `sock` is gone as soon as an answer is the last one on it."""
        self.sock = self._socket = opened
        if self.is_ended:
            self.end()

    def end(self) -> None:
        self.is_ended = True
        if self._socket is not None:
            with suppress(OSError):  # it is closed, or the other end was quicker
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # that of TLS is not for two threads


class _TlsConnection(OutgoingConnection):
    default_port = HTTPS_PORT

    def __init__(self, host: str, port: int, patience: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, patience)
        self._tls = context

    def connect(self) -> None:
        super().connect()
        opened = self._tls.wrap_socket(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
        self._hold(opened)
        opened.do_handshake()


def connection_to(url: str, patience: float, context: ssl.SSLContext | None = None) -> OutgoingConnection:
    """A connection to the server of a URL, not opened yet. Raises `ValueError` for what is no URL.

    `patience` is in seconds, for each part of what is sent and read.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == _TLS:
        return _TlsConnection(host, parts.port or HTTPS_PORT, patience, context or ssl.create_default_context())
    return OutgoingConnection(host, parts.port or HTTP_PORT, patience)


@contextmanager
def ended_within(connection: OutgoingConnection, seconds: float) -> Iterator[None]:
    """End a connection if the block takes longer. Raises `TimeoutError` then, whatever comes of that in the block.

    The patience of a socket is for each part alone: who sends a byte now and then is never late.
    """
    timer = threading.Timer(seconds, connection.end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if connection.is_ended:
            raise TimeoutError(f"it takes more than {seconds:g} s to answer") from error
        raise
    finally:
        timer.cancel()
    if connection.is_ended:  # what was read up to then may look whole
        raise TimeoutError(f"it takes more than {seconds:g} s to answer")

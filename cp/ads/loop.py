"""`DrainLoop`: an event loop on which gRPC does not fall behind while something else computes.

grpc.aio's poller thread writes one byte into a socket pair for each finished operation, and the loop reads back one a
turn. While turns are slow the socket fills up, the poller blocks, and there is one operation a turn: a push to a
thousand proxies took 3.8 s instead of 47 ms. So all bytes that were there are taken out with the one that it reads.
Newer versions of gRPC, which wake the loop through an eventfd, hand over a plain number and are left alone.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

_MOST = 64 * 1024  # bytes to take at once, one for each finished operation


class DrainLoop(asyncio.SelectorEventLoop):
    def add_reader(  # type: ignore[override]  # typeshed ties the arguments to the callback's, which is not needed here
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        # The bytes are wake-ups and carry no data, so one of them does for all.
        if isinstance(fd, socket.socket) and _is_of_grpc(callback):
            super().add_reader(fd, _drained, fd, callback, *args)
        else:
            super().add_reader(fd, callback, *args)


def _is_of_grpc(callback: Callable[..., Any]) -> bool:
    """gRPC binds the loop to a method of its poller; any other socket that is read carries data to be kept."""
    method = callback.func if isinstance(callback, partial) else callback
    return type(getattr(method, "__self__", None)).__name__ == "PollerCompletionQueue"


def _drained(waiting: socket.socket, callback: Callable[..., Any], *args: Any) -> None:
    bytes_waiting = len(waiting.recv(_MOST, socket.MSG_PEEK))
    # It may raise, when an operation belongs to a loop that is closed. Then it has left what is behind that one, and is
    # called again for the bytes that are still there.
    callback(*args)
    if bytes_waiting > 1:
        waiting.recv(bytes_waiting - 1)  # it has taken one itself

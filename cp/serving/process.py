"""What holds for a whole process that serves: how threads share it, how many connections it has, and that it ends."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
import threading
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from typing import Final

import structlog

_TURN: Final = 0.0005
"""Seconds for which a thread may compute while another waits. With Python's own 5 ms, and a few threads that compute,
the event loop is late by a multiple of it each time that it has waited for something."""

_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2
_LARGE_BLOCK: Final = 128 * 1024

_TLS_RECORD: Final = 16 * 1024
"""Bytes: the longest record of TLS (RFC 8446, 5.1). asyncio takes 256 KiB of memory for each connection with TLS, of
which there are thousands that are idle."""


def prepare() -> None:
    """Done once, when the process starts."""
    SSLProtocol.max_size = _TLS_RECORD
    sys.setswitchinterval(_TURN)
    _give_memory_back()
    gc.collect()
    gc.freeze()  # modules stay until the end: the collector, which all threads wait for, need not look through them
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # it may be forbidden; then there are fewer connections
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _give_memory_back() -> None:
    """Have glibc return large blocks when they are freed. See mallopt(3).

    By itself it keeps ever larger ones for later, in as many arenas as there are threads: after a burst of large
    requests the process would stay several times as large as what it holds.
    """
    with suppress(AttributeError, OSError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)


def end_within(seconds: float) -> None:
    """End the process then, though some thread still computes. To be called once everything is closed.

    Python waits for all threads, and one that works out an answer for nobody any more cannot be told to stop.
    """
    timer = threading.Timer(seconds, _end)
    timer.daemon = True
    timer.start()


def _end() -> None:
    structlog.get_logger().warning("process.cut_short", threads=[thread.name for thread in threading.enumerate()])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

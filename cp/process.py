"""What holds for a whole process that serves: how threads share it, and how many connections it may have."""

from __future__ import annotations

import gc
import resource
import sys
from contextlib import suppress
from typing import Final

_TURN: Final = 0.0005
"""Seconds for which a thread may compute while another waits. With Python's own 5 ms, and a few threads that compute,
the event loop is late by a multiple of it each time that it has waited for something."""


def prepare() -> None:
    """Done once, when the process starts."""
    sys.setswitchinterval(_TURN)
    gc.collect()
    gc.freeze()  # modules stay until the end: the collector, which all threads wait for, need not look through them
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # it may be forbidden; then there are fewer connections
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

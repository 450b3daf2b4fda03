"""Reports to systemd that the control plane is ready, alive or stopping (sd_notify(3)). Does nothing elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from socket import AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM, socket
from typing import Final

_ABSTRACT: Final = "@"
_MICROSECONDS: Final = 1_000_000
_PINGS_PER_PERIOD: Final = 3
_LOOK_EVERY: Final = 0.2
_START_STEP: Final = 30.0
"""Seconds that the start may take beyond each report that the store is still being read."""


class Supervisor:
    """The process that started this one, if it wants to know how this one is."""

    def __init__(self, address: str, watchdog: float = 0.0) -> None:
        """`address` is that of a datagram socket, empty for none; `watchdog` the longest silence in seconds, or 0."""
        self._address = f"\0{address[1:]}" if address.startswith(_ABSTRACT) else address
        self._watchdog = watchdog

    async def report_ready(self, is_ready: Callable[[], bool]) -> None:
        """Report readiness once the store is read. Until then ask for more time, so that the start isn't given up."""
        while self._address and not is_ready():
            self._send("STATUS=Reading the store", _extension(_START_STEP))
            await asyncio.sleep(_LOOK_EVERY)
        self._send("READY=1", "STATUS=Serving")

    async def keep_alive(self) -> None:
        """Report that the event loop runs, until cancelled. systemd restarts a control plane that stays silent."""
        while self._watchdog > 0:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog / _PINGS_PER_PERIOD)

    def report_stopping(self, within: float) -> None:
        """Report that the control plane drains, and the seconds that it may take."""
        self._send("STOPPING=1", "STATUS=Draining", _extension(within))

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC) as sender:  # a report is not worth a fault
            sender.sendto("\n".join(lines).encode(), self._address)


def _extension(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={int(seconds * _MICROSECONDS)}"

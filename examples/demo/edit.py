"""A policy is edited while requests go on: how long until the first of them saw it?"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

PAUSE: Final = 0.002
LONGEST: Final = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    """When, after the write began, the control plane answered it, and the first request left that saw it."""

    answered: float
    first: float | None
    sent: int


def measure(url: str, write: Callable[[], object], limit: float) -> Seen:
    """Send requests every other millisecond; the first one that is cut off after `limit` seconds saw the write.

    The backend would answer none of them in time, so how long one waits tells which timeout it left under.
    """
    return asyncio.run(_measure(url, write, limit))


async def _measure(url: str, write: Callable[[], object], limit: float) -> Seen:
    saw: list[float] = []
    async with asyncio.TaskGroup() as group:
        begun = time.monotonic()
        writing = group.create_task(asyncio.to_thread(_timed, write))
        requests: list[asyncio.Task[None]] = []
        while not saw and time.monotonic() - begun < LONGEST:
            requests.append(group.create_task(_request(url, limit, saw)))
            await asyncio.sleep(PAUSE)
        answered = await writing
        for request in requests:
            request.cancel()
    return Seen(answered - begun, min(saw) - begun if saw else None, len(requests))


def _timed(write: Callable[[], object]) -> float:
    write()
    return time.monotonic()


async def _request(url: str, limit: float, saw: list[float]) -> None:
    """Note when a request left that was cut off after about `limit` seconds."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    left = time.monotonic()
    try:
        writer.write(f"GET {parts.path}?{parts.query} HTTP/1.1\r\nhost: demo\r\nconnection: close\r\n\r\n".encode())
        status = await reader.readline()
        if b" 504 " in status and time.monotonic() - left < 2 * limit:
            saw.append(left)
    finally:
        writer.close()

"""`RevisionListener`: hears that something was written, whoever wrote it, and notices when the database is away.

A notification only says "look". Connections are lost, and with them what was told meanwhile: so it looks whenever it
has begun to listen, and every few seconds besides.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any, Final, TypeAlias

import structlog

from cp.store.clock import Clock
from cp.store.feed import RevisionSignal
from cp.store.port import Unusable
from cp.store.postgres import rows
from cp.store.postgres.connections import Connection, Database

BACKSTOP: Final = 5.0
"""Seconds after which we look even if we heard of nothing: a connection can die without a word."""

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0

NewestRevision: TypeAlias = Callable[[Connection], Awaitable[int]]


class RevisionListener:
    """Publishes news for as long as it runs."""

    def __init__(
        self, database: Database, newest: NewestRevision, news: RevisionSignal, clock: Clock, backstop: float = BACKSTOP
    ) -> None:
        """`newest` raises `Unusable` if what is there cannot be followed."""
        self._database, self._newest, self._news, self._clock = database, newest, news, clock
        self._backstop = backstop
        self._wake = asyncio.Event()
        self._seen = -1
        self.begun = asyncio.Event()
        """It listens, or knows that it cannot."""

        self.is_listening = False
        self.outage: tuple[datetime, str] | None = None
        """Since when the database is away, and why it is now."""

    async def run(self) -> None:
        """Listen until cancelled."""
        waits = pauses()
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001  # whatever it is: proxies are served on, and it is tried again
                if self.outage is None and self.is_listening:
                    waits = pauses()  # it may be this one connection: try at once
                    self.is_listening = False
                    continue
                self.is_listening = False
                self._note(error)
                await asyncio.sleep(next(waits))

    def look(self) -> None:
        """Look now, and not only when the backstop is due."""
        self._wake.set()

    def expect_more(self) -> None:
        """A reader failed: tell him again to look, once it is known that the database is there."""
        self._seen = -1
        self._wake.set()

    async def _listen(self) -> None:
        async with self._database.connected() as connection:
            connection.add_termination_listener(self._woken)
            await connection.add_listener(rows.CHANNEL, self._heard)
            while True:
                self._wake.clear()
                await self._look(connection)
                await self._until_woken(connection)

    async def _look(self, connection: Connection) -> None:
        newest = await self._newest(connection)
        self.is_listening = True
        self.begun.set()
        if self.outage is not None:
            since, _ = self.outage
            self.outage = None
            structlog.get_logger().info("store.reachable", away_since=since.isoformat())
        if newest != self._seen:
            self._seen = newest
            self._news.publish()

    async def _until_woken(self, connection: Connection) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), self._backstop)
        except TimeoutError:
            return
        if connection.is_closed():
            raise Unusable("the connection was cut")

    def _heard(self, *_: Any) -> None:
        self._news.publish()

    def _woken(self, *_: Any) -> None:
        self._wake.set()

    def _note(self, error: Exception) -> None:
        self.begun.set()
        since, reason = self.outage or (self._clock(), "")
        if reason != str(error):  # it may be another one than at the beginning, and is what is to be mended now
            self.outage = since, str(error)
            structlog.get_logger().warning("store.unreachable", reason=str(error), away_since=since.isoformat())


def pauses() -> Iterator[float]:
    """Longer and longer, and never the same for two instances that lost the database at one moment."""
    pause = _FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.5)  # noqa: S311  # spreads load, keeps no secret
        pause = min(2 * pause, _LONGEST_PAUSE)

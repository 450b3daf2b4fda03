"""`RevisionListener`: hears that something was written, whoever wrote it, and notices when the database is away.

A notification only says "look". Connections are lost, and with them what was told meanwhile: so it looks whenever it
has begun to listen, and every few seconds besides.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias

from cp.store.feed import RevisionSignal
from cp.store.port import StoreUnreachable
from cp.store.postgres import rows
from cp.store.postgres.connections import Connection, Database
from cp.store.postgres.contact import Contact

BACKSTOP: Final = 5.0
"""Seconds after which we look even if we heard of nothing: a connection can die without a word."""

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0

NewestRevision: TypeAlias = Callable[[Connection], Awaitable[int]]


class RevisionListener:
    """Publishes news for as long as it runs."""

    def __init__(
        self,
        database: Database,
        newest: NewestRevision,
        news: RevisionSignal,
        contact: Contact,
        backstop: float = BACKSTOP,
    ) -> None:
        """`newest` raises `Unusable` if what is there cannot be followed."""
        self._database, self._newest, self._news, self._contact = database, newest, news, contact
        self._backstop = backstop
        self._wake = asyncio.Event()
        self._seen = -1
        self.begun = asyncio.Event()
        """It listens, or knows that it cannot."""

        self.is_listening = False

    async def run(self) -> None:
        """Listen until cancelled."""
        waits = pauses()
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001  # whatever it is: proxies are served on, and it is tried again
                if self.is_listening:
                    waits, self.is_listening = pauses(), False
                    if self._contact.away is None and _is_cut(error):
                        continue  # it may be this one connection: try at once
                self.begun.set()
                self._contact.lose(error)
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
        losses = self._contact.losses
        newest = await self._newest(connection)
        self.is_listening = True
        self.begun.set()
        if self._contact.losses != losses:  # somebody has found out meanwhile what we did not see yet
            self._wake.set()
        elif newest != self._seen or self._contact.away is not None:
            self._contact.regain()
            self._seen = newest
            self._news.publish()

    async def _until_woken(self, connection: Connection) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), self._backstop)
        except TimeoutError:
            return
        if connection.is_closed():
            raise StoreUnreachable("the connection was cut")

    def _heard(self, *_: Any) -> None:
        self._news.publish()

    def _woken(self, *_: Any) -> None:
        self._wake.set()


def _is_cut(error: Exception) -> bool:
    """Whether a connection was cut, which one connection may be. Silence and what is not for us are of the database."""
    return isinstance(error, StoreUnreachable) and not isinstance(error.__cause__, TimeoutError)


def pauses() -> Iterator[float]:
    """Longer and longer, and never the same for two instances that lost the database at one moment."""
    pause = _FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.5)  # noqa: S311  # spreads load, keeps no secret
        pause = min(2 * pause, _LONGEST_PAUSE)

"""`SqliteRoster`: who shares an SQLite file, in two tables of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, TypeVar

from cp.store.database import reading, writing
from cp.store.database_thread import DatabaseThread
from cp.store.memory_roster import must_be_current
from cp.store.port import Closed
from cp.store.roster import FORGOTTEN_AFTER, Fence, Instance, Lease, RosterEntry

T = TypeVar("T")

_PUT: Final = """
    REPLACE INTO instances (id, name, address, authority, version, started, revision, seen)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_DATED_NOW: Final = "UPDATE instances SET seen = ? WHERE seen > ?"
_EARLIER: Final = "SELECT id FROM instances WHERE name = ? AND address = ? AND id <> ?"
_LISTED: Final = """
    SELECT id, name, address, authority, version, started, revision, seen FROM instances ORDER BY started, id
"""


class SqliteRoster:
    """The roster of the processes on one machine that share a file."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._thread = DatabaseThread(path, "koguma-roster")
        self._is_closed = False

    async def report(self, instance: Instance) -> None:
        await self._do(partial(_report, instance, self._clock))

    async def succeed(self, instance: Instance) -> None:
        await self._do(partial(_succeed, instance, self._clock))

    async def leave(self, id_: str) -> None:
        await self._do(partial(_leave, id_, self._clock()))

    async def instances(self) -> Sequence[RosterEntry]:
        return await self._do(partial(_instances, self._clock()))

    async def lease(self, name: str, holder: str, seconds: float) -> Lease:
        return await self._do(partial(_lease, name, holder, seconds, self._clock))

    async def close(self) -> None:
        self._is_closed = True
        await self._thread.close()

    async def _do(self, work: Callable[[Connection], T]) -> T:
        if self._is_closed:
            raise Closed
        return await self._thread.do(partial(_without_waiting_for_the_disk, work))


def check(connection: Connection, fence: Fence | None) -> None:
    """Within a write: raises `LeaseLost` if somebody else has taken the lease since."""
    if fence is not None:
        must_be_current(fence, dict(connection.execute("SELECT name, term FROM leases")))


def _without_waiting_for_the_disk(work: Callable[[Connection], T], connection: Connection) -> T:
    """What a power cut takes was said by processes that end with it."""
    connection.execute("PRAGMA synchronous = NORMAL")
    return work(connection)


def _succeed(instance: Instance, clock: Callable[[], float], connection: Connection) -> None:
    for (id_,) in connection.execute(_EARLIER, (instance.name, instance.address, instance.id)).fetchall():
        _leave(id_, clock(), connection)
    _report(instance, clock, connection)


def _report(instance: Instance, clock: Callable[[], float], connection: Connection) -> None:
    with writing(connection):
        now = clock()  # not before: others may have held the file for a while, and reported
        values = (*_texts(instance), instance.version, instance.started.timestamp(), instance.revision, now)
        connection.execute(_DATED_NOW, (now, now))
        connection.execute("DELETE FROM instances WHERE seen < ?", (now - FORGOTTEN_AFTER,))
        connection.execute(_PUT, values)


def _texts(instance: Instance) -> tuple[str, str, str, str]:
    return instance.id, instance.name, instance.address, instance.authority


def _leave(id_: str, now: float, connection: Connection) -> None:
    with writing(connection):
        connection.execute("DELETE FROM instances WHERE id = ?", (id_,))
        connection.execute("UPDATE leases SET ends = min(ends, ?) WHERE holder = ?", (now, id_))


def _instances(now: float, connection: Connection) -> Sequence[RosterEntry]:
    with reading(connection):
        return tuple(_entry(row, now) for row in connection.execute(_LISTED))


def _entry(row: tuple[Any, ...], now: float) -> RosterEntry:
    id_, name, address, authority, version, started, revision, seen = row
    instance = Instance(id_, name, address, authority, version, datetime.fromtimestamp(started, UTC), revision)
    return RosterEntry(instance, max(0.0, now - seen))


def _lease(name: str, holder: str, seconds: float, clock: Callable[[], float], connection: Connection) -> Lease:
    with writing(connection):
        now = clock()  # as above
        row = connection.execute("SELECT holder, term, ends FROM leases WHERE name = ?", (name,)).fetchone()
        held, term, ends = row or (holder, 1, now)
        # An end that no lease can have is of before the clock was set back.
        if held != holder and now < ends <= now + seconds:
            return Lease(name, held, term)
        lease = Lease(name, holder, term + (held != holder))
        connection.execute("REPLACE INTO leases VALUES (?, ?, ?, ?)", (name, holder, lease.term, now + seconds))
        return lease

"""`DatabaseThread`: one SQLite connection, and the one thread that uses it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from cp.store.database import connect, errors_of
from cp.store.port import Unusable

T = TypeVar("T")


class DatabaseThread:
    """Work on a database, one piece after the other, away from the event loop."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    def begin(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        return self._thread.submit(self._do, work)

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.wrap_future(self.begin(work))

    async def close(self) -> None:
        """Returns when all that was begun is done."""
        await asyncio.wrap_future(self._thread.submit(self._disconnect))
        self._thread.shutdown()

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with errors_of(self._path):
            if self._connection is None:  # here, because a connection belongs to the thread that made it
                self._file = self._identity()
                self._connection = connect(self._path)
            # SQLite would go on, in a file that has no name any longer: what it stored there would be lost.
            if self._identity() != self._file:
                raise Unusable(f"{self._path}: removed or replaced while in use; restart with the file that should be")
            return work(self._connection)

    def _identity(self) -> tuple[int, int] | None:
        """The device and the number by which the file system knows the file; None if there is none."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()

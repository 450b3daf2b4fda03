"""`SqliteStore`: documents in one SQLite file, which several processes may share.

A write is given its revision inside its transaction, beside a row in the log for each document that it changed. So
all processes agree on the order of writes, and to follow the store is to read the log.

See records 0015 and, for what is encrypted, 0061.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Final

from cp.model.names import Key
from cp.store import outcome, rows
from cp.store.at_rest import NO_SECRETS, SecretsAtRest, SecretsPolicy, encryptions, must_have_keys
from cp.store.clock import Clock, utc
from cp.store.database import Busy, connect, errors_of, impatient, prepare, reading, writing
from cp.store.database_thread import DatabaseThread
from cp.store.encrypting import judge_plain_text
from cp.store.encryption import DocumentCodec
from cp.store.feed import RevisionSignal, follow, tell
from cp.store.port import (
    UNKNOWN,
    USUAL_LIMITS,
    Author,
    Change,
    ChangeBatch,
    ChangeNote,
    Closed,
    Contents,
    Delete,
    HistoryLimits,
    Outdated,
    Put,
    Stored,
)
from cp.store.refusal import WriteRefusals
from cp.store.registrations import is_registration
from cp.store.roster import Fence
from cp.store.sqlite_roster import SqliteRoster, check
from cp.store.watch import BACKSTOP, DirectoryWatch, LookResult

_PAUSE: Final = 0.02
"""Seconds until the writes of another process are noticed, about."""


@dataclass(slots=True)
class FollowerState:
    """What was last read for somebody who follows a store."""

    encryptions: int | None = None
    """None: he has read the store and asked for nothing since."""


class SqliteStore:
    """A store on the disk of one machine. Use `open`."""

    def __init__(  # an option each
        self, path: Path, *, limits: HistoryLimits, clock: Clock, backstop: float, secrets: SecretsPolicy
    ) -> None:
        self._limits, self._clock = limits, clock
        self._codec = secrets.codec
        self._at_rest = SecretsAtRest(path, secrets)  # used in the reader's thread
        self._result = LookResult(frozenset({str(path.parent)}))
        self._writer, self._reader = DatabaseThread(path, "koguma-write"), DatabaseThread(path, "koguma-read")
        self.roster = SqliteRoster(path)
        self._news, self._refusals = RevisionSignal(), WriteRefusals(self.revision)
        self._noticed = (0, 0)
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._watch = DirectoryWatch(self._look, self._failed, pause=_PAUSE, backstop=backstop)

    @classmethod
    async def open(  # an option each
        cls,
        path: Path,
        *,
        limits: HistoryLimits = USUAL_LIMITS,
        clock: Clock = utc,
        backstop: float = BACKSTOP,
        secrets: SecretsPolicy = NO_SECRETS,
    ) -> SqliteStore:
        """Open a file, or make it. Raises `Unusable` with the reason if it cannot be used, or a key is missing."""
        prepared = await asyncio.to_thread(_prepared, path, secrets.codec)
        store = cls(prepared, limits=limits, clock=clock, backstop=backstop, secrets=secrets)
        store._watch.start()
        return store

    async def read(self) -> Contents:
        return await self._open(self._reader).do(self._contents)

    async def get(self, key: Key) -> Stored | None:
        return (await self.find(key)).get(key)

    async def find(self, *keys: Key) -> Mapping[Key, Stored]:
        return await self._open(self._reader).do(partial(_stored_by_key, keys=keys, codec=self._codec))

    async def revision(self) -> int:
        _, newest = await self._open(self._reader).do(rows.bounds)
        return newest

    async def oldest(self) -> int:
        oldest, _ = await self._open(self._reader).do(rows.bounds)
        return oldest

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
        answer = self._open(self._writer).do(partial(self._write, writes, author, fence))
        return await self._refusals.noted(answer)

    def follow(self, since: int) -> AsyncIterator[ChangeBatch]:
        return follow(self._news, since, partial(self._after, follower=FollowerState()))

    async def history(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[Change]:
        history = partial(rows.history, key=key, limit=limit, before=before, codec=self._codec)
        return await self._open(self._reader).do(history)

    async def log(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[ChangeNote]:
        log = partial(rows.log, key=key, limit=limit, before=before, codec=self._codec)
        return await self._open(self._reader).do(log)

    async def forget(self) -> None:
        eldest = self._limits.eldest(self._clock())
        if eldest is not None:
            await self._open(self._writer).do(partial(self._forget, eldest))

    @property
    def outage(self) -> str:
        return ""

    @property
    def refusal(self) -> str:
        return self._refusals.reason

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._news.close()
        await asyncio.to_thread(self._watch.stop)  # before the threads: it works on one of them
        await self.roster.close()
        await self._writer.close()
        await self._reader.close()

    def _open(self, thread: DatabaseThread) -> DatabaseThread:
        """One of our threads, as long as the store is open. Raises `Closed`."""
        if self._closed:
            raise Closed
        return thread

    async def _after(self, since: int, follower: FollowerState) -> ChangeBatch | None:
        batch = await self._open(self._reader).do(partial(self._batch, since=since, follower=follower))
        if batch is not None:
            self._refusals.note(batch.revision)
        return batch

    def _write(
        self, writes: Sequence[Put | Delete], author: Author, fence: Fence | None, connection: Connection
    ) -> int:
        with writing(connection):
            check(connection, fence)
            stored_by_key = rows.find_as_is(connection, {write.key for write in writes}, self._codec)
            _, newest = rows.bounds(connection)
            at = self._clock()
            changes = outcome.changes(outcome.dated(writes, stored_by_key, at), stored_by_key, newest + 1, at, author)
            if not changes:
                return newest
            rows.record(connection, changes, self._codec)
            if self._codec.exposes(changes):
                rows.note_plain_text(connection)
            if is_registration(changes):
                rows.forget_registrations(connection, changes[0].key, newest + 1, self._limits)
            else:
                rows.forget(connection, self._limits)
            eldest = self._limits.eldest(at)
            if eldest is not None:
                rows.forget_before(connection, eldest)
        tell(self._loop, self._news.publish)  # here: whoever called may have given up waiting, but it is written
        return newest + 1

    @staticmethod
    def _forget(moment: datetime, connection: Connection) -> None:
        if rows.has_before(connection, moment):  # else nobody has to wait for us
            with writing(connection):
                rows.forget_before(connection, moment)

    def _contents(self, connection: Connection) -> Contents:
        with reading(connection):
            _, newest = rows.bounds(connection)
            findings = self._at_rest.looked_through(connection, newest)
            return Contents(newest, rows.everything(connection, self._codec), findings)

    def _batch(self, connection: Connection, since: int, follower: FollowerState) -> ChangeBatch | None:
        with reading(connection):
            _, newest = rows.bounds(connection)
            oldest = rows.followed_from(connection)
            if not oldest <= since <= newest:
                raise Outdated(since, oldest, newest)
            count = encryptions(connection)
            if since == newest and follower.encryptions in {None, count}:
                follower.encryptions = count
                return None
            follower.encryptions = count
            changes = rows.changes_after(connection, since, self._codec)
            return ChangeBatch(newest, changes, self._at_rest.findings(connection, newest))

    def _look(self) -> LookResult:
        """Notice what others wrote: the watch calls this when the directory of the file changed."""
        self._notice(self._reader.begin(_newest).result())
        try:
            self._notice(self._writer.begin(_settled_newest).result())
        except Busy:
            return replace(self._result, looks_again=True)
        return self._result

    def _notice(self, newest: tuple[int, int]) -> None:
        if newest != self._noticed:
            self._noticed = newest
            tell(self._loop, self._news.publish)

    def _failed(self, failure: Exception) -> None:
        tell(self._loop, self._news.fail, failure)


def _prepared(path: Path, codec: DocumentCodec) -> Path:
    resolved = path.resolve()  # SQLite keeps its log of writes beside the file itself, not beside a link to it
    with errors_of(resolved):
        prepare(resolved)
        with closing(connect(resolved)) as connection:
            must_have_keys(connection, resolved, codec)
            judge_plain_text(connection, codec)
    return resolved


def _stored_by_key(connection: Connection, keys: Sequence[Key], codec: DocumentCodec) -> Mapping[Key, Stored]:
    with reading(connection):
        return rows.find(connection, keys, codec)


def _newest(connection: Connection) -> tuple[int, int]:
    """The newest revision, and how often secrets were encrypted; that something was forgotten is no news."""
    _, revision = rows.bounds(connection)
    return revision, encryptions(connection)


def _settled_newest(connection: Connection) -> tuple[int, int]:
    # The kernel tells of a commit when its last page is written, but it can be read only some milliseconds later, once
    # the disk has it, and of that nobody tells. Until then its writer holds the lock, which we would not get.
    with impatient(connection), writing(connection):
        return _newest(connection)

"""`PostgresStore`: documents in a database that control planes on several machines share.

A write locks the one row of `koguma.head`, so revisions are in the order of commits; beside it stands a row in the log
for each document that it changed. To follow the store is to read the log. See record 0079.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

import structlog

from cp.model.names import Key
from cp.store.at_rest import NO_SECRETS, SecretsPolicy
from cp.store.clock import Clock, utc
from cp.store.columns import VERSIONS, ChangeColumns, DocumentColumns, disclosed, is_sealed, last_good, readable
from cp.store.encryption import DocumentCodec
from cp.store.feed import RevisionSignal, follow
from cp.store.migrations import must_be_compatible
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
    StoreUnreachable,
    Unusable,
)
from cp.store.postgres import rows
from cp.store.postgres.address import DatabaseAddress
from cp.store.postgres.connections import Connection, Database
from cp.store.postgres.contact import Contact, Reader
from cp.store.postgres.listener import BACKSTOP, RevisionListener
from cp.store.postgres.roster import PostgresRoster
from cp.store.postgres.rows import Head
from cp.store.postgres.schema import migrate
from cp.store.postgres.secrets import SecretsInDatabase, must_have_keys, must_share_a_key, note_key
from cp.store.postgres.timeline import LastWrite, Timeline
from cp.store.postgres.transactions import WriteTransactions, beside_the_loop, size_of_rows
from cp.store.postgres.writing import WriteQueue
from cp.store.refusal import WriteRefusals
from cp.store.roster import Fence

T = TypeVar("T")

_PAUSE: Final = 0.2
"""Seconds after which a follower tries again whose question failed though the database is there."""


class PostgresStore:
    """A store that several machines share. Use `open`."""

    def __init__(  # noqa: PLR0913  # an option each
        self,
        database: Database,
        *,
        limits: HistoryLimits,
        clock: Clock,
        backstop: float,
        secrets: SecretsPolicy,
        known: int,
    ) -> None:
        self._database, self._codec, self._clock = database, secrets.codec, clock
        self._known = known
        self._secrets = SecretsInDatabase(database.address, secrets)
        self._limits = limits
        self._timeline = Timeline()
        self.roster = PostgresRoster(self._ask)
        self._news, self._refusals = RevisionSignal(), WriteRefusals(self.revision)
        self._contact = Contact(clock)
        self._listener = RevisionListener(database, self._look, self._news, self._contact, backstop)
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False
        transactions = WriteTransactions(database, self._ask, self._must_understand, self._codec, clock, limits)
        self._queue = WriteQueue(transactions.commit, limits.kept)

    @classmethod
    async def open(  # an option each
        cls,
        url: str,
        *,
        limits: HistoryLimits = USUAL_LIMITS,
        clock: Clock = utc,
        backstop: float = BACKSTOP,
        secrets: SecretsPolicy = NO_SECRETS,
    ) -> PostgresStore:
        """Make the tables if there are none. Raises `Unusable` with the reason, `ValueError` for a URL that is none."""
        database = Database(DatabaseAddress.parse(url))
        async with database.connected() as connection:
            known = await migrate(connection, database.address)
            await must_have_keys(connection, database.address, secrets.codec)
            async with connection.transaction():
                head = await rows.locked_head(connection)  # of two that begin at once one sees the key of the other
                must_share_a_key(head.secrets_keys, database.address, secrets.codec)
                await note_key(connection, secrets.codec)
        store = cls(database, limits=limits, clock=clock, backstop=backstop, secrets=secrets, known=known)
        try:
            await store._begin()
        except BaseException:
            await store.close()
            raise
        return store

    async def read(self) -> Contents:
        number = None
        while number is None:
            asked = self._timeline.seen
            head, documents = await self._ask(partial(rows.everything, known=asked.revision))
            self._must_understand(head)
            number = self._note(asked, head)
        self._timeline.note_read(head.revision, number)
        stored = await self._decoded(documents)
        return Contents(head.revision, stored, self._secrets.looked_through(documents, head.revision))

    async def get(self, key: Key) -> Stored | None:
        return (await self.find(key)).get(key)

    async def find(self, *keys: Key) -> Mapping[Key, Stored]:
        documents = await self._decoded(await self._ask(partial(rows.find, keys=keys)))
        return {stored.document.key: stored for stored in documents}

    async def revision(self) -> int:
        return (await self._ask(rows.seen_head)).revision

    async def oldest(self) -> int:
        return (await self._ask(rows.seen_head)).oldest

    async def history(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[Change]:
        changes = await self._ask(partial(rows.history, key=key, limit=limit, before=before))
        return await beside_the_loop(partial(_disclosed, changes, self._codec), len(changes), size_of_rows(changes))

    async def log(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[ChangeNote]:
        notes = await self._ask(partial(rows.log, key=key, limit=limit, before=before))
        return tuple(row.note(self._codec) for row in notes)

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
        self._must_be_there()
        try:
            answer = self._queue.write(writes, author, self._database.address.timeout, fence)
            revision = await self._refusals.noted(answer)
        except TimeoutError:
            raise StoreUnreachable(f"{self._database.address}: the writes before this one take too long") from None
        if not self._listener.is_listening:
            self._news.publish()  # else we hear of it as all others do
        return revision

    async def forget(self) -> None:
        moment = self._limits.eldest(self._clock())
        while moment is not None and (at := await self._ask(rows.eldest)) is not None and at < moment:
            await self._ask(partial(self._forget, moment))

    async def _forget(self, moment: datetime, connection: Connection) -> None:
        async with connection.transaction():
            self._must_understand(await rows.locked_head(connection))
            await rows.forget_before(connection, moment)

    def follow(self, since: int) -> AsyncIterator[ChangeBatch]:
        return self._followed(since, self._timeline.begin(since))

    async def _followed(self, since: int, number: int) -> AsyncIterator[ChangeBatch]:
        with self._contact.reading() as reader:
            async for batch in follow(self._news, since, partial(self._after, number=number, reader=reader)):
                yield batch
                self._contact.note_reader(reader)

    @property
    def outage(self) -> str:
        """Since when the database is away or not read, and why; empty while it is there and all who follow read it."""
        return self._contact.text

    @property
    def refusal(self) -> str:
        return self._refusals.reason

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._news.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._stack.aclose()

    async def _begin(self) -> None:
        await self._stack.enter_async_context(self._database.opened())
        # Not in a TaskGroup: what the store answers to a caller would reach him in a group of exceptions.
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._listen()), loop.create_task(self._queue.run())]
        await self._listener.begun.wait()

    async def _listen(self) -> None:
        try:
            await self._listener.run()
        except Exception as error:  # noqa: BLE001  # whatever it is, those who wait for news have to know
            self._news.fail(error)
        finally:
            self._listener.begun.set()

    async def _ask(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        """What the database answers. Each kept connection may have been cut: then another one is asked.

        A write may be repeated too: one that may be committed raises something else (`cp.store.postgres.transactions`).
        """
        self._must_be_there()
        tries = self._database.address.connections + 1
        for left in range(tries, 0, -1):
            try:
                async with self._database.connection() as connection:
                    return await question(connection)
            except StoreUnreachable as error:
                self._listener.look()
                is_silent = isinstance(error.__cause__, TimeoutError)
                if left == 1 or is_silent or self._contact.away is not None:
                    raise
        raise AssertionError

    def _must_be_there(self) -> None:
        if self._closed:
            raise Closed
        if self._contact.away is not None:
            raise StoreUnreachable(self._contact.text)

    async def _look(self, connection: Connection) -> int:
        asked = self._timeline.seen
        head = await rows.seen_head(connection, asked.revision)
        self._must_understand(head)
        self._note(asked, head)
        return head.revision

    def _note(self, asked: LastWrite, head: Head) -> int | None:
        """To which line of writes an answer belongs; None if it has to be asked for again."""
        number = self._timeline.note(asked, head)
        if number is not None and number != asked.number:
            self._secrets.begin_anew()
            self._news.publish()  # whoever follows is told that he has to read everything anew
            structlog.get_logger().warning("store.went_back", known_revision=asked.revision, revision=head.revision)
        return number

    def _must_understand(self, head: Head) -> None:
        """A newer version may have brought the tables up to date while this one serves, or begun to encrypt.

        Whoever finds that out, nothing can be followed from then on.
        """
        try:
            must_be_compatible(head.compatible_with, self._known, str(self._database.address))
            must_share_a_key(head.secrets_keys, self._database.address, self._codec)
        except Unusable as error:
            self._contact.lose(error)
            self._listener.look()
            raise

    async def _after(self, since: int, number: int, reader: Reader) -> ChangeBatch | None:
        if self._closed:
            raise Closed
        self._contact.note_reader(reader)
        asked, losses = self._timeline.seen, self._contact.losses
        try:
            head, changes = await self._ask(partial(rows.after, revision=since, known=asked.revision))
            self._must_understand(head)
        except Unusable as error:  # whoever follows waits until it is there again
            self._contact.lose_reader(reader, error)
            await asyncio.sleep(_PAUSE)
            self._listener.expect_more()
            return None
        answered = self._note(asked, head)
        if answered is None:
            self._news.publish()  # ask again at once
            return None
        if answered != number or not head.followed_from <= since <= head.revision:
            raise Outdated(since, head.followed_from, head.revision)
        reader.given_at = losses
        self._refusals.note(head.revision)
        if since == head.revision:
            self._contact.note_reader(reader)
            return None
        findings = self._secrets.findings_after(changes, head.revision)
        return ChangeBatch(head.revision, await self._changes(changes), findings)

    async def _changes(self, changes: Sequence[ChangeColumns]) -> tuple[Change, ...]:
        return await beside_the_loop(partial(_readable, changes, self._codec), len(changes), size_of_rows(changes))

    async def _decoded(self, documents: Sequence[DocumentColumns]) -> tuple[Stored, ...]:
        """Documents; one that cannot be decrypted is as it was last good, or is left out."""
        stored = await beside_the_loop(
            partial(_stored, documents, self._codec), len(documents), size_of_rows(documents)
        )
        good = [row if not is_sealed(row.document) else await self._last_good(row) for row in stored]
        return tuple(row for row in good if row is not None)

    async def _last_good(self, stored: Stored) -> Stored | None:
        return last_good(stored, await self.history(stored.document.key, VERSIONS))


def _stored(documents: Sequence[DocumentColumns], codec: DocumentCodec) -> list[Stored]:
    return [row.stored(codec) for row in documents]


def _disclosed(changes: Sequence[ChangeColumns], codec: DocumentCodec) -> tuple[Change, ...]:
    return tuple(disclosed(changes, codec))


def _readable(changes: Sequence[ChangeColumns], codec: DocumentCodec) -> tuple[Change, ...]:
    return tuple(readable(changes, codec))

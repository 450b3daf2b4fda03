"""`WriteTransactions`: makes queued writes together, and finds out whether a commit that was cut off was made.

before COMMIT is sent   a connection that is cut takes the transaction with it: the store asks again on another one
COMMIT is sent          nobody knows: the mark in the rows of its log is looked for on another connection
the mark is there       the writes were made, and their callers are answered so
it is not there         they were not made: `StoreUnreachable`
it cannot be known      `WriteUncertain`: nobody answers in time, or those rows are already forgotten

See record 0079.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias, TypeVar
from uuid import UUID, uuid4

from cp.model.names import Key
from cp.store import outcome
from cp.store.clock import Clock
from cp.store.columns import ChangeColumns, DocumentColumns
from cp.store.encryption import DocumentCodec
from cp.store.memory_roster import must_be_current
from cp.store.port import Change, Conflict, HistoryLimits, Stored, StoreUnreachable, Unusable, WriteUncertain
from cp.store.postgres import rows
from cp.store.postgres.connections import LOST, Connection, Database, terminate
from cp.store.postgres.listener import pauses
from cp.store.postgres.roster import terms_of
from cp.store.postgres.rows import EncodedChange, Forgetting, Head
from cp.store.postgres.writing import QueuedWrite, WriteResult
from cp.store.registrations import is_registration

T = TypeVar("T")

Ask: TypeAlias = Callable[[Callable[[Connection], Awaitable[None]]], Awaitable[None]]
"""Asks the database, on another connection where one was cut."""

PATIENCE: Final = 10.0
"""Seconds in which we try to find out whether a write was committed that was cut off."""

_MANY: Final = 200
"""Rows that are decoded or encoded in a thread, so that streams go on meanwhile."""

_LARGE: Final = 512 * 1024
"""Bytes of rows, however few, that are too."""


class WriteTransactions:
    """`must_understand` checks that the tables are still for this version. Raises `Unusable`."""

    def __init__(  # noqa: PLR0913, PLR0917  # what a transaction needs of the store
        self,
        database: Database,
        ask: Ask,
        must_understand: Callable[[Head], None],
        codec: DocumentCodec,
        clock: Clock,
        limits: HistoryLimits,
    ) -> None:
        self._database, self._ask, self._must_understand = database, ask, must_understand
        self._codec, self._clock, self._limits = codec, clock, limits

    async def commit(self, together: Sequence[QueuedWrite]) -> Sequence[WriteResult]:
        """Make writes in one transaction. Raises `WriteUncertain` where nobody can say whether it was committed."""
        mark = uuid4()
        results: list[WriteResult] = []
        try:
            await self._ask(partial(self._write, together, mark, results))
        except _CutWhileCommitting as cut:
            await self._find_out(mark, max(result for result in results if isinstance(result, int)), cut)
        return results

    async def _write(
        self, together: Sequence[QueuedWrite], mark: UUID, results: list[WriteResult], connection: Connection
    ) -> None:
        transaction = connection.transaction()
        await transaction.start()
        try:
            results[:], is_changed = await self._changed(together, mark, connection)
        except (TimeoutError, asyncio.CancelledError):  # to roll back could take as long again
            terminate(connection)
            raise
        except Exception:
            with suppress(*LOST):
                await transaction.rollback()
            raise
        try:
            await transaction.commit()
        except LOST as error:
            terminate(connection)
            if is_changed:
                raise _CutWhileCommitting from error

    async def _changed(
        self, together: Sequence[QueuedWrite], mark: UUID, connection: Connection
    ) -> tuple[list[WriteResult], bool]:
        """What each write comes to, each after those before it, and whether anything is changed."""
        head = await rows.locked_head(connection)  # until the commit nobody else writes a document
        self._must_understand(head)
        terms = await terms_of(connection, [queued.fence for queued in together])
        keys = [write.key for queued in together for write in queued.writes]
        documents = await rows.find(connection, keys)
        decide = partial(self._decided, together, head, terms, documents)
        results, recorded = await beside_the_loop(
            decide, len(keys), sum(queued.size for queued in together) + size_of_rows(documents)
        )
        if recorded:
            forgetting = Forgetting(self._limits, self._limits.eldest(recorded[-1].change.at))
            await rows.record(connection, recorded, head, forgetting, mark)
        return results, len(recorded) > 0

    def _decided(
        self,
        together: Sequence[QueuedWrite],
        head: Head,
        terms: Mapping[str, int],
        documents: Sequence[DocumentColumns],
    ) -> tuple[list[WriteResult], list[EncodedChange]]:
        stored_by_key = {stored.document.key: stored for stored in (row.stored(self._codec) for row in documents)}
        results: list[WriteResult] = []
        recorded: list[EncodedChange] = []
        revision = head.revision
        for queued in together:
            try:
                must_be_current(queued.fence, terms)
                encoded = self._encoded(queued, stored_by_key, revision + 1)
            except (Conflict, TypeError, ValueError) as error:
                results.append(error)
                continue
            for row in encoded:
                _make(row.change, stored_by_key)
            recorded += encoded
            revision += 1 if encoded else 0
            results.append(revision)
        return results, recorded

    def _encoded(self, queued: QueuedWrite, stored_by_key: Mapping[Key, Stored], revision: int) -> list[EncodedChange]:
        at = self._clock()
        dated = outcome.dated(queued.writes, stored_by_key, at)
        changes = outcome.changes(dated, stored_by_key, revision, at, queued.author)
        of_proxy = is_registration(changes)
        return [rows.encoded(change, self._codec, is_registration=of_proxy) for change in changes]

    async def _find_out(self, mark: UUID, revision: int, cut: Exception) -> None:
        """Find out whether writes up to a revision were committed. Raises if they were not, or nobody can say."""
        try:
            async with asyncio.timeout(PATIENCE):
                recorded = await self._found_out(mark, revision)
        except TimeoutError:
            raise self._uncertain("nobody can be asked whether it was") from cut
        if recorded is None:
            raise self._uncertain("what was written then is already forgotten") from cut
        if not recorded:
            raise StoreUnreachable(
                f"{self._database.address}: the connection was cut, and the change was not made: repeat it"
            )

    def _uncertain(self, reason: str) -> WriteUncertain:
        return WriteUncertain(
            f"{self._database.address}: the connection was cut while the change was committed, and {reason}: look at "
            "what is stored before you repeat it"
        )

    async def _found_out(self, mark: UUID, revision: int) -> bool | None:
        for pause in pauses():
            try:
                async with self._database.connected() as connection:
                    return await rows.was_recorded(connection, mark, revision)
            except Unusable:
                await asyncio.sleep(pause)
        raise AssertionError


class _CutWhileCommitting(Exception):
    """Nobody told us whether the transaction was committed."""


def _make(change: Change, stored_by_key: dict[Key, Stored]) -> None:
    """Keep what is stored after a change."""
    stored = outcome.stored(change, stored_by_key.pop(change.key, None))
    if stored is not None:
        stored_by_key[change.key] = stored


async def beside_the_loop(work: Callable[[], T], count: int, size: int) -> T:
    """Do some work on so many rows, of so many bytes: at once, or in a thread if it takes a while."""
    return work() if count < _MANY and size < _LARGE else await asyncio.to_thread(work)


def size_of_rows(columns: Sequence[DocumentColumns | ChangeColumns]) -> int:
    return sum(row.size for row in columns)

"""`WriteQueue`: writes that come while another is being committed are committed together, each with its own revision.

A commit waits for the disk, and holds the row that all writers lock until it is there. One transaction for all that
wait costs that once.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeAlias

from cp.store.ledger import size_of
from cp.store.port import Author, Closed, Delete, Put, StoreUnreachable, Unusable, WriteUncertain
from cp.store.postgres.rows import MOST_TOGETHER
from cp.store.roster import Fence

MOST_BYTES: Final = 4 * 1024 * 1024
"""How large their documents are at the most, unless it is one write alone: a group must not keep others for long."""

GRACE: Final = 2.0
"""Seconds that a commit has when the queue ends before it."""

WriteResult: TypeAlias = int | Exception
"""The revision reached, or why this write was not made."""


def _future() -> asyncio.Future[int]:
    return asyncio.get_running_loop().create_future()


@dataclass(frozen=True, slots=True, eq=False)
class QueuedWrite:
    """A write, and who waits for it."""

    writes: Sequence[Put | Delete]
    author: Author
    fence: Fence | None = None
    size: int = 0
    """Of its documents, in bytes, about."""

    revision: asyncio.Future[int] = field(default_factory=_future)

    def answer(self, result: WriteResult) -> None:
        if self.revision.done():  # who waited has given up; what is written is written
            return
        if isinstance(result, Exception):
            self.revision.set_exception(result)
        else:
            self.revision.set_result(result)


Commit: TypeAlias = Callable[[Sequence[QueuedWrite]], Coroutine[Any, Any, Sequence[WriteResult]]]
"""Makes writes in one transaction. Raises if none was made."""


class WriteQueue:
    """Writes of this process in the order in which they came."""

    def __init__(self, commit: Commit, most: int) -> None:
        self._commit, self._most = commit, min(most, MOST_TOGETHER)
        self._waiting: deque[QueuedWrite] = deque()
        self._wake = asyncio.Event()
        self._closed = False

    async def write(
        self, writes: Sequence[Put | Delete], author: Author, within: float, fence: Fence | None = None
    ) -> int:
        """Raises `TimeoutError` if its turn does not come within so many seconds; then it is not made."""
        if self._closed:
            raise Closed
        size = sum(size_of(write.document) for write in writes if isinstance(write, Put))
        queued = QueuedWrite(writes, author, fence, size)
        self._waiting.append(queued)
        self._wake.set()
        try:
            done, _ = await asyncio.wait([queued.revision], timeout=within)
        except asyncio.CancelledError:
            queued.revision.cancel()
            raise
        if not done and queued in self._waiting:
            self._waiting.remove(queued)
            raise TimeoutError
        return await queued.revision

    async def run(self) -> None:
        """Commit what comes, until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    await self._next()
        finally:
            self._closed = True
            self._end(self._waiting, Closed)

    async def _next(self) -> None:
        self._waiting = deque(queued for queued in self._waiting if not queued.revision.done())
        together = self._group()
        if not together:
            return
        self._waiting = deque(queued for queued in self._waiting if queued not in together)
        committing = asyncio.ensure_future(self._committed(together))  # noqa: TID251  # it outlives a first cancellation
        try:
            await asyncio.wait([committing])
        except asyncio.CancelledError:
            await self._last(committing)
            raise
        finally:
            self._answer(together, committing)

    def _group(self) -> list[QueuedWrite]:
        """Those whose turn it is: first one of each author, then a second one of each, and so on."""
        together: list[QueuedWrite] = []
        size, passed_over = 0, set[str]()
        for queued in self._in_turns():
            author = queued.author.name
            if together and (author in passed_over or size + queued.size > MOST_BYTES):
                passed_over.add(author)  # none of his may overtake it
                continue
            together.append(queued)
            size += queued.size
            if len(together) == self._most:
                break
        return together

    def _in_turns(self) -> list[QueuedWrite]:
        turns = Counter[str]()
        numbered: list[tuple[int, QueuedWrite]] = []
        for queued in self._waiting:
            numbered.append((turns[queued.author.name], queued))
            turns[queued.author.name] += 1
        return [queued for _, queued in sorted(numbered, key=itemgetter(0))]

    async def _committed(self, together: Sequence[QueuedWrite]) -> Sequence[WriteResult]:
        """If all of them cannot be made at once, each is tried alone: it may be the fault of one."""
        try:
            return await self._commit(together)
        except (StoreUnreachable, WriteUncertain):
            raise
        except Unusable:
            if len(together) == 1:
                raise
        return [await self._alone(queued) for queued in together]

    async def _alone(self, queued: QueuedWrite) -> WriteResult:
        try:
            [result] = await self._commit([queued])
        except Unusable as error:
            return error
        return result

    @staticmethod
    async def _last(committing: asyncio.Future[Sequence[WriteResult]]) -> None:
        """What is being committed at the end may be told whether it was, but keeps nobody."""
        await asyncio.wait([committing], timeout=GRACE)
        committing.cancel()
        await asyncio.wait([committing])

    def _answer(self, together: Sequence[QueuedWrite], committing: asyncio.Future[Sequence[WriteResult]]) -> None:
        if committing.cancelled() or not committing.done():
            self._end(together, _UNCERTAIN)
        elif (error := committing.exception()) is not None:
            self._end(together, partial(_another, error))
        else:
            for queued, result in zip(together, committing.result(), strict=True):
                queued.answer(result)

    @staticmethod
    def _end(waiting: Iterable[QueuedWrite], error: Callable[[], Exception]) -> None:
        for queued in waiting:
            queued.answer(error())


_UNCERTAIN: Final = partial(
    WriteUncertain, "the store was closed while the change was committed: look at what is stored before you repeat it"
)


def _another(error: BaseException) -> Exception:
    """The same for somebody else, as each who raises it writes his own way into it."""
    if isinstance(error, Unusable):
        another = type(error)(*error.args)
        another.__cause__ = error.__cause__
        return another
    return error if isinstance(error, Exception) else WriteUncertain(str(error))

"""`StoreBeside`: documents from a store that is only read, such as a folder, and what proxies register beside it.

What stands in the first is as it stands there: only whether its proxy is ready is noted beside it.
See record 0052.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import TypeAlias

from cp.model.document import Document
from cp.model.names import Key
from cp.model.registration import NOT_READY, label, labelled, unlabelled
from cp.model.violation import Finding
from cp.store import outcome
from cp.store.clock import Clock, utc
from cp.store.ledger_store import LedgerStore
from cp.store.port import (
    UNKNOWN,
    USUAL_LIMITS,
    Author,
    Change,
    Conflict,
    Contents,
    Delete,
    HistoryLimits,
    Outdated,
    Put,
    ReadOnly,
    Store,
)
from cp.store.roster import Fence

Takes: TypeAlias = Callable[[Document], bool]
"""Whether a document may be written beside."""


class StoreBeside(LedgerStore):
    """A store over two. Its revisions count what this process has seen of both. Use `combined`."""

    def __init__(self, files: Store, beside: Store, takes: Takes, *, limits: HistoryLimits, clock: Clock) -> None:
        super().__init__(limits, clock)
        self._stores = files, beside
        self._takes = takes
        self._files: dict[Key, Document] = {}
        self._beside: dict[Key, Document] = {}
        self._findings: tuple[Finding, ...] = ()
        self._findings_beside: tuple[Finding, ...] = ()
        self._seen = 0
        """The revision of the store beside up to which everything is in the ledger."""

        self._writing = asyncio.Lock()

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
        stored_by_key = self._open().stored
        self.roster.check(fence)
        async with self._writing:
            outcome.changes(writes, stored_by_key, self._contents.revision + 1, self._clock())  # raises what conflicts
            translated = [await self._translated(write) for write in writes]
            written = await self._stores[1].write(*translated, author=author)
            if written == self._seen + 1:
                self._take_beside({write.key: _after(write) for write in translated}, written, author)
        await self._until(written)
        return self._contents.revision

    async def forget(self) -> None:
        await super().forget()
        for store in self._stores:
            await store.forget()

    @property
    def outage(self) -> str:
        return "; ".join(filter(None, (store.outage for store in self._stores)))

    @property
    def refusal(self) -> str:
        return self._stores[1].refusal

    async def close(self) -> None:
        self._news.close()
        for store in self._stores:
            await store.close()

    # --- what is written ---

    async def _translated(self, write: Put | Delete) -> Put | Delete:
        """What a write comes to in the store beside. Raises `ReadOnly` for what is not for it."""
        key, file = write.key, self._files.get(write.key)
        if file is None and isinstance(write, Put) and not self._takes(write.document):
            raise ReadOnly(f"{key} is for the folder: only what proxies register is kept beside it")
        stored = await self._stores[1].get(key)
        if (None if stored is None else stored.document) != self._beside.get(key):
            raise Conflict(key, -1 if write.based_on is None else write.based_on, self._contents.revision)
        based_on = None if write.based_on is None else 0 if stored is None else stored.revision
        document = _after(write)
        if file is not None:
            document = _note(file, document)
        return Delete(key, based_on) if document is None else Put(document, based_on)

    # --- what has changed ---

    async def load(self) -> tuple[int, int]:
        """Take everything that is there; answers with the revisions from which to follow."""
        files, beside = self._stores
        of_files, of_beside = await files.read(), await beside.read()
        self._files, self._findings, self._findings_beside = _documents(of_files), of_files.findings, of_beside.findings
        self._beside, self._seen = _documents(of_beside), of_beside.revision
        wanted = self._files.keys() | self._beside.keys() | self._contents.stored.keys()
        self._enter(wanted)
        return of_files.revision, of_beside.revision

    async def follow_files(self, since: int) -> None:
        async for batch in self._stores[0].follow(since):
            async with self._writing:
                for change in batch.changes:
                    _set(self._files, change.key, change.after)
                self._findings = batch.findings
                self._enter([change.key for change in batch.changes], _author(batch.changes))

    async def follow_beside(self, since: int) -> None:
        """Writes of others; ours are in the ledger before they are heard of."""
        async for batch in self._stores[1].follow(since):
            async with self._writing:
                new = [change for change in batch.changes if change.revision > self._seen]
                for (revision, author), changes in groupby(new, key=lambda change: (change.revision, change.author)):
                    self._take_beside({change.key: change.after for change in changes}, revision, author)
                self._seen = max(self._seen, batch.revision)
                if batch.findings != self._findings_beside:
                    self._findings_beside = batch.findings
                    self._enter(())

    async def guarded(self, following: Callable[[int], Awaitable[None]], since: int) -> None:
        """Follow one of the stores. When it can be followed no longer, everybody who waits for news is told."""
        try:
            await following(since)
        except Outdated:
            self._news.fail(Outdated(since, since, self._contents.revision))
        except Exception as error:  # noqa: BLE001  # whatever it is, nothing new would be noticed any more
            self._news.fail(error)

    def _take_beside(self, documents: dict[Key, Document | None], revision: int, author: Author) -> None:
        for key, document in documents.items():
            _set(self._beside, key, document)
        self._seen = revision
        self._enter(documents, author)

    def _enter(self, keys: Iterable[Key], author: Author = UNKNOWN) -> None:
        in_force = {key: _in_force(self._files.get(key), self._beside.get(key)) for key in sorted(keys)}
        writes = [Delete(key) if document is None else Put(document) for key, document in in_force.items()]
        before = self._contents.revision
        self._contents.write(writes, self._clock(), (*self._findings, *self._findings_beside), author)
        if self._contents.revision != before or not writes:
            self._news.publish()

    async def _until(self, written: int) -> None:
        while self._seen < written and not self._news.closed:
            await self._news.after(self._news.edition)


@asynccontextmanager
async def combined(
    files: Store, beside: Store, takes: Takes, *, limits: HistoryLimits = USUAL_LIMITS, clock: Clock = utc
) -> AsyncIterator[StoreBeside]:
    """A store over two, for as long as the block lasts. It closes them."""
    store = StoreBeside(files, beside, takes, limits=limits, clock=clock)
    of_files, of_beside = await store.load()
    async with asyncio.TaskGroup() as group:
        group.create_task(store.guarded(store.follow_files, of_files))
        group.create_task(store.guarded(store.follow_beside, of_beside))
        try:
            yield store
        finally:
            await store.close()


def _in_force(file: Document | None, beside: Document | None) -> Document | None:
    if file is None or beside is None:
        return beside if file is None else file
    return labelled(file, not_ready=label(beside, NOT_READY))


def _note(file: Document, wanted: Document | None) -> Document | None:
    """What is kept beside a document of the folder: that its proxy is not ready, and nothing if it is."""
    if wanted is None or unlabelled(wanted) != file:
        raise ReadOnly(f"{file.key} stands in {file.source.file}: edit it there")
    return wanted if label(wanted, NOT_READY) else None


def _author(changes: Sequence[Change]) -> Author:
    """Who made the last of some changes, which a store that is only read tells of each."""
    return changes[-1].author if changes else UNKNOWN


def _after(write: Put | Delete) -> Document | None:
    return write.document if isinstance(write, Put) else None


def _documents(contents: Contents) -> dict[Key, Document]:
    return {stored.document.key: stored.document for stored in contents.stored}


def _set(documents: dict[Key, Document], key: Key, document: Document | None) -> None:
    if document is None:
        documents.pop(key, None)
    else:
        documents[key] = document

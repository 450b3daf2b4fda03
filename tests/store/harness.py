"""What the tests of the stores share: documents, opened stores, and someone who edits a directory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from selectors import BaseSelector
from typing import Any, TypeVar

import pytest

from cp.model.document import Document, Source
from cp.model.names import Key
from cp.model.source import read_documents
from cp.store.at_rest import SecretsPolicy
from cp.store.beside import combined
from cp.store.encryption import DocumentCodec
from cp.store.files import FilesStore
from cp.store.memory import MemoryStore
from cp.store.port import UNKNOWN, Author, Change, ChangeBatch, Contents, Delete, Put, Store, Stored
from cp.store.postgres.store import PostgresStore
from cp.store.roster import Fence
from cp.store.secrets_keys import SecretsKey, SecretsKeys
from cp.store.sqlite import SqliteStore
from tests.support.postgres import database_of
from tests.support.waiting import eventually_on_loop

T = TypeVar("T")
Scenario = Callable[[Store], Awaitable[None]]

NEVER = 3600.0
"""A backstop that no test lives to see: what is noticed is noticed because somebody told."""
DEADLINE = 30.0

ENCRYPTED = SecretsPolicy(DocumentCodec(SecretsKeys((SecretsKey.of(bytes(32)),)), lambda _key, _data: True))
"""Every document is a secret."""

WRITABLE = ("memory", "sqlite", "encrypted", "beside", "postgres", "encrypted-postgres")
ALL = (*WRITABLE, "files")


def document(name: str, value: Any = 0, *, kind: str = "MeshTimeout", source: Source | None = None) -> Document:
    data = {"type": kind, "mesh": "default", "name": name, "spec": {"value": value}}
    return Document(Key(kind, "default", name), data, source or Source())


def key(name: str) -> Key:
    return document(name).key


def put(name: str, value: Any = 0, based_on: int | None = None) -> Put:
    return Put(document(name, value), based_on)


def delete(name: str, based_on: int | None = None) -> Delete:
    return Delete(key(name), based_on)


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """What a scenario comes to. Whether it succeeds or not, it has to leave no connection open."""
    return asyncio.run(asyncio.wait_for(_until_all_is_closed(scenario), DEADLINE))


async def _until_all_is_closed(scenario: Coroutine[Any, Any, T]) -> T:
    try:
        return await scenario
    finally:  # a connection over TLS says goodbye, and waits for the answer
        await eventually_on_loop(_is_alone)


def _is_alone() -> bool:
    """Whether the loop waits for nobody but itself, which it hears through a pipe of its own."""
    selector: BaseSelector = getattr(asyncio.get_running_loop(), "_selector")  # noqa: B009  # asyncio hides it
    return len(selector.get_map()) == 1


def on(kinds: Sequence[str]) -> Callable[[Scenario], Callable[[str, Path], None]]:
    """Make a test of a scenario, for each kind of store, begun with an empty one."""

    def decorate(scenario: Scenario) -> Callable[[str, Path], None]:
        async def play(kind: str, folder: Path) -> None:
            async with opened(kind, folder) as store:
                await scenario(store)

        @pytest.mark.parametrize("kind", kinds)
        def test(kind: str, tmp_path: Path) -> None:
            run(play(kind, tmp_path))

        test.__doc__ = scenario.__doc__
        return test

    return decorate


@asynccontextmanager
async def opened(kind: str, folder: Path, **options: Any) -> AsyncIterator[Store]:
    if kind == "beside":
        root = folder / "documents"
        root.mkdir(exist_ok=True)
        files = await FilesStore.open(root, read_documents, backstop=NEVER)
        async with combined(files, MemoryStore(), lambda _: True, **options) as both:
            yield both
        return
    store = await _open(kind, folder, **options)
    try:
        yield store
    finally:
        await store.close()


async def _open(kind: str, folder: Path, **options: Any) -> Store:
    if kind == "memory":
        return MemoryStore(**options)
    if kind == "sqlite":
        return await SqliteStore.open(folder / "koguma.db", backstop=NEVER, **options)
    if kind == "encrypted":
        return await SqliteStore.open(folder / "koguma.db", backstop=NEVER, secrets=ENCRYPTED, **options)
    if kind == "postgres":
        return await PostgresStore.open(database_of(folder), backstop=NEVER, **options)
    if kind == "encrypted-postgres":
        return await PostgresStore.open(database_of(folder), backstop=NEVER, secrets=ENCRYPTED, **options)
    root = folder / "documents"
    root.mkdir(exist_ok=True)
    return Edited(await FilesStore.open(root, read_documents, backstop=NEVER, **options), root)


class Edited:
    """A directory and someone who edits it: gives the store of files the `write` that the suite needs."""

    def __init__(self, store: FilesStore, root: Path) -> None:
        self._store, self._root = store, root
        self.read, self.get, self.find = store.read, store.get, store.find
        self.history, self.log, self.revision, self.oldest = store.history, store.log, store.revision, store.oldest
        self.close, self.roster, self.forget = store.close, store.roster, store.forget

    @property
    def outage(self) -> str:
        return self._store.outage

    @property
    def refusal(self) -> str:
        return self._store.refusal

    def follow(self, since: int) -> AsyncIterator[ChangeBatch]:
        return self._store.follow(since)

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
        for write in writes:
            if isinstance(write, Put):
                self._save(write.document)
            else:
                self._path(write.key).unlink(missing_ok=True)
        return await until(self, lambda contents: all(_done(write, contents) for write in writes))

    def _save(self, document: Document) -> None:
        path = self._path(document.key)
        draft = path.with_name("." + path.name)
        draft.write_text(json.dumps(document.data))
        draft.rename(path)

    def _path(self, key: Key) -> Path:
        return self._root / f"{key.type}-{key.name}.json"


def _done(write: Put | Delete, contents: Contents) -> bool:
    wanted = write.document if isinstance(write, Put) else None
    return contained(contents).get(write.key) == wanted


def contained(contents: Contents) -> dict[Key, Document]:
    return {held.document.key: held.document for held in contents.stored}


async def until(store: Store, condition: Callable[[Contents], bool]) -> int:
    """The revision at which the store is as wanted. Waits for the store to tell; the deadline is that of `run`."""
    contents = await store.read()
    if condition(contents):
        return contents.revision
    async for _ in store.follow(contents.revision):
        contents = await store.read()
        if condition(contents):
            break
    return contents.revision


async def next_batch(store: Store, since: int) -> ChangeBatch:
    return await anext(store.follow(since))


async def batches(store: Store, since: int, until: int) -> list[ChangeBatch]:
    """What a follower is given between two revisions."""
    seen: list[ChangeBatch] = []
    async for batch in store.follow(since):
        seen.append(batch)
        if batch.revision >= until:
            break
    return seen


async def changes(store: Store, since: int, until: int) -> list[Change]:
    return [change for batch in await batches(store, since, until) for change in batch.changes]


async def held(store: Store, name: str) -> Stored:
    found = await store.get(key(name))
    assert found is not None
    return found

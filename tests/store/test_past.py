"""What was stored at an earlier revision is what was read then."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cp.model.document import Document
from cp.model.names import Key
from cp.store.at_rest import SecretsPolicy
from cp.store.encryption import DocumentCodec
from cp.store.memory import MemoryStore
from cp.store.past import PastDocuments, recent_past, recent_past_of_changed, whole_writes
from cp.store.port import Conflict, Delete, HistoryLimits, Outdated, Put, Store, Stored
from cp.store.secrets_keys import SecretsKey, SecretsKeys
from cp.store.sqlite import SqliteStore
from tests.store.harness import ALL, WRITABLE, contained, delete, document, key, on, opened, put, run

NAMES = ("a", "b", "c")
WRITES = st.lists(st.tuples(st.sampled_from(NAMES), st.none() | st.integers(0, 2)), min_size=1, max_size=3)


def mesh(name: str) -> Document:
    return Document(Key("Mesh", "", name), {"type": "Mesh", "name": name})


async def at(store: Store, revision: int) -> PastDocuments:
    past = await recent_past(store, await store.read(), revision)
    return past.at(revision)


@on(ALL)
async def test_every_revision_is_as_it_was_read(store: Store) -> None:
    read = [contained(await store.read())]
    for name, value in (("a", 1), ("b", 1), ("a", 2), ("a", None), ("a", 3), ("b", None)):
        await store.write(delete(name) if value is None else put(name, value))
        read.append(contained(await store.read()))

    past = await recent_past(store, await store.read(), 0)
    assert [past.at(revision).documents for revision in range(len(read))] == read
    assert past.changed_between(2, 4) == (key("a"),)


@on(WRITABLE)
async def test_what_has_changed_is_told_without_reading_everything(store: Store) -> None:
    await store.write(put("a", 1), put("b", 1))
    await store.write(put("a", 2), Put(mesh("default")))
    await store.write(put("a", 3))

    past = await recent_past_of_changed(store, 2)
    assert {held.document.key.name for held in past.contents.stored} == {"a", "default"}
    assert past.at(2).documents[key("a")] == document("a", 2)
    whole = await recent_past_of_changed(store, 1)
    assert {held.document.key.name for held in whole.contents.stored} == {"a", "b", "default"}


class Hurried:
    """A store in which somebody writes while documents are looked for, so often."""

    def __init__(self, store: Store, writes: list[tuple[Put | Delete, ...]]) -> None:
        self._store, self._writes = store, writes
        self.read, self.history = store.read, store.history
        self.revision, self.oldest = store.revision, store.oldest

    async def find(self, *keys: Key) -> Mapping[Key, Stored]:
        if self._writes:
            await self._store.write(*self._writes.pop(0))
        return await self._store.find(*keys)


@on(WRITABLE)
async def test_what_somebody_writes_meanwhile_is_read_as_a_whole_or_not_at_all(store: Store) -> None:
    """Else a rollback takes back half of a write that it has not seen."""
    await store.write(put("a", 1), put("b", 1))
    await store.write(put("a", 2))
    hurried = cast("Store", Hurried(store, [(put("a", 3), put("b", 3)), (delete("b"),), (put("c", 3),)]))

    past = await recent_past_of_changed(hurried, 1)
    assert {held.document.key: held.revision for held in past.contents.stored} == {key("a"): 3}
    assert set(past.changed_between(1, past.newest)) == {key("a"), key("b")}
    assert past.at(1).documents == {key("a"): document("a", 1), key("b"): document("b", 1)}


@on(WRITABLE)
async def test_what_never_holds_still_is_a_conflict(store: Store) -> None:
    await store.write(put("a", 1))
    await store.write(put("a", 2))

    with pytest.raises(Conflict):
        await recent_past_of_changed(cast("Store", Hurried(store, [(put("a", value),) for value in range(3, 30)])), 1)


@settings(deadline=None)
@given(st.lists(WRITES, max_size=12))
def test_whatever_is_written_every_revision_can_be_gone_back_to(writes: list[list[tuple[str, int | None]]]) -> None:
    async def scenario() -> None:
        store, read = MemoryStore(), {}
        for together in writes:
            wanted = [delete(name) if value is None else put(name, value) for name, value in together]
            revision = await store.write(*wanted)
            read[revision] = contained(await store.read())
        for revision, documents in read.items():
            assert (await at(store, revision)).documents == documents

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", WRITABLE)
def test_what_is_forgotten_or_not_there_yet_cannot_be_gone_back_to(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path, limits=HistoryLimits(kept=2)) as store:
            for value in range(4):
                await store.write(put("a", value))
            assert (await at(store, 2)).documents == {key("a"): document("a", 1)}
            for revision in (1, 5):
                with pytest.raises(Outdated):
                    await at(store, revision)

    run(scenario())


@on(WRITABLE)
async def test_a_page_of_the_history_has_no_part_of_a_write(store: Store) -> None:
    await store.write(*(put(name, 1) for name in NAMES))
    await store.write(put("a", 2))
    await store.write(*(put(name, 3) for name in NAMES))

    pages: tuple[tuple[int, int | None, list[int]], ...] = (
        (2, None, [3, 3, 3, 2]),
        (4, None, [3, 3, 3, 2]),
        (5, 3, [2, 1, 1, 1]),
        (9, 1, []),
    )
    for limit, before, revisions in pages:
        page = await whole_writes(partial(store.history, None), limit, before)
        assert [change.revision for change in page] == revisions


def policy(key_of_secrets: int) -> SecretsPolicy:
    keys = SecretsKeys((SecretsKey.of(bytes([key_of_secrets]) * 32),))
    return SecretsPolicy(DocumentCodec(keys, lambda _key, _data: True))


def test_a_document_that_no_key_decrypts_is_told_and_not_taken_for_absent(tmp_path: Path) -> None:
    """A rollback that took it for absent would delete it."""

    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "koguma.db", secrets=policy(1))
        await store.write(put("a", 1))
        await store.write(put("b", 1))
        await store.close()
        _damage(tmp_path / "koguma.db", "a")
        store = await SqliteStore.open(tmp_path / "koguma.db", secrets=policy(1))
        await store.write(put("a", 2))
        past = await at(store, 2)
        await store.close()
        assert (set(past.documents), set(past.unreadable)) == ({key("b")}, {key("a")})

    run(scenario())


def _damage(path: Path, name: str) -> None:
    connection = sqlite3.connect(path)
    sealed = '"koguma-aes256gcm-1:x:00000000:AAAA"'
    connection.execute("UPDATE documents SET data = ? WHERE name = ?", (sealed, name))
    connection.execute("UPDATE changes SET after = ? WHERE name = ?", (sealed, name))
    connection.commit()
    connection.close()

"""What proxies register, beside documents that are only read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.model.registration import NOT_READY, OWNER, label, labelled
from cp.resources.secret import secret_document
from cp.store.beside import StoreBeside, combined
from cp.store.memory import MemoryStore
from cp.store.open import open_store
from cp.store.port import Conflict, Delete, Put, ReadOnly, Store
from tests.store.harness import document, next_batch, run

FILE, OWN = document("file", kind="Dataplane"), labelled(document("own", kind="Dataplane"), owner="one")


@asynccontextmanager
async def both() -> AsyncIterator[tuple[StoreBeside, MemoryStore, MemoryStore]]:
    files, beside = MemoryStore(), MemoryStore()
    await files.write(Put(FILE))
    async with combined(files, beside, lambda document: document.key.type == "Dataplane") as store:
        yield store, files, beside


async def held(store: Store, wanted: Document) -> Document | None:
    stored = await store.get(wanted.key)
    return None if stored is None else stored.document


def test_what_is_registered_is_beside_what_stands_in_files() -> None:
    async def scenario() -> None:
        async with both() as (store, files, beside):
            await store.write(Put(OWN))
            assert [one.document for one in (await store.read()).stored] == [FILE, OWN]
            assert await held(beside, OWN) == OWN
            assert await held(files, OWN) is None
            await store.write(Delete(OWN.key))
            assert await held(store, OWN) is await held(beside, OWN) is None

    run(scenario())


def test_secrets_are_written_beside_a_folder_only_if_they_were_made_here(tmp_path: Path) -> None:
    """People may name theirs as they like, and those stand in the folder."""
    made = secret_document(Key("Secret", "default", "payments-private-key"), b"x")
    theirs = Document(made.key, {field: value for field, value in made.data.items() if field != "labels"})

    async def scenario() -> None:
        async with open_store(f"dir:{tmp_path}", "memory:") as store:
            with pytest.raises(ReadOnly):
                await store.write(Put(theirs))
            await store.write(Put(made))
            assert await held(store, made) == made
            await store.write(Delete(made.key))
            assert await held(store, made) is None

    run(scenario())


def test_only_what_proxies_register_is_written() -> None:
    async def scenario() -> None:
        async with both() as (store, _, beside):
            for refused in (
                Put(document("policy")),
                Put(document("file", 1, kind="Dataplane")),
                Delete(FILE.key),
            ):
                with pytest.raises(ReadOnly):
                    await store.write(refused)
            assert (await beside.read()).stored == ()

    run(scenario())


def test_whether_a_proxy_from_a_file_is_ready_is_noted_beside_the_file_and_outlives_an_edit_of_it() -> None:
    async def scenario() -> None:
        async with both() as (store, files, beside):
            revision = await store.write(Put(labelled(FILE, not_ready="one")))
            assert label(await held(store, FILE) or FILE, NOT_READY) == "one"
            await files.write(Put(edited := document("file", 2, kind="Dataplane")))
            await next_batch(store, revision)
            assert await held(store, FILE) == labelled(edited, not_ready="one")

            await store.write(Put(edited))
            assert await held(store, FILE) == edited
            assert (await beside.read()).stored == ()

    run(scenario())


def test_a_file_wins_over_what_was_registered_under_its_name_and_gives_way_when_it_goes() -> None:
    async def scenario() -> None:
        async with both() as (store, files, _):
            revision = await store.write(Put(OWN))
            await files.write(Put(by_hand := document("own", 7, kind="Dataplane")))
            await next_batch(store, revision)
            found = await held(store, OWN)
            assert found == by_hand
            assert label(by_hand, OWNER) == ""
            await files.write(Delete(OWN.key))
            await next_batch(store, revision + 1)
            assert await held(store, OWN) == OWN

    run(scenario())


def test_what_another_process_wrote_beside_is_noticed_and_not_written_over() -> None:
    async def scenario() -> None:
        async with both() as (store, _, beside):
            revision = await store.write(Put(OWN))
            await beside.write(Put(theirs := labelled(OWN, owner="two")))
            with pytest.raises(Conflict):
                await store.write(Delete(OWN.key, revision))
            await next_batch(store, revision)
            assert await held(store, OWN) == theirs

    run(scenario())


def test_a_store_beside_which_cannot_be_followed_any_more_ends_those_who_follow() -> None:
    async def scenario() -> None:
        async with both() as (store, _, beside):
            revision = await store.revision()
            beside._news.fail(OSError("the disk is gone"))
            with pytest.raises(OSError, match="the disk is gone"):
                await next_batch(store, revision)

    run(scenario())

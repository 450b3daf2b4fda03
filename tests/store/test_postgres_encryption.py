"""Secrets in PostgreSQL are encrypted anew while control planes use the database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cp.store.encryption import DocumentCodec
from cp.store.port import Unusable
from cp.store.postgres import encrypting
from cp.store.postgres.encrypting import count_secrets, encrypt_all
from cp.store.secrets_keys import SecretsKey, SecretsKeys
from tests.store.harness import contained, document, held, put, run
from tests.store.test_postgres import BACKSTOP, encrypted_with, opened, query
from tests.support.postgres import needs_postgres, shared_postgres
from tests.support.waiting import eventually_on_loop

OLD, NEW, STRANGE = (SecretsKey.of(bytes(31) + bytes([number])) for number in (1, 2, 3))
SEVERAL = 7


def codec(*keys: SecretsKey) -> DocumentCodec:
    return DocumentCodec(SecretsKeys(keys), lambda _key, _data: True, frozenset({"MeshTimeout"}))


@pytest.fixture
def url() -> str:
    needs_postgres()
    return shared_postgres().new_url()


def texts(url: str) -> str:
    statement = "SELECT data::text FROM koguma.documents UNION ALL SELECT concat(before, after) FROM koguma.changes"
    return str(query(url, statement))


def test_every_row_is_encrypted_whatever_the_size_of_a_step_and_no_revision_is_made(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            for number in range(SEVERAL):
                await store.write(put(f"t{number}", "a secret"), put("changed", f"a secret {number}"))
            before, revision = await store.read(), await store.revision()
        assert (await count_secrets(url, codec(NEW))).plain == SEVERAL + 1

        result = await encrypt_all(url, codec(NEW), step=2)

        assert (result.documents, result.changes, result.left.is_all_in_order) == (SEVERAL + 1, 2 * SEVERAL, True)
        again = await encrypt_all(url, codec(NEW), step=2)
        assert (again.documents, again.changes) == (0, 0)
        async with opened(url, secrets=encrypted_with(NEW)) as store:
            assert (contained(await store.read()), await store.revision()) == (contained(before), revision)

    run(scenario())
    assert "a secret" not in texts(url)


def test_nothing_is_lost_of_what_is_written_meanwhile(url: str) -> None:
    async def scenario() -> None:
        async with opened(url, secrets=encrypted_with(OLD, NEW)) as store:
            await store.write(*(put(f"t{number}", "old") for number in range(SEVERAL)))

            async def written() -> None:
                for number in range(SEVERAL):
                    await store.write(put(f"t{number}", "new"))

            async with asyncio.TaskGroup() as group:
                group.create_task(written())
                group.create_task(encrypt_all(url, codec(NEW, OLD), step=1))
            for number in range(SEVERAL):
                assert (await held(store, f"t{number}")).document == document(f"t{number}", "new")
        assert (await encrypt_all(url, codec(NEW, OLD))).left.is_all_in_order

    run(scenario())


def test_ended_in_the_middle_it_goes_on_where_it_was(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_steps = encrypting._in_steps

    async def ended(*arguments: Any) -> int:
        await in_steps(*arguments)
        raise KeyError

    async def scenario() -> None:
        async with opened(url, secrets=encrypted_with(OLD)) as store:
            await store.write(put("a", "a secret"))
        with monkeypatch.context() as patched:
            patched.setattr(encrypting, "_in_steps", ended)
            with pytest.raises(KeyError):
                await encrypt_all(url, codec(NEW, OLD))
        left = await count_secrets(url, codec(NEW, OLD))
        assert (left.in_order, left.old_changes) == (1, 1)

        assert (await encrypt_all(url, codec(NEW, OLD))).left.is_all_in_order

    run(scenario())


def test_who_shares_no_key_with_control_planes_encrypts_nothing(url: str) -> None:
    async def scenario() -> None:
        async with opened(url, secrets=encrypted_with(OLD)) as store:
            await store.write(put("a", "a secret"))
            before = texts(url)
            with pytest.raises(Unusable, match="other control planes encrypt secrets here"):
                await encrypt_all(url, codec(STRANGE))
        assert texts(url) == before

    run(scenario())


def test_a_control_plane_that_does_not_know_the_new_key_is_told_and_overwrites_nothing(url: str) -> None:
    async def scenario() -> None:
        async with opened(url, secrets=encrypted_with(OLD), backstop=BACKSTOP) as store:
            await store.write(put("a", "a secret"))
            await encrypt_all(url, codec(NEW, OLD))

            await eventually_on_loop(lambda: "other control planes encrypt secrets here" in store.outage)
            with pytest.raises(Unusable, match="which is not configured"):
                await store.write(put("a", "another"))

    run(scenario())

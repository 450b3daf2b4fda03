"""Copies into and out of PostgreSQL, with Koguma's commands and with those that the guide names."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.serving.storage import secrets_policy
from cp.settings import load
from cp.store.open import is_there, open_store
from cp.store.port import Change, Put
from tests.cli.conftest import Koguma
from tests.support.postgres import binaries, needs_postgres, shared_postgres

VALUE = "b2YgdGhlIG1lc2g="


@pytest.fixture(autouse=True)
def _there_is_postgres() -> None:
    needs_postgres()


async def _write(url: str) -> None:
    async with open_store(url) as store:
        for number in range(3):
            await store.write(Put(Document(Key("Mesh", "", f"m{number}"), {"type": "Mesh", "name": f"m{number}"})))


async def _read(url: str) -> tuple[dict[Key, tuple[Document, str]], list[Change]]:
    async with open_store(url) as store:
        held = [stored.document for stored in (await store.read()).stored]
        history = list(await store.history())
        return {document.key: (document, document.source.created) for document in held}, history


def test_a_file_is_copied_to_a_database_and_back(offline: Koguma, tmp_path: Path) -> None:
    first, database, last = (
        f"sqlite:///{tmp_path}/first.db",
        shared_postgres().new_url(),
        f"sqlite:///{tmp_path}/last.db",
    )
    asyncio.run(_write(first))

    for source, target in ((first, database), (database, last)):
        ended = offline("store", "copy", source, target)
        assert (ended.status, ended.err) == (0, "")
    (before, _), (between, _), (after, _) = (asyncio.run(_read(url)) for url in (first, database, last))
    assert before == between == after
    assert len(before) == 3


def test_a_database_without_a_store_is_told_and_left_as_it_is(offline: Koguma, tmp_path: Path) -> None:
    url = shared_postgres().new_url()

    ended = offline("store", "copy", url, f"sqlite:///{tmp_path}/new.db")
    assert (ended.status, "there is no store" in ended.err) == (1, True)
    assert not asyncio.run(is_there(url))
    assert not (tmp_path / "new.db").exists()


def test_a_copy_to_a_second_database_is_encrypted(
    offline: Koguma, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, target = (shared_postgres().new_url() for _ in range(2))
    asyncio.run(_write_secret(source))
    assert offline("generate", "secrets-key", tmp_path / "keys").status == 0
    monkeypatch.setenv("KOGUMA_SECRETS_KEY_FILE", str(tmp_path / "keys"))

    assert offline("store", "copy", source, target).status == 0

    assert asyncio.run(_hints(target)) == []
    stored = shared_postgres().execute("SELECT data::text FROM koguma.documents", urlsplit(target).path[1:])
    assert len(stored) == 1
    assert VALUE not in str(stored)


def test_a_database_is_encrypted_in_place_and_its_key_rotated(
    offline: Koguma, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url, keys = shared_postgres().new_url(), tmp_path / "keys"
    asyncio.run(_write_secret(url))
    monkeypatch.setenv("KOGUMA_SECRETS_KEY_FILE", str(keys))
    offline("generate", "secrets-key", keys, "--id", "one")
    assert [hint for hint in asyncio.run(_hints(url)) if "koguma secrets encrypt" in hint]

    assert offline("secrets", "encrypt", "--store", url, "--dry-run").lines == [
        "0 documents encrypted with the first key",
        "1 document in plain text",
        "1 entry of the history in plain text",
    ]
    assert VALUE in _all_of(url)
    assert offline("secrets", "encrypt", "--store", url).lines == [
        "encrypted anew: 1 document, 1 entry of the history",
        "1 document encrypted with the first key",
    ]
    assert VALUE not in _all_of(url)
    assert asyncio.run(_hints(url)) == []

    offline("generate", "secrets-key", keys, "--id", "two")
    assert [hint for hint in asyncio.run(_hints(url)) if "koguma secrets encrypt" in hint]
    assert offline("secrets", "encrypt", "--store", url).status == 0
    keys.write_text(keys.read_text().splitlines()[0])
    assert asyncio.run(_hints(url)) == []
    assert asyncio.run(_value(url)) == VALUE

    keys.unlink()
    offline("generate", "secrets-key", keys)
    assert "which is not configured" in offline("secrets", "encrypt", "--store", url).err
    assert offline("secrets", "encrypt", "--store", url, "--discard-unreadable").lines == [
        "encrypted anew: 0 documents, 0 entries of the history",
        "deleted: 1 document that no key decrypts",
        "0 documents encrypted with the first key",
    ]
    assert asyncio.run(_value(url)) is None


def test_a_database_without_a_store_is_not_encrypted(
    offline: Koguma, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = shared_postgres().new_url()
    offline("generate", "secrets-key", tmp_path / "keys")
    monkeypatch.setenv("KOGUMA_SECRETS_KEY_FILE", str(tmp_path / "keys"))

    assert "there is no store" in offline("secrets", "encrypt", "--store", url).err
    assert not asyncio.run(is_there(url))


def _all_of(url: str) -> str:
    query = "SELECT data::text FROM koguma.documents UNION ALL SELECT concat(before, after) FROM koguma.changes"
    return str(shared_postgres().execute(query, urlsplit(url).path[1:]))


async def _value(url: str) -> str | None:
    async with open_store(url, secrets=secrets_policy(load(store=url))) as store:
        stored = await store.get(Key("Secret", "default", "s"))
    return None if stored is None else stored.document.data["data"]


async def _write_secret(url: str) -> None:
    key = Key("Secret", "default", "s")
    data = {"type": "Secret", "mesh": "default", "name": "s", "data": VALUE}
    async with open_store(url, secrets=secrets_policy(load(store=url))) as store:
        await store.write(Put(Document(key, data)))


async def _hints(url: str) -> list[str]:
    async with open_store(url, secrets=secrets_policy(load(store=url))) as store:
        return [finding.hint for finding in (await store.read()).findings]


def test_a_dump_is_restored_with_its_history(tmp_path: Path) -> None:
    """As docs/guides/look-back.md has it, over tables that are there already."""
    source, target = (shared_postgres().new_url() for _ in range(2))
    asyncio.run(_write(source))
    asyncio.run(_write(target))

    dump = tmp_path / "koguma.dump"
    _run("pg_dump", source, "--format=custom", "--schema=koguma", f"--file={dump}")
    _run("pg_restore", target, "--clean", "--if-exists", f"{dump}")
    assert asyncio.run(_read(target)) == asyncio.run(_read(source))


def _run(program: str, url: str, *arguments: str) -> None:
    folder, parts = binaries(), urlsplit(url)
    assert folder is not None
    where = (f"--host={parts.hostname}", f"--port={parts.port}", f"--username={parts.username}")
    command = [str(folder / program), *where, f"--dbname={parts.path[1:]}", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr

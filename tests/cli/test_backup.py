"""A copy of the store has every write that was answered before it, and can be started from."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.store.port import Put
from cp.store.sqlite import SqliteStore
from tests.cli.conftest import Ended, Koguma


def named(name: str) -> Document:
    return Document(Key("Mesh", "", name), {"type": "Mesh", "name": name})


async def _written(path: Path, koguma: Koguma, copy: Path) -> tuple[int, Ended]:
    """The last revision of a store that is open, and how a copy was made of it."""
    store = await SqliteStore.open(path)
    try:
        revision = 0
        for number in range(50):
            revision = await store.write(Put(named(f"m{number}")))
        return revision, await asyncio.to_thread(koguma, "backup", copy, "--store", f"sqlite:///{path}")
    finally:
        await store.close()


async def _read(path: Path) -> tuple[int, int]:
    store = await SqliteStore.open(path)
    try:
        contents = await store.read()
        return contents.revision, len(list(contents.stored))
    finally:
        await store.close()


def test_a_copy_of_a_store_in_use_has_everything(offline: Koguma, tmp_path: Path) -> None:
    revision, ended = asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))

    assert (ended.status, ended.err) == (0, "")
    assert asyncio.run(_read(tmp_path / "copy.db")) == (revision, 50)


def test_a_file_that_is_there_is_not_written_over(offline: Koguma, tmp_path: Path) -> None:
    (there := tmp_path / "copy.db").write_text("mine")
    _, ended = asyncio.run(_written(tmp_path / "koguma.db", offline, there))

    assert ended.status == 1
    assert there.read_text() == "mine"


@pytest.mark.parametrize(
    ("store", "message"),
    [("dir:/nowhere", "is no store in SQLite"), ("memory:", "is no store in SQLite"), ("sqlite:////no/db", "no store")],
)
def test_what_cannot_be_copied_is_told(offline: Koguma, tmp_path: Path, store: str, message: str) -> None:
    ended = offline("backup", tmp_path / "copy.db", "--store", store)

    assert ended.status == 1
    assert message in ended.err
    assert not (tmp_path / "copy.db").exists()


def test_a_folder_that_is_not_there_is_told(offline: Koguma, tmp_path: Path) -> None:
    _, ended = asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "nowhere" / "copy.db"))

    assert ended.status == 1
    assert "cannot be written: No such file or directory" in ended.err


def test_a_copy_is_for_its_owner_alone(offline: Koguma, tmp_path: Path) -> None:
    """Secrets are in it."""
    _, ended = asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))

    assert ended.status == 0, ended.err
    assert (tmp_path / "copy.db").stat().st_mode & 0o077 == 0

"""A copy of the store has every write that was answered before it, and can be started from."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cp.model.document import Document
from cp.model.made_here import MADE_HERE
from cp.model.names import Key
from cp.model.registration import OWNER
from cp.model.secret_names import is_trust_record
from cp.resources.rollout import ROLLOUT_KIND
from cp.store.open import open_store
from cp.store.port import Put
from cp.store.sqlite import SqliteStore
from tests.cli.conftest import Ended, Koguma
from tests.random_mesh import mesh_of


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


async def _ages(path: Path) -> dict[Key, str]:
    store = await SqliteStore.open(path)
    try:
        return {held.document.key: held.document.source.created for held in (await store.read()).stored}
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


def test_what_is_restored_is_as_old_as_it_was(offline: Koguma, tmp_path: Path) -> None:
    asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))

    assert asyncio.run(_ages(tmp_path / "copy.db")) == asyncio.run(_ages(tmp_path / "koguma.db"))
    assert "" not in asyncio.run(_ages(tmp_path / "copy.db")).values()


def test_a_file_that_is_there_is_not_written_over(offline: Koguma, tmp_path: Path) -> None:
    (there := tmp_path / "copy.db").write_text("mine")
    _, ended = asyncio.run(_written(tmp_path / "koguma.db", offline, there))

    assert ended.status == 1
    assert there.read_text() == "mine"


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("postgres://me@db/mesh", "a store in PostgreSQL is backed up with its own tools"),
        ("postgresql://me@db/mesh", "a store in PostgreSQL is backed up with its own tools"),
        ("postgresq://me:secret@db/mesh", "postgresq://me:[redacted]@db/mesh is no store in SQLite"),
        ("dir:/nowhere", "is no store in SQLite"),
        ("memory:", "is no store in SQLite"),
        ("sqlite:////no/db", "no store"),
    ],
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


# --- restore ------------------------------------------------------------------------------------------------


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM documents").fetchone()
file = open(sys.argv[1], "r+b")  # open to the end: closed, it would take the locks of this process with it
file.write(b"garbage, no database at all")
file.flush()
print("held", flush=True)
sys.stdin.read()
"""
"""A process that has a store open, which is damaged meanwhile."""


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """While a process has the store open, which is damaged meanwhile."""
    command = (sys.executable, "-c", HOLDER, str(path))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.communicate()


def _damage(path: Path, beginning: bytes) -> None:
    with path.open("r+b") as file:
        file.write(beginning)


def _restored(koguma: Koguma, folder: Path, *options: str) -> Ended:
    return koguma("restore", folder / "copy.db", "--store", f"sqlite:///{folder / 'koguma.db'}", *options)


async def _written_after(path: Path) -> int:
    store = await SqliteStore.open(path)
    try:
        return await store.write(Put(named("later")))
    finally:
        await store.close()


def test_a_backup_takes_the_place_of_a_store_that_is_kept(offline: Koguma, tmp_path: Path) -> None:
    revision, _ = asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))
    asyncio.run(_written_after(tmp_path / "koguma.db"))

    ended = _restored(offline, tmp_path, "--replace")
    assert (ended.status, ended.err) == (0, "")
    assert asyncio.run(_read(tmp_path / "koguma.db")) == (revision, 50)
    assert asyncio.run(_read(tmp_path / "koguma.db.before-1")) == (revision + 1, 51)
    assert asyncio.run(_read(tmp_path / "copy.db")) == (revision, 50)
    assert (tmp_path / "koguma.db").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir() if "restored" in path.name] == []


def test_a_backup_is_restored_where_there_is_no_store(offline: Koguma, tmp_path: Path) -> None:
    asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))

    ended = offline("restore", tmp_path / "copy.db", "--store", f"sqlite:///{tmp_path}/new/koguma.db")
    assert (ended.status, ended.lines[0].endswith("at revision 50")) == (0, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
@pytest.mark.parametrize(("is_there", "owner"), [(True, (5, 6)), (False, (4, 4))])
def test_what_root_restores_belongs_to_the_user_of_the_store_or_of_its_folder(
    offline: Koguma, tmp_path: Path, is_there: bool, owner: tuple[int, int]
) -> None:
    asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))
    (folder := tmp_path / "new").mkdir()
    os.chown(folder, 4, 4)
    if is_there:
        (tmp_path / "koguma.db").rename(folder / "koguma.db")
        os.chown(folder / "koguma.db", 5, 6)

    ended = offline("restore", tmp_path / "copy.db", "--store", f"sqlite:///{folder}/koguma.db", "--replace")

    restored = (folder / "koguma.db").stat()
    assert (ended.status, restored.st_uid, restored.st_gid) == (0, *owner)


def test_a_backup_is_only_read(offline: Koguma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be in a folder, or on a medium, that can only be read."""
    asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy #1?.db"))
    opened, connect = list[str](), sqlite3.connect

    def noted(database: str | Path, **options: Any) -> sqlite3.Connection:
        opened.append(str(database))
        connection: sqlite3.Connection = connect(database, **options)
        return connection

    monkeypatch.setattr("cp.cli.backup.sqlite3.connect", noted)
    ended = offline("restore", tmp_path / "copy #1?.db", "--store", f"sqlite:///{tmp_path}/new.db")
    assert (ended.status, ended.err) == (0, "")
    assert [name.partition("?")[2] for name in opened if "copy" in name] == ["mode=ro&immutable=1"]


def test_a_store_is_not_replaced_unasked(offline: Koguma, tmp_path: Path) -> None:
    asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))

    ended = _restored(offline, tmp_path)
    assert (ended.status, "there is a store" in ended.err) == (1, True)


def test_a_store_in_use_is_not_replaced(offline: Koguma, tmp_path: Path) -> None:
    async def scenario() -> Ended:
        store = await SqliteStore.open(tmp_path / "koguma.db")
        try:
            await store.write(Put(named("held")))
            return await asyncio.to_thread(_restored, offline, tmp_path, "--replace")
        finally:
            await store.close()

    asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))
    ended = asyncio.run(scenario())
    assert (ended.status, "is in use" in ended.err) == (1, True)
    assert asyncio.run(_read(tmp_path / "koguma.db")) == (51, 51)


KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("DELETE FROM documents")
connection.commit()
os._exit(0)  # as if killed: what it wrote stays beside the file
"""


def test_what_is_left_of_a_store_that_is_gone_does_not_get_into_the_restored_one(
    offline: Koguma, tmp_path: Path
) -> None:
    revision, _ = asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))
    subprocess.run((sys.executable, "-c", KILLED, str(tmp_path / "koguma.db")), check=True)
    (tmp_path / "koguma.db").unlink()
    left = (tmp_path / "koguma.db-wal").read_bytes()

    ended = _restored(offline, tmp_path)
    assert (ended.status, ended.err) == (0, "")
    assert asyncio.run(_read(tmp_path / "koguma.db")) == (revision, 50)
    assert (tmp_path / "koguma.db.before-1-wal").read_bytes() == left


def test_a_store_whose_file_is_gone_may_be_in_use(offline: Koguma, tmp_path: Path) -> None:
    asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))
    with _held(tmp_path / "koguma.db"):
        (tmp_path / "koguma.db").unlink()
        ended = _restored(offline, tmp_path)

    assert (ended.status, "is in use" in ended.err) == (1, True)
    assert not (tmp_path / "koguma.db").exists()


@pytest.mark.parametrize(
    "beginning", [b"garbage, no database at all", b"SQLite format 3\0" + b"\xff" * 84], ids=["other", "torn"]
)
def test_a_store_that_is_damaged_is_replaced(offline: Koguma, tmp_path: Path, beginning: bytes) -> None:
    """What is wrong with it is why somebody restores a backup."""
    revision, _ = asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))
    _damage(tmp_path / "koguma.db", beginning)

    ended = _restored(offline, tmp_path, "--replace")
    assert (ended.status, ended.err) == (0, "")
    assert asyncio.run(_read(tmp_path / "koguma.db")) == (revision, 50)
    assert (tmp_path / "koguma.db.before-1").read_bytes().startswith(beginning)


def test_a_store_that_is_damaged_and_in_use_is_not_replaced(offline: Koguma, tmp_path: Path) -> None:
    asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))
    with _held(tmp_path / "koguma.db"):
        ended = _restored(offline, tmp_path, "--replace")

    assert (ended.status, "is in use" in ended.err) == (1, True)
    assert not (tmp_path / "koguma.db.before-1").exists()


def test_what_is_no_backup_changes_nothing(offline: Koguma, tmp_path: Path) -> None:
    asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))
    (tmp_path / "copy.db").write_bytes(b"no database at all" * 100)

    ended = _restored(offline, tmp_path, "--replace")
    assert (ended.status, "cannot be copied" in ended.err) == (1, True)
    assert asyncio.run(_read(tmp_path / "koguma.db")) == (50, 50)
    (tmp_path / "copy.db").unlink()
    assert "there is no backup" in _restored(offline, tmp_path).err


def test_a_database_of_another_program_is_no_backup(offline: Koguma, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "copy.db")) as connection:
        connection.execute("CREATE TABLE mine (x)")

    ended = _restored(offline, tmp_path)
    assert (ended.status, "a database of another program" in ended.err) == (1, True)
    assert not (tmp_path / "koguma.db").exists()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_store_in_postgresql_has_tools_of_its_own(offline: Koguma, tmp_path: Path, scheme: str) -> None:
    ended = offline("backup", tmp_path / "copy.db", "--store", f"{scheme}://db.example/koguma")

    assert (ended.status, "pg_dump" in ended.err) == (1, True)


@pytest.mark.parametrize("command", [("backup", "copy.db", "--store", "URL"), ("store", "copy", "URL", "memory")])
@pytest.mark.parametrize("password", ["hunter2", "hun@ter2", "hun/ter2"])
def test_a_password_is_not_shown_where_the_scheme_is_mistyped(
    offline: Koguma, command: tuple[str, ...], password: str
) -> None:
    url = f"postgre://koguma:{password}@db.example/mesh"

    ended = offline(*(url if word == "URL" else word for word in command))
    assert (ended.status, "ter2" in ended.err, "koguma:[redacted]@db.example" in ended.err) == (1, False, True)


# --- from one store to another ------------------------------------------------------------------------------


async def _documents(url: str) -> tuple[int, dict[Key, tuple[Document, str]]]:
    async with open_store(url) as store:
        contents = await store.read()
        held = {stored.document.key: stored.document for stored in contents.stored}
        return contents.revision, {key: (document, document.source.created) for key, document in held.items()}


def test_all_resources_are_copied_to_another_store_as_old_as_they_were(offline: Koguma, tmp_path: Path) -> None:
    asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("koguma", "new")]

    ended = offline("store", "copy", *urls)
    assert (ended.status, ended.lines) == (0, [f"50 resources of revision 50 are in {urls[1]}, without their history"])
    (_, before), (revision, after) = (asyncio.run(_documents(url)) for url in urls)
    assert (revision, after) == (1, before)


def test_a_store_with_something_in_it_is_not_copied_to(offline: Koguma, tmp_path: Path) -> None:
    asyncio.run(_written(tmp_path / "koguma.db", offline, tmp_path / "copy.db"))

    ended = offline("store", "copy", *(f"sqlite:///{tmp_path}/{name}.db" for name in ("koguma", "copy")))
    assert (ended.status, "is not empty" in ended.err) == (1, True)


def test_a_store_that_is_not_there_is_told_and_not_made(offline: Koguma, tmp_path: Path) -> None:
    """Its name is mistyped, and a copy of nothing would look like success."""
    missing = {f"sqlite:///{tmp_path}/typo.db": "there is no store", f"dir:{tmp_path}/typo": "there is no such folder"}
    for source, told in missing.items():
        ended = offline("store", "copy", source, f"sqlite:///{tmp_path}/new.db")
        assert (ended.status, told in ended.err) == (1, True), ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_which_something_cannot_be_read_is_not_copied(offline: Koguma, tmp_path: Path) -> None:
    (tmp_path / "mesh").mkdir()
    (tmp_path / "mesh" / "mesh.yaml").write_text("type: Mesh\nname: default\n")

    copied = offline("store", "copy", f"dir:{tmp_path}/mesh", f"sqlite:///{tmp_path}/koguma.db")
    assert (copied.status, copied.lines[0].startswith("1 resources")) == (0, True)
    (tmp_path / "mesh" / "more.yaml").write_text("type: [")
    broken = offline("store", "copy", f"dir:{tmp_path}/mesh", f"sqlite:///{tmp_path}/other.db")
    assert (broken.status, "not all of it can be read" in broken.err) == (1, True)


def in_default(kind: str, name: str, **fields: Any) -> Document:
    return Document(Key(kind, "default", name), {"type": kind, "mesh": "default", "name": name, **fields})


NETWORKING = {"address": "192.0.2.1", "inbound": [{"port": 8080, "tags": {"kuma.io/service": "web"}}]}
BY_PEOPLE = [
    named("default"),
    in_default("Dataplane", "fixed", networking=NETWORKING),
    in_default("Secret", "theirs", data="c2VjcmV0LW9mLXRoZWlycw=="),
]
BY_MACHINES = [
    in_default("Dataplane", "web-1", networking=NETWORKING, labels={OWNER: "run-1"}),
    in_default("Secret", "default.ca-builtin-key-ca-1", data="eA==", labels=dict(MADE_HERE)),
]


async def _write(url: str, documents: Sequence[Document]) -> None:
    async with open_store(url) as store:
        for document in documents:
            await store.write(Put(document))


def test_a_folder_and_the_store_beside_it_are_copied_to_and_back(
    offline: Koguma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = (f"sqlite:///{tmp_path}/{name}.db" for name in ("first", "last"))
    folder, beside = tmp_path / "mesh", f"sqlite:///{tmp_path}/beside.db"
    asyncio.run(_write(first, [*BY_PEOPLE, *BY_MACHINES]))
    monkeypatch.setenv("KOGUMA_REGISTRATIONS", beside)

    copies = [offline("store", "copy", *urls) for urls in ((first, f"dir:{folder}"), (f"dir:{folder}", last))]
    assert [(ended.status, ended.err) for ended in copies] == [(0, "")] * 2
    assert asyncio.run(_documents(first))[1] == asyncio.run(_documents(last))[1]
    assert asyncio.run(_documents(beside))[1].keys() == {document.key for document in BY_MACHINES}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    again = offline("store", "copy", first, f"dir:{folder}")
    assert (again.status, "no empty folder" in again.err) == (1, True)


def test_what_machines_write_is_not_copied_to_a_folder_alone(offline: Koguma, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/koguma.db"
    asyncio.run(_write(url, [*BY_PEOPLE, *BY_MACHINES]))

    refused = offline("store", "copy", url, f"dir:{tmp_path}/mesh")
    assert (refused.status, "KOGUMA_REGISTRATIONS" in refused.err) == (1, True)
    assert not (tmp_path / "mesh").exists()


def test_rollouts_are_not_copied_to_a_folder(offline: Koguma, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/koguma.db"
    asyncio.run(_write(url, [*BY_PEOPLE, in_default(ROLLOUT_KIND, "latest")]))

    copied = offline("store", "copy", url, f"dir:{tmp_path}/mesh")
    assert (copied.status, copied.lines[0].partition(" of")[0]) == (0, "3 resources")
    assert copied.err == "Warning: not copied, as there are no rollouts in a folder: Rollout default/latest\n"


@pytest.mark.parametrize("seed", range(5))
def test_random_meshes_are_in_a_folder_as_they_were(offline: Koguma, tmp_path: Path, seed: int) -> None:
    """Not in the order of their names, which would decide between policies in files that say no age."""
    documents = [document for document in mesh_of(seed).read() if not is_trust_record(document.key)]
    url = f"sqlite:///{tmp_path}/koguma.db"
    asyncio.run(_write(url, documents[::-1]))

    ended = offline("store", "copy", url, f"dir:{tmp_path}/mesh")
    assert (ended.status, ended.err) == (0, "")
    assert asyncio.run(_documents(f"dir:{tmp_path}/mesh"))[1] == asyncio.run(_documents(url))[1]


def test_a_store_in_memory_is_not_copied(offline: Koguma, tmp_path: Path) -> None:
    assert offline("store", "copy", "memory:", f"sqlite:///{tmp_path}/koguma.db").status == 2


def test_the_file_of_settings_names_the_store(offline: Koguma, tmp_path: Path) -> None:
    path, copy, config = tmp_path / "served" / "koguma.db", tmp_path / "copy.db", tmp_path / "koguma.yaml"
    path.parent.mkdir()
    asyncio.run(_written(path, offline, tmp_path / "first.db"))
    config.write_text(f"store: sqlite:///{path}\n")

    ended = offline("backup", "--config", config, copy)
    assert (ended.status, ended.out) == (0, f"copied {path} to {copy}\n")
    assert offline("restore", "--config", config, copy, "--replace").lines[0].startswith(f"{path} is as {copy} has it")
    assert offline("store", "copy", "--config", config, f"sqlite:///{path}", f"sqlite:///{tmp_path}/new.db").status == 0
    told = offline("secrets", "encrypt", "--config", config, "--dry-run")
    assert "there is no key" in told.err
    assert "--config" in offline("backup", tmp_path / "other.db").err

"""From a URL to a store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cp.model.document import Document
from cp.model.made_here import MADE_HERE
from cp.store.files import FilesStore
from cp.store.memory import MemoryStore
from cp.store.open import open_store
from cp.store.port import ABSENT, Closed, Put, ReadOnly, Store
from cp.store.sqlite import SqliteStore
from tests.identity.meshes import secret
from tests.store.harness import contained, key, put, run


async def kind(url: str) -> type[Store]:
    async with open_store(url) as store:
        await store.read()
    with pytest.raises(Closed):
        await store.read()
    return type(store)


def test_each_scheme_opens_its_store_and_closes_it_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mesh").mkdir()

    assert run(kind("memory:")) is MemoryStore
    assert run(kind("sqlite:///here.db")) is SqliteStore
    assert run(kind(f"sqlite:///{tmp_path}/there.db")) is SqliteStore
    assert run(kind("dir:mesh")) is FilesStore
    assert run(kind(f"dir:{tmp_path}/mesh")) is FilesStore
    assert {path.name for path in tmp_path.iterdir()} == {"here.db", "there.db", "mesh"}


def test_a_directory_is_read_as_yaml(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("type: MeshTimeout\nname: a\n")

    async def scenario() -> None:
        async with open_store(f"dir:{tmp_path}") as store:
            assert list(contained(await store.read())) == [key("a")]

    run(scenario())


def test_a_file_is_found_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_store(f"sqlite:///{tmp_path}/koguma.db") as store:
            await store.write(put("a"))
        async with open_store(f"sqlite:///{tmp_path}/koguma.db") as store:
            assert list(contained(await store.read())) == [key("a")]

    run(scenario())


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresq://koguma:hunter2@db/mesh", "postgresq://koguma:[redacted]@db/mesh"),
        ("postgres+x://koguma:hunter2/@2@db/mesh", "postgres+x://koguma:[redacted]@db/mesh"),
        ("sqlite://:hunter2@", "sqlite://:[redacted]@"),
        ("postgresql:koguma:hunter2@db/mesh", "postgresql:koguma:[redacted]@db/mesh"),
        ("postgresql:/koguma:hunter2@db/mesh", "postgresql:/koguma:[redacted]@db/mesh"),
        ("host=db user=koguma password=hunter2", "host=db user=koguma password=[redacted]"),
        ("postgresq://koguma@db/mesh?sslpassword=hunter2&a=b", "postgresq://koguma@db/mesh?sslpassword=[redacted]&a=b"),
    ],
)
def test_a_password_is_not_shown_where_the_scheme_is_mistyped(url: str, shown: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"there is no store {shown!r}:")) as refusal:
        run(kind(url))
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    ["", "redis://localhost", "sqlite:", "sqlite:koguma.db", "sqlite://koguma.db", "sqlite:///", "dir:", "memory"],
)
def test_any_other_url_is_answered_with_what_is_possible(url: str) -> None:
    expected = (
        f"there is no store {url!r}: a store is sqlite:///PATH (from the root: sqlite:////PATH), "
        "postgresql://USER@HOST:PORT/DATABASE, dir:PATH or memory:"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        run(kind(url))


def made_here(name: str) -> Document:
    """A Secret as the control plane writes its own."""
    document = secret(name, b"x")
    return Document(document.key, {**document.data, "labels": dict(MADE_HERE)})


def test_authorities_are_kept_beside_a_folder_and_nothing_else_that_is_secret(tmp_path: Path) -> None:
    (tmp_path / "mesh").mkdir()
    trust, made = made_here("default.ca-trust"), made_here("default.ca-builtin-key-ca-1")
    beside = f"sqlite:///{tmp_path}/koguma.db"

    async def scenario() -> None:
        async with open_store(f"dir:{tmp_path}/mesh", beside) as store:
            await store.write(Put(trust, ABSENT), Put(made, ABSENT))
            for named in ("ours", "default.ca-builtin-key-ca-2"):
                with pytest.raises(ReadOnly):
                    await store.write(Put(secret(named, b"x")))
        async with open_store(f"dir:{tmp_path}/mesh", beside) as store:
            assert set(contained(await store.read())) == {trust.key, made.key}

    run(scenario())

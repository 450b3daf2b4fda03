"""Keys for the secrets in the store, and their encryption, from the command line."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from cp.ads.loop import DrainLoop
from cp.app import control_plane
from cp.cli.run import _make_work_dir
from cp.settings import load
from cp.store.encrypting import encrypt_all
from cp.store.secrets_keys import SecretsKey, SecretsKeys
from tests.cli.conftest import Koguma
from tests.store.harness import run
from tests.store.secrets import codec, exposed, secret, secret_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a secret in plain text."""
    (tmp_path / "store").mkdir()
    path = tmp_path / "store" / "koguma.db"

    async def write() -> None:
        async with secret_store(path) as opened:
            await opened.write(secret("a", 1), secret("b", 2))

    run(write())
    return path


def test_a_key_is_printed_and_can_be_read_back(offline: Koguma) -> None:
    first, second = offline("generate", "secrets-key"), offline("generate", "secrets-key", "--id", "prod-2")

    assert (first.status, second.status) == (0, 0)
    keys = SecretsKeys.parse(first.out + second.out, "output").keys
    assert (keys[0].id, keys[1].id) == (keys[0].fingerprint, "prod-2")


def test_a_new_key_becomes_the_first_of_a_file_for_its_owner_alone(offline: Koguma, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    previous = os.umask(0)
    try:
        for id_ in ("one", "two"):
            assert offline("generate", "secrets-key", file, "--id", id_).out == f"the first key in {file} is {id_}\n"
            assert file.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(previous)

    assert [key.id for key in SecretsKeys.read(file).keys] == ["two", "one"]
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]


@pytest.mark.parametrize("content", ["", "a poem\n"])
def test_a_file_of_something_else_is_left_as_it_is(offline: Koguma, tmp_path: Path, content: str) -> None:
    (file := tmp_path / "keys").write_text(content)

    assert offline("generate", "secrets-key", file).status == 1
    assert file.read_text() == content


def test_an_id_that_is_there_already_is_refused(offline: Koguma, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    assert offline("generate", "secrets-key", file, "--id", "a").status == 0
    before = file.read_text()
    ended = offline("generate", "secrets-key", file, "--id", "a")

    assert (ended.status, file.read_text()) == (1, before)
    assert "has a key a already" in ended.err


@pytest.mark.parametrize("id_", ["a b", "a:b", "x" * 64, "-a"])
def test_what_is_no_id_is_refused(offline: Koguma, id_: str) -> None:
    assert "is no id of a key" in offline("generate", "secrets-key", f"--id={id_}").err


def test_a_store_is_encrypted_and_its_key_rotated(
    offline: Koguma, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, keys = f"sqlite:///{store}", tmp_path / "keys"
    monkeypatch.setenv("KOGUMA_SECRETS_KEY_FILE", str(keys))
    offline("generate", "secrets-key", keys, "--id", "one")

    assert offline("secrets", "encrypt", "--store", url, "--dry-run").lines == [
        "0 documents encrypted with the first key",
        "2 documents in plain text",
        "2 entries of the history in plain text",
    ]
    assert exposed(store, range(3)) == {1, 2}
    assert offline("secrets", "encrypt", "--store", url).lines == [
        "encrypted anew: 2 documents, 2 entries of the history",
        "2 documents encrypted with the first key",
    ]
    assert exposed(store, range(3)) == set()

    offline("generate", "secrets-key", keys, "--id", "two")
    assert (
        offline("secrets", "encrypt", "--store", url, "--dry-run").lines[1] == "2 documents encrypted with another key"
    )
    assert offline("secrets", "encrypt", "--store", url).status == 0
    keys.write_text(keys.read_text().splitlines()[0])
    assert offline("secrets", "encrypt", "--store", url, "--dry-run").lines == [
        "2 documents encrypted with the first key"
    ]

    keys.unlink()
    offline("generate", "secrets-key", keys)
    ended = offline("secrets", "encrypt", "--store", url)
    assert (ended.status, ended.lines[-1]) == (1, "2 documents that no key decrypts")
    assert offline("secrets", "encrypt", "--store", url, "--discard-unreadable").lines == [
        "encrypted anew: 0 documents, 0 entries of the history",
        "deleted: 2 documents that no key decrypts",
        "0 documents encrypted with the first key",
    ]


@pytest.mark.parametrize(
    ("url", "message"),
    [("dir:/nowhere", "is no store in SQLite"), ("memory:", "is no store in SQLite"), ("sqlite:////no/db", "no store")],
)
def test_a_store_that_cannot_be_encrypted_is_told_of(offline: Koguma, url: str, message: str) -> None:
    assert message in offline("secrets", "encrypt", "--store", url).err


def test_the_password_of_a_store_that_cannot_be_encrypted_is_not_shown(offline: Koguma) -> None:
    ended = offline("secrets", "encrypt", "--store", "postgresq://koguma:hunter2@db/mesh")

    assert (ended.status, "hunter2" in ended.err) == (1, False)
    assert "postgresq://koguma:[redacted]@db/mesh is no store in SQLite or PostgreSQL" in ended.err


def test_without_a_key_there_is_nothing_to_encrypt_with(offline: Koguma, store: Path) -> None:
    ended = offline("secrets", "encrypt", "--store", f"sqlite:///{store}")

    assert ended.status == 1
    assert "there is no key" in ended.err
    assert "KOGUMA_SECRETS_KEY_FILE" in ended.err
    assert exposed(store, range(3)) == {1, 2}


def test_a_key_that_is_no_key_is_not_shown(offline: Koguma, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOGUMA_SECRETS_KEY", "prod:not-quite-a-key-and-still-nobodys-business")
    ended = offline("secrets", "encrypt", "--store", f"sqlite:///{store}")

    assert ended.status == 1
    assert "KOGUMA_SECRETS_KEY, line 1: the key is not base64" in ended.err
    assert "business" not in ended.out + ended.err


def test_only_one_place_of_keys_is_named(
    offline: Koguma, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOGUMA_SECRETS_KEY", "a")
    monkeypatch.setenv("KOGUMA_SECRETS_KEY_FILE", str(tmp_path))

    assert "both set" in offline("secrets", "encrypt", "--store", f"sqlite:///{store}").err


def test_the_control_plane_is_told_which_key_is_missing(
    offline: Koguma, store: Path, monkeypatch: pytest.MonkeyPatch, own_logging: None
) -> None:
    monkeypatch.setenv("KOGUMA_SECRETS_KEY", offline("generate", "secrets-key", "--id", "lost").out)
    offline("secrets", "encrypt", "--store", f"sqlite:///{store}")
    monkeypatch.setenv("KOGUMA_SECRETS_KEY", offline("generate", "secrets-key", "--id", "lost").out)
    ended = offline("run", "--store", f"sqlite:///{store}")

    assert ended.status == 1
    assert "2 documents are encrypted with the key lost (" in ended.err
    assert "which is not configured" in ended.err


def test_a_work_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        _make_work_dir(load(work_dir=tmp_path / "a" / "work"))
    finally:
        os.umask(previous)

    assert (tmp_path / "a" / "work").stat().st_mode & 0o777 == 0o700


def _run(serving: Coroutine[Any, Any, dict[str, str]]) -> dict[str, str]:
    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        return runner.run(serving)


async def _served(store: Path, log: Path, **options: str) -> dict[str, str]:
    """What a control plane answers about itself and its findings, after a Secret was written to it."""
    settings = load(
        store=f"sqlite:///{store}", work_dir=log.parent, ads_port=0, http_port=0, diagnostics_port=0, **options
    )
    with log.open("w") as out:
        structlog.configure(logger_factory=structlog.WriteLoggerFactory(out))
        try:
            async with control_plane(settings) as running, httpx.AsyncClient() as client:
                address = f"http://127.0.0.1:{running.http_port}"
                document = secret("c", 3).document.data
                answer = await client.put(f"{address}/meshes/default/secrets/c", json=document)
                assert answer.status_code == 201, answer.text
                return {path: (await client.get(address + path)).text for path in ("/config", "/_lint")}
        finally:
            structlog.reset_defaults()


def test_a_control_plane_with_a_key_stores_no_secret_in_plain_text_and_shows_no_key(
    store: Path, tmp_path: Path
) -> None:
    key = SecretsKey.generate("prod")
    encrypt_all(store, codec(key))
    answers = _run(_served(store, tmp_path / "log", secrets_key=key.line))
    outputs = "".join(answers.values()) + (tmp_path / "log").read_text()

    assert exposed(store, range(5)) == set()
    assert key.line.partition(":")[2] not in outputs
    assert "secrets-in-plain-text" not in outputs


def test_a_control_plane_without_a_key_says_so_in_its_log_and_to_lint(store: Path, tmp_path: Path) -> None:
    answers = _run(_served(store, tmp_path / "log"))

    for output in (answers["/_lint"], (tmp_path / "log").read_text()):
        assert "secrets-in-plain-text" in output
        assert "koguma generate secrets-key FILE" in output

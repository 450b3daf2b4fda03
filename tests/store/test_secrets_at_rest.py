"""Secrets in SQLite: encrypted in every file if there is a key, and told of if they are not."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cp.cli.backup import _copy
from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import read_documents
from cp.serving.storage import secrets_policy
from cp.settings import load
from cp.store import database
from cp.store.at_rest import SecretsPolicy, open_to_others
from cp.store.beside import combined
from cp.store.encrypting import SecretsCount, count_secrets, encrypt_all
from cp.store.files import FilesStore
from cp.store.port import Delete, HistoryLimits, Put, Store, Unusable
from cp.store.sqlite import SqliteStore
from tests.store.harness import NEVER, next_batch, put, run, until
from tests.store.secrets import NEW, OLD, codec, exposed, secret, secret_store, service_outside, value

A = Key("Secret", "default", "a")
A_KEY = f"new:{base64.b64encode(NEW.secret).decode()}"
STRANGER = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir(0o700)
    return tmp_path / "store" / "koguma.db"


def query(path: Path, text: str, *values: object) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(text, values).fetchall()


async def codes(store: Store) -> list[str]:
    return [finding.code for finding in (await store.read()).findings]


async def shown(store: Store) -> list[str]:
    return [str(finding) for finding in (await store.read()).findings]


async def data(store: Store, name: str) -> object:
    stored = await store.get(Key("Secret", "default", name))
    return None if stored is None else stored.document.data["data"]


def damage(path: Path, table: str, column: str) -> None:
    """Swap two characters in the middle of what is encrypted there."""
    [(number, text)] = query(path, f"SELECT max(rowid), {column} FROM {table} WHERE name = 'a'")  # noqa: S608  # ours
    middle = len(text) * 3 // 4
    swapped = text[:middle] + ("A" if text[middle] != "A" else "B") + text[middle + 1 :]
    query(path, f"UPDATE {table} SET {column} = ? WHERE rowid = ?", swapped, number)  # noqa: S608  # ours


# --- nothing of a secret is on the disk ---------------------------------------------------------------------


async def _everything_that_happens_to_secrets(store: Store) -> None:
    await store.write(secret("a", 1), secret("b", 2), service_outside("c", 3))
    await store.write(secret("a", 4))
    await store.write(Delete(Key("Secret", "default", "b")))
    for turn in range(5):
        await store.write(secret("d", 5 + turn), put(f"t{turn}"))


def test_no_secret_is_in_any_file_at_any_time(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path, NEW, limits=HistoryLimits(kept=3)) as store:
            await _everything_that_happens_to_secrets(store)
            assert (path.parent / "koguma.db-wal").stat().st_size > 0
            assert exposed(path, range(1, 10)) == set()
            assert await data(store, "a") == value(4)
            _copy(path, path.parent / "copy.db")
        assert exposed(path, range(1, 10)) == set()
        assert await codes_after(path) == []

    run(scenario())


async def codes_after(path: Path) -> list[str]:
    async with secret_store(path, NEW) as store:
        return await codes(store)


def test_without_a_key_the_same_look_finds_them(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path) as store:
            await _everything_that_happens_to_secrets(store)
            assert exposed(path, range(1, 10)) == set(range(1, 10))

    run(scenario())


def test_what_holds_no_secret_is_stored_as_ever(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path, NEW) as store:
            await store.write(put("t", 7), secret("a", 1))
            plain = service_outside("c", 1)
            plain.document.data["spec"].pop("tls")
            await store.write(plain)

    run(scenario())
    stored = query(path, "SELECT type, json_type(data) FROM documents ORDER BY type")
    assert stored == [("MeshExternalService", "object"), ("MeshTimeout", "object"), ("Secret", "text")]


def test_the_same_secret_again_is_no_change(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path, NEW) as store:
            assert await store.write(secret("a", 1)) == 1
            assert await store.write(secret("a", 1)) == 1
            assert await store.write(secret("a", 2)) == 2

    run(scenario())


def test_files_of_the_store_are_for_their_owner_alone(path: Path) -> None:
    async def scenario() -> None:
        previous = os.umask(0)
        try:
            async with secret_store(path, NEW) as store:
                await store.write(secret("a", 1))
                modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
        finally:
            os.umask(previous)
        assert modes == dict.fromkeys(("koguma.db", "koguma.db-wal", "koguma.db-shm"), 0o600)

    run(scenario())


# --- keys that are not there --------------------------------------------------------------------------------


async def _written(path: Path, *keys: Any, names: str = "ab") -> None:
    async with secret_store(path, *keys) as store:
        for number, name in enumerate(names):
            await store.write(secret(name, number))


def refused(path: Path, *keys: Any) -> str:
    async def scenario() -> None:
        async with secret_store(path, *keys):
            pass

    with pytest.raises(Unusable) as raised:
        run(scenario())
    return str(raised.value)


def test_a_store_whose_key_is_missing_is_not_opened(path: Path) -> None:
    run(_written(path, OLD))
    expected = (
        f"{path}: 2 documents are encrypted with the key old ({OLD.fingerprint}), which is not configured; "
        "add it to the file that KOGUMA_SECRETS_KEY_FILE names, or to KOGUMA_SECRETS_KEY"
    )

    assert refused(path) == refused(path, NEW) == expected
    assert refused(path, type(OLD)("old", NEW.secret)) == expected


def test_each_missing_key_is_named_with_its_documents(path: Path) -> None:
    run(_written(path, OLD))
    run(_written(path, NEW, OLD, names="cde"))
    text = refused(path)

    assert f"2 documents are encrypted with the key old ({OLD.fingerprint})" in text
    assert f"3 documents are encrypted with the key new ({NEW.fingerprint})" in text


def test_a_tool_that_knows_no_secrets_is_refused_too(path: Path) -> None:
    run(_written(path, OLD, names="a"))
    with pytest.raises(Unusable, match="1 document is encrypted with the key old"):
        run(SqliteStore.open(path))


# --- damage -------------------------------------------------------------------------------------------------


def test_a_damaged_secret_is_a_finding_and_what_was_last_good_is_read(path: Path) -> None:
    run(_written(path, NEW))
    damage(path, "documents", "data")

    async def scenario() -> None:
        async with secret_store(path, NEW) as store:
            [told] = await shown(store)
            assert told == (
                "Secret default/a: cannot be decrypted: it is damaged, or was encrypted for another document; "
                "write it again, or restore a backup; until then what was last good stays in force"
            )
            assert [await data(store, name) for name in "ab"] == [value(0), value(1)]
            assert await store.write(secret("a", 0)) == 3, "it is written, although its value is what it was"
            assert await codes(store) == []

    run(scenario())


def test_a_secret_of_which_nothing_can_be_read_is_left_out_and_can_be_written_and_deleted(path: Path) -> None:
    run(_written(path, NEW))
    damage(path, "documents", "data")
    damage(path, "changes", "after")

    async def scenario() -> None:
        async with secret_store(path, NEW) as store:
            contents = await store.read()
            assert [stored.document.key.name for stored in contents.stored] == ["b"]
            assert [finding.resource for finding in contents.findings] == [A]
            assert await data(store, "a") is None
            assert [(each.after, each.is_unreadable) for each in await store.history(A)] == [(None, True)]
            assert await store.write(Delete(A)) == 3
            assert await codes(store) == []
            [change] = (await next_batch(store, 2)).changes
            assert (change.key, change.before, change.after) == (A, None, None)

    run(scenario())


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_flipped_bit_on_the_disk_costs_no_more_than_a_finding(path: Path, data_: st.DataObject) -> None:
    """Also one that leaves neither JSON nor UTF-8."""
    if not path.exists():
        run(_written(path, NEW))
    whole = path.read_bytes()
    [(text,)] = query(path, "SELECT data FROM documents WHERE name = 'a'")
    position = data_.draw(st.integers(0, len(text) - 1))
    flipped = bytearray(whole)
    flipped[whole.index(text.encode()) + position] ^= 1 << data_.draw(st.integers(0, 7))

    async def scenario() -> None:
        async with secret_store(path, NEW) as store:
            assert await codes(store) in (["unreadable-secret"], ["secrets-under-old-key"])
            assert [await data(store, name) for name in "ab"] == [value(0), value(1)]

    path.write_bytes(flipped)
    try:
        run(scenario())
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("bit", [3, 7])
def test_a_damaged_plain_secret_is_not_shown_in_the_error(path: Path, bit: int) -> None:
    run(_written(path))
    raw = bytearray(path.read_bytes())
    for place in re.finditer(value(0).encode(), bytes(raw)):
        raw[place.end()] ^= 1 << bit  # the quotation mark behind it
    path.write_bytes(raw)

    text = refused(path)
    assert "damaged" in text
    assert value(0)[:10] not in text


def test_a_plain_secret_that_no_koguma_has_written_is_an_error_where_there_is_a_key(path: Path) -> None:
    run(_written(path, NEW))
    query(path, "UPDATE documents SET data = ? WHERE name = 'a'", json.dumps(dict(secret("a", 7).document.data)))

    async def scenario() -> None:
        async with secret_store(path, NEW) as store:
            assert await codes(store) == ["secrets-by-other-hands"]
            [told] = await shown(store)
            assert "1 document is stored in plain text, and no Koguma has written any: Secret default/a" in told
            assert value(7) not in told

    run(scenario())


def test_a_plain_secret_from_before_there_was_a_key_is_no_error(path: Path) -> None:
    run(_written(path))

    async def scenario() -> None:
        async with secret_store(path, NEW) as store:
            assert await codes(store) == ["secrets-in-plain-text"]

    run(scenario())


def test_secrets_that_were_swapped_are_findings_and_neither_is_taken_for_the_other(path: Path) -> None:
    run(_written(path, NEW))
    [(a,), (b,)] = query(path, "SELECT data FROM documents ORDER BY name")
    query(path, "UPDATE documents SET data = ? WHERE name = 'a'", b)
    query(path, "UPDATE documents SET data = ? WHERE name = 'b'", a)

    async def scenario() -> None:
        async with secret_store(path, NEW) as store:
            assert await codes(store) == ["unreadable-secret"] * 2
            assert [await data(store, name) for name in "ab"] == [value(0), value(1)]

    run(scenario())


def test_a_write_under_a_key_that_a_process_does_not_have_takes_nothing_from_it(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path, OLD) as late, secret_store(path, NEW, OLD) as early:
            await late.write(secret("a", 1))
            await early.write(secret("a", 2), put("t"))
            batch = await next_batch(late, 1)
            assert [change.key.type for change in batch.changes] == ["MeshTimeout"]
            [finding] = batch.findings
            assert (finding.code, finding.resource) == ("unreadable-secret", A)
            assert f"encrypted with the key new ({NEW.fingerprint}), which is not configured" in finding.message
            assert await data(late, "a") == value(1)

            await late.write(secret("a", 3))
            batch = await next_batch(late, batch.revision)
            assert [(change.before, change.after) for change in batch.changes] == [(None, secret("a", 3).document)]
            assert batch.findings == ()

    run(scenario())


# --- findings -----------------------------------------------------------------------------------------------


def test_secrets_in_plain_text_are_told_of_with_what_to_do(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path) as store:
            await store.write(put("t"))
            assert await codes(store) == []
            await store.write(*(secret(name, 1) for name in "edcba"))
            [told] = await shown(store)
            assert told == (
                f"{path}: 5 documents are stored in plain text and hold secrets: "
                "Secret default/a, Secret default/b, Secret default/c and 2 more; "
                "write a key to a file with `koguma generate secrets-key FILE`, name it in KOGUMA_SECRETS_KEY_FILE, "
                "and run `koguma secrets encrypt`"
            )
            [finding] = (await next_batch(store, 1)).findings
            assert finding.code == "secrets-in-plain-text"

    run(scenario())


def test_a_rollout_is_no_secret_and_what_it_proposes_is_encrypted_all_the_same(path: Path) -> None:
    key = Key("Rollout", "default", "latest")
    spec = {"content": "what-is-proposed", "state": "Going"}
    rollout = Put(Document(key, {"type": key.type, "mesh": key.mesh, "name": key.name, "spec": spec}))

    async def in_plain_text() -> None:
        async with secret_store(path) as store:
            await store.write(rollout)
            assert await codes(store) == []

    async def encrypted() -> None:
        async with secret_store(path, NEW, OLD) as store:
            assert await codes(store) == []
            assert (await next_batch(store, 0)).changes[0].after == rollout.document
        async with secret_store(path, OLD, NEW) as store:
            assert await codes(store) == ["secrets-under-old-key"]

    run(in_plain_text())
    assert count_secrets(path, codec(NEW)).plain == 0
    assert encrypt_all(path, codec(NEW)).documents == 1
    assert b"what-is-proposed" not in path.read_bytes()
    run(encrypted())


def test_what_was_deleted_is_told_of_as_long_as_traces_may_be_left(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path, limits=HistoryLimits(kept=1)) as store:
            await store.write(secret("a", 1))
            await store.write(Delete(A))
            await store.write(put("t"))
            assert exposed(path, range(2)) == {1}
            [told] = await shown(store)
            assert "secrets in plain text may be left in the history and in unused parts of the file" in told
        async with secret_store(path, NEW) as store:
            assert await codes(store) == ["secrets-in-plain-text"]
        encrypt_all(path, codec(NEW))
        assert exposed(path, range(2)) == set()
        async with secret_store(path, NEW) as store:
            assert await codes(store) == []

    run(scenario())


def test_a_file_of_an_earlier_version_may_have_traces_which_matter_once_there_is_a_key(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path) as store:
            await store.write(put("t"))
        query(path, "UPDATE secrets_at_rest SET plain = 2")
        async with secret_store(path) as store:
            assert await codes(store) == []
        async with secret_store(path, NEW) as store:
            assert await codes(store) == ["secrets-in-plain-text"]

    run(scenario())


def test_an_old_key_that_is_still_needed_is_told_of(path: Path) -> None:
    run(_written(path, OLD))

    async def scenario() -> None:
        async with secret_store(path, NEW, OLD) as store:
            [told] = await shown(store)
            assert told.startswith("2 documents are encrypted with a key that is not the first")

    run(scenario())


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_store_that_others_may_use_is_told_of_until_that_is_mended(path: Path, mode: int) -> None:
    async def scenario() -> None:
        change_mode = path.chmod
        async with secret_store(path, NEW) as store:
            assert await codes(store) == []
            change_mode(mode)
            assert await shown(store) == [
                f"{path}: is open to other users of the machine: its mode is {mode:o}; chmod 600 {path}"
            ]
            change_mode(0o600)
            await store.write(put("t"))
            assert (await next_batch(store, 0)).findings == ()

    run(scenario())


def test_folders_and_files_of_keys_are_looked_at_too(path: Path, tmp_path: Path) -> None:
    (keys := tmp_path / "keys").touch(0o644)
    (folder := tmp_path / "work").mkdir(0o755)
    policy = SecretsPolicy(codec(NEW), (keys, folder, tmp_path / "missing"))

    async def scenario() -> list[str]:
        store = await SqliteStore.open(path, backstop=NEVER, secrets=policy)
        try:
            return [finding.hint for finding in (await store.read()).findings]
        finally:
            await store.close()

    assert run(scenario()) == [f"chmod 600 {keys}", f"chmod 700 {folder}"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to others")
@pytest.mark.parametrize(
    ("mode", "group", "is_open"),
    [
        (0o640, "ours", False),
        (0o600, "another", False),
        (0o644, "ours", True),
        (0o660, "ours", True),
        (0o640, "another", True),
    ],
)
def test_what_is_roots_may_be_read_by_our_group(tmp_path: Path, mode: int, group: str, is_open: bool) -> None:
    (keys := tmp_path / "keys").touch()
    os.chown(keys, STRANGER, os.getegid() if group == "ours" else STRANGER)
    keys.chmod(mode)

    hints = [finding.hint for finding in open_to_others([keys])]

    assert hints == ([f"chgrp {os.getegid()} {keys} && chmod 640 {keys}"] if is_open else [])


@pytest.mark.parametrize(
    ("text", "mode", "is_private"),
    [
        (f"secretsKey: {A_KEY}", 0o644, True),
        ("readOnly: true", 0o666, True),
        ("readOnly: true", 0o644, False),
    ],
)
def test_a_file_of_settings_is_looked_at_if_it_has_a_key_or_others_may_write_it(
    tmp_path: Path, text: str, mode: int, is_private: bool
) -> None:
    (file := tmp_path / "koguma.yaml").write_text(f"{text}\nstore: 'memory:'\n")
    file.chmod(mode)

    assert (file in secrets_policy(load(config=file)).private) == is_private


@pytest.mark.parametrize("name", ["koguma-cp.key", "koguma-cp-ca.key", "given.key"])
def test_keys_of_the_servers_are_looked_at(tmp_path: Path, name: str) -> None:
    given = {"tls_certificate": tmp_path / "given.crt", "tls_key": tmp_path / name} if name == "given.key" else {}
    (file := tmp_path / name).touch()
    file.chmod(0o644)

    private = secrets_policy(load(work_dir=tmp_path, store="memory:", **given)).private

    assert [finding.file for finding in open_to_others(private)] == [str(file)]


@pytest.mark.parametrize(("mode", "is_private"), [(0o666, True), (0o660, True), (0o644, False)])
@pytest.mark.parametrize("setting", ["access_file", "token_public_keys"])
def test_files_that_say_who_gets_in_are_looked_at_if_others_may_write_them(
    tmp_path: Path, setting: str, mode: int, is_private: bool
) -> None:
    (file := tmp_path / "file.yaml").touch()
    file.chmod(mode)

    assert (file in secrets_policy(load(work_dir=tmp_path, store="memory:", **{setting: file})).private) == is_private


def test_secrets_in_a_folder_of_files_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"type: Secret\nmesh: default\nname: a\ndata: {value(1)}\n")
    (tmp_path / "b.yaml").write_text("type: MeshTimeout\nmesh: default\nname: b\n")

    async def scenario() -> None:
        policy = SecretsPolicy(codec(NEW))
        files = await FilesStore.open(tmp_path, read_documents, backstop=NEVER, secrets=policy)
        beside = await SqliteStore.open(tmp_path / "koguma.db", backstop=NEVER, secrets=policy)
        async with combined(files, beside, lambda _: True) as store:
            [told] = await shown(store)
            assert told.startswith(
                f"{tmp_path}: 1 document is stored in plain text and holds secrets: Secret default/a; "
            )
            assert "a folder is not encrypted" in told
            (tmp_path / "a.yaml").unlink()
            await until(store, lambda contents: not contents.findings)
            (tmp_path / "koguma.db").chmod(0o644)
            await store.write(put("t"))
            await until(store, lambda contents: [finding.code for finding in contents.findings] == ["open-to-others"])

    run(scenario())


# --- encrypting what is there -------------------------------------------------------------------------------

ALL_SECRETS = range(30)


async def _mixed(path: Path) -> None:
    """A store with plain secrets, and with some under an old key, each written twice."""
    async with secret_store(path) as store:
        for number in range(10):
            await store.write(secret(f"plain{number}", number), put("t", number))
            await store.write(secret(f"plain{number}", 10 + number))
    async with secret_store(path, OLD) as store:
        for number in range(5):
            await store.write(secret(f"old{number}", 20 + number))


async def _all_is_right(path: Path, *keys: Any) -> None:
    async with secret_store(path, *keys) as store:
        assert [await data(store, f"plain{number}") for number in range(10)] == [value(10 + n) for n in range(10)]
        assert [await data(store, f"old{number}") for number in range(5)] == [value(20 + n) for n in range(5)]
        last, first = await store.history(Key("Secret", "default", "plain3"))
        assert (first.before, last.before) == (None, first.after)
        assert (await store.read()).revision == 25


def test_all_is_encrypted_with_the_first_key_and_nothing_is_left_of_what_was_before(path: Path) -> None:
    run(_mixed(path))
    keys = codec(NEW, OLD)
    assert count_secrets(path, keys) == SecretsCount(in_order=0, plain=10, old=5, plain_changes=20, old_changes=5)
    result = encrypt_all(path, keys)

    assert (result.documents, result.left) == (15, SecretsCount(in_order=15))
    assert exposed(path, ALL_SECRETS) == set()
    assert OLD.fingerprint.encode() not in path.read_bytes(), "nothing under the old key either"
    run(_all_is_right(path, NEW))
    assert run(codes_after(path)) == []
    again = encrypt_all(path, keys)
    assert (again.documents, again.changes, again.left) == (0, 0, SecretsCount(in_order=15))


def test_unused_parts_of_the_file_are_removed_while_it_is_in_use(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path) as store:
            await store.write(*(secret(f"a{number}", number) for number in range(200)))
            await store.write(put("t"))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA secure_delete = OFF")  # it depends on how SQLite was built
            connection.execute("DELETE FROM documents WHERE type = 'Secret'")
            connection.execute("DELETE FROM changes WHERE type = 'Secret'")
        assert [file.name for file in path.parent.iterdir()] == ["koguma.db"]
        assert exposed(path, range(200)) != set(), "they are in free pages"
        async with secret_store(path, NEW) as store:
            await store.read()
            await asyncio.to_thread(encrypt_all, path, codec(NEW))
            assert exposed(path, range(200)) == set()

    run(scenario())


def test_one_who_reads_for_too_long_is_told_of_and_the_finding_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.05)
    run(_mixed(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM documents").fetchone()
        with pytest.raises(Unusable, match="all is encrypted, run it again to clean up"):
            encrypt_all(path, codec(NEW, OLD))
        reader.execute("ROLLBACK")

    assert count_secrets(path, codec(NEW, OLD)) == SecretsCount(in_order=15)
    assert "secrets-in-plain-text" in run(codes_of(path, NEW, OLD))
    encrypt_all(path, codec(NEW, OLD))
    assert exposed(path, ALL_SECRETS) == set()
    assert run(codes_after(path)) == []


def test_it_is_done_beside_a_store_in_use_and_cleans_its_log_of_writes_too(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path, NEW, OLD) as store:
            assert exposed(path, ALL_SECRETS) != set()
            assert await codes(store) == ["secrets-in-plain-text", "secrets-under-old-key"]
            await asyncio.to_thread(encrypt_all, path, codec(NEW, OLD))
            assert exposed(path, ALL_SECRETS) == set()
            assert await codes(store) == []
            await store.write(secret("more", 29))
            assert exposed(path, ALL_SECRETS) == set()
            assert (await next_batch(store, 25)).findings == ()

    run(_mixed(path))
    run(scenario())
    run(_all_is_right_and_one_more(path))


def test_who_follows_the_store_is_told_when_all_is_encrypted(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path, NEW, OLD) as store:
            following = store.follow(await store.revision())
            await store.write(secret("more", 29))
            assert (await anext(following)).findings != ()
            await asyncio.to_thread(encrypt_all, path, codec(NEW, OLD))
            batch = await asyncio.wait_for(anext(following), 20)
            assert (batch.revision, batch.changes, batch.findings) == (await store.revision(), (), ())

    run(_mixed(path))
    run(scenario())


async def _all_is_right_and_one_more(path: Path) -> None:
    async with secret_store(path, NEW) as store:
        assert await data(store, "more") == value(29)


@pytest.mark.parametrize("steps", [1, 16, 40])
def test_killed_in_the_middle_it_loses_nothing_and_the_next_run_does_what_is_left(path: Path, steps: int) -> None:
    """16 steps are about documents and one more than that ends them; then come those about the history."""
    run(_mixed(path))
    command = [sys.executable, "-m", "tests.store.encryptor", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(steps):
            assert process.stdout.readline()
            process.stdin.write("go on\n")
            process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait(20)

    left = count_secrets(path, codec(NEW, OLD))
    assert left.in_order + left.plain + left.old == 15
    assert left.in_order >= min(steps, 16) - 1
    run(_all_is_right(path, NEW, OLD))
    assert "secrets-in-plain-text" in run(codes_of(path, NEW, OLD)), "until it was cleaned up, also if all is encrypted"
    encrypt_all(path, codec(NEW, OLD))
    assert exposed(path, ALL_SECRETS) == set()
    run(_all_is_right(path, NEW))
    assert run(codes_after(path)) == []


async def codes_of(path: Path, *keys: Any) -> list[str]:
    async with secret_store(path, *keys) as store:
        return await codes(store)


def test_what_no_key_decrypts_stays_unless_it_is_to_be_discarded(path: Path) -> None:
    run(_written(path, OLD))
    run(_written(path, NEW, OLD, names="c"))
    assert encrypt_all(path, codec(NEW)).left == SecretsCount(in_order=1, unreadable=2)
    refused(path, NEW)

    result = encrypt_all(path, codec(NEW), discards=True)
    assert (result.discarded, result.left) == (2, SecretsCount(in_order=1))

    async def scenario() -> None:
        async with secret_store(path, NEW) as store:
            contents = await store.read()
            assert [stored.document.key.name for stored in contents.stored] == ["c"]
            assert (contents.revision, contents.findings) == (4, ())

    run(scenario())


def test_secrets_that_somebody_without_the_key_writes_meanwhile_are_told_of(path: Path) -> None:
    run(_mixed(path))

    async def scenario() -> None:
        async with secret_store(path, OLD) as store:
            loop = asyncio.get_running_loop()
            numbers = iter(range(3))

            def write(_rows: int) -> None:
                for number in numbers:
                    plain = codec().encode(A, dict(secret("a", number).document.data))
                    query(path, "UPDATE documents SET data = ? WHERE name = 'plain0'", plain)
                    asyncio.run_coroutine_threadsafe(store.write(secret(f"late{number}", number)), loop).result(20)

            result = await asyncio.to_thread(encrypt_all, path, codec(NEW, OLD), progress=write)
            assert (result.left.plain, result.left.old) == (1, 3)
            assert query(path, "SELECT plain, encryptions FROM secrets_at_rest") == [(1, 1)], "there may be traces"

    run(scenario())
    assert run(codes_of(path, NEW, OLD)) == ["secrets-in-plain-text", "secrets-under-old-key"]


def test_what_somebody_without_the_key_writes_and_deletes_meanwhile_is_told_of(path: Path) -> None:
    run(_mixed(path))
    plain = codec().encode(A, dict(secret("a", 99).document.data))

    def write(_rows: int) -> None:
        """The document is gone again, and its change is left: after each step, so after the last too."""
        newest = "(SELECT max(rowid) FROM changes)"
        query(path, f"UPDATE changes SET name = 'a', before = ?, after = NULL WHERE rowid = {newest}", plain)  # noqa: S608

    left = encrypt_all(path, codec(NEW, OLD), progress=write).left

    assert (left.plain, left.plain_changes, left.is_all_in_order) == (0, 1, False)
    assert query(path, "SELECT plain FROM secrets_at_rest") == [(1,)], "there are traces"
    assert exposed(path, range(99, 100)) == {99}
    assert encrypt_all(path, codec(NEW, OLD)).left.is_all_in_order
    assert exposed(path, range(99, 100)) == set()
    assert query(path, "SELECT plain FROM secrets_at_rest") == [(0,)]


def patch_with_key(name: str, number: int) -> Put:
    """A document that earlier versions took for one without secrets."""
    key = Key("MeshProxyPatch", "default", name)
    native = json.dumps({"transportSocket": {"typedConfig": {"privateKey": {"inlineString": value(number)}}}})
    conf = {"appendModifications": [{"cluster": {"operation": "Patch", "value": native}}]}
    return Put(Document(key, {"type": key.type, "mesh": "default", "name": name, "spec": {"default": conf}}))


def log_at(name: str, address: str) -> Put:
    key = Key("MeshAccessLog", "default", name)
    backends = [{"type": "Tcp", "tcp": {"address": address}}]
    spec = {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"backends": backends}}]}
    return Put(Document(key, {"type": key.type, "mesh": "default", "name": name, "spec": spec}))


def route_to(name: str, path: str) -> Put:
    key = Key("MeshHTTPRoute", "default", name)
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": path}}}
    rules = [{"matches": [{"path": {"type": "Exact", "value": "/"}}], "default": {"filters": [rewrite]}}]
    spec = {"to": [{"targetRef": {"kind": "MeshService", "name": "a"}, "rules": rules}]}
    return Put(Document(key, {"type": key.type, "mesh": "default", "name": name, "spec": spec}))


OF_EARLIER_VERSIONS = {
    "a key in a patch": patch_with_key,
    "a password without a scheme": lambda name, number: log_at(name, f"user:{value(number)}@host:9000"),
    "a password before a path": lambda name, number: log_at(name, f"user:{value(number)}@host:9000/path"),
    "a code in a path": lambda name, number: route_to(name, f"/callback?code={value(number)}"),
    "a signature in a path": lambda name, number: route_to(name, f"/blob?sig={value(number)}"),
}


async def stored_by_earlier_version(path: Path, step: int, *puts: Put) -> None:
    """The earlier version noted no secret in them."""
    earlier = await SqliteStore.open(path, backstop=NEVER)
    for put_ in puts:
        await earlier.write(put_)
    await earlier.close()
    query(path, "UPDATE secrets_at_rest SET plain = 0")
    query(path, f"DELETE FROM migrations WHERE number > {step}")  # noqa: S608  # ours
    query(path, f"PRAGMA user_version = {step}")


@pytest.mark.parametrize("step", [7, 8, 9])
@pytest.mark.parametrize("make", OF_EARLIER_VERSIONS.values(), ids=OF_EARLIER_VERSIONS)
def test_upgrade_reports_secrets_not_noted(path: Path, make: Callable[[str, int], Put], step: int) -> None:
    """That is no reason to suspect a stranger."""

    async def scenario() -> None:
        await stored_by_earlier_version(path, step, make("a", 1), make("a", 2))
        async with secret_store(path, NEW) as store:
            assert await codes(store) == ["secrets-in-plain-text"]
            assert exposed(path, range(1, 3)) == {1, 2}
            result = encrypt_all(path, codec(NEW))
            assert (result.documents, result.changes) == (1, 2)
            assert await codes(store) == []
        assert exposed(path, range(1, 3)) == set()

    run(scenario())


@pytest.mark.parametrize("step", [7, 8, 9])
def test_upgrade_without_secrets_reports_nothing(path: Path, step: int) -> None:
    """Words such as `key` and `token` in a document are no secret yet."""

    async def scenario() -> None:
        await stored_by_earlier_version(path, step, route_to("key-of-token", "/keys/token"), route_to("b", "/users@a"))
        async with secret_store(path, NEW) as store:
            assert await codes(store) == []
        assert query(path, "SELECT plain FROM secrets_at_rest") == [(0,)]

    run(scenario())


def test_upgrade_finds_a_secret_in_the_history_behind_many_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cp.store.encrypting.STEP", 2)

    async def scenario() -> None:
        rows = (route_to(f"r{number}", "/") for number in range(5))
        gone = log_at("a", f"user:{value(1)}@host:9000")
        await stored_by_earlier_version(path, 8, *rows, gone, log_at("a", "host:9000"))
        async with secret_store(path, NEW) as store:
            assert await codes(store) == ["secrets-in-plain-text"]

    run(scenario())


def test_keys_in_patches_are_encrypted(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path, NEW) as store:
            await store.write(patch_with_key("a", 1))
            await store.write(patch_with_key("a", 2))
            assert await codes(store) == []
        assert exposed(path, range(1, 3)) == set()

    run(scenario())


def test_keys_in_patches_are_reported_without_a_key(path: Path) -> None:
    async def scenario() -> None:
        async with secret_store(path) as store:
            await store.write(patch_with_key("a", 1))
            assert await codes(store) == ["secrets-in-plain-text"]

    run(scenario())

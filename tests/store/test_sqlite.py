"""What the store in an SQLite file promises beyond the contract: it lasts, it is shared, it refuses other files."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import pytest

from cp.model.document import Document
from cp.store import database
from cp.store.migrations import SchemaStep, migrations
from cp.store.port import ChangeBatch, Conflict, HistoryLimits, Outdated, Put, Unusable
from cp.store.sqlite import SqliteStore
from tests.store.harness import (
    NEVER,
    batches,
    changes,
    contained,
    delete,
    document,
    held,
    key,
    next_batch,
    put,
    run,
    until,
)
from tests.support.waiting import eventually_on_loop

STEPS = migrations("sqlite")


@asynccontextmanager
async def sqlite(path: Path, **options: Any) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, backstop=NEVER, **options)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "koguma.db"


def writer(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.store.writer", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def query(path: Path, text: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(text).fetchall()
    finally:
        connection.close()


async def told(store: SqliteStore, since: int, act: Callable[[], Awaitable[object]]) -> ChangeBatch:
    """What a follower is given who was already waiting when something was done."""
    waiting = asyncio.Event()
    after = store._news.after

    async def wait(edition: int) -> None:
        waiting.set()
        await after(edition)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._news, "after", wait)
        async with asyncio.TaskGroup() as running:
            following = running.create_task(next_batch(store, since))
            await waiting.wait()
            await act()
    return following.result()


# --- it lasts -------------------------------------------------------------------------------------------------


def test_everything_is_there_when_it_is_opened_again(path: Path) -> None:
    async def scenario() -> None:
        async with sqlite(path) as store:
            await store.write(put("a", 1), put("b", 1))
            await store.write(put("a", 2))
            before, history = await store.read(), await store.history(key("a"))
        async with sqlite(path) as store:
            assert await store.read() == before
            assert await store.history(key("a")) == history
            assert [change.revision for change in await changes(store, 0, until=2)] == [1, 1, 2]
            assert await store.write(put("c")) == 3

    run(scenario())


def test_revisions_go_on_after_everything_was_deleted(path: Path) -> None:
    async def scenario() -> None:
        async with sqlite(path, limits=HistoryLimits(kept=1)) as store:
            await store.write(put("a"))
            await store.write(delete("a"))
        async with sqlite(path, limits=HistoryLimits(kept=1)) as store:
            assert (await store.read()).revision == 2
            assert await store.write(put("a")) == 3

    run(scenario())


def test_a_killed_process_loses_nothing_that_was_answered_as_stored(path: Path) -> None:
    """Killed in the middle of writing, several times: what it printed is there, whole, and so is the log of it."""
    acknowledged: list[tuple[int, int]] = []
    for wanted in (1, 7, 40):
        with writer("write", path, "a", 1_000_000) as process:
            lines = [output(process).readline() for _ in range(wanted)]
            process.kill()
            lines += output(process).readlines()
        acknowledged += [(int(line.split()[0]), int(line.split()[1])) for line in lines if line.endswith("\n")]

    async def scenario() -> None:
        async with sqlite(path) as store:
            contents = await store.read()
            logged = await changes(store, 0, until=contents.revision)
        for revision, turn in acknowledged:
            of_revision = [change.after for change in logged if change.revision == revision]
            assert of_revision == [document("a1", turn), document("a2", turn)]
        assert list(contained(contents).values()) == [change.after for change in logged[-2:]]
        # Each time, one write may have been made that there was no time to answer.
        assert contents.revision <= len(acknowledged) + 3

    assert len(acknowledged) >= 48
    run(scenario())


def test_a_commit_waits_for_the_disk(path: Path) -> None:
    async def scenario() -> tuple[Any, ...]:
        async with sqlite(path) as store:
            return await store._writer.do(
                lambda connection: (
                    connection.execute("PRAGMA synchronous").fetchone()[0],
                    connection.execute("PRAGMA journal_mode").fetchone()[0],
                )
            )

    full = 2
    assert run(scenario()) == (full, "wal")


def test_a_full_disk_refuses_the_write_and_nothing_else(path: Path) -> None:
    with writer("fill", path, 1_000_000) as process:
        lines = output(process).read().splitlines()
    refused, stored, again, told = (line for line in lines if line.split()[0] in {"refused", "stored", "again", "told"})

    assert refused.startswith(f"refused {path}: ")
    assert (stored, again, told) == ("stored True", "again True", "told True")


def test_the_log_does_not_grow_without_bound(path: Path) -> None:
    async def scenario() -> None:
        async with sqlite(path, limits=HistoryLimits(kept=10)) as store:
            for value in range(50):
                await store.write(put("a", value), put("b", value))

    run(scenario())
    assert query(path, "SELECT count(*), min(revision), max(revision) FROM changes") == [(20, 41, 50)]


def test_of_what_is_forgotten_in_time_no_row_has_a_document_and_nobody_is_told(path: Path) -> None:
    async def scenario() -> None:
        async with sqlite(path) as other, sqlite(path, limits=HistoryLimits(kept_age=timedelta(0))) as store:
            for value in range(3):
                await other.write(put("a", f"secret-{value}"))
            await eventually_on_loop(lambda: other._noticed == (3, 0))
            await asyncio.to_thread(other._look)
            await asyncio.sleep(0)
            edition = other._news.edition
            await store.forget()
            await asyncio.to_thread(other._look)
            await asyncio.sleep(0)
            assert (await other.oldest(), other._news.edition) == (3, edition)

    run(scenario())
    assert (
        query(path, "SELECT revision FROM changes WHERE ifnull(before, '') || ifnull(after, '') LIKE '%secret-%'") == []
    )
    assert query(path, "SELECT revision FROM changes") == [(3,)]


def test_a_write_is_announced_even_if_nobody_waits_for_its_answer(path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def clock() -> datetime:  # is asked in the middle of a write
        begun.set()
        go_on.wait()
        return datetime(2026, 1, 1, tzinfo=UTC)

    async def scenario() -> None:
        async with sqlite(path, clock=clock) as store, asyncio.TaskGroup() as running:
            await asyncio.to_thread(store._watch.stop)  # it would notice as well, but later
            following = running.create_task(next_batch(store, 0))
            writing = running.create_task(store.write(put("a")))
            await asyncio.to_thread(begun.wait)
            writing.cancel()
            go_on.set()
            assert (await following).revision == 1

    run(scenario())


def test_what_json_cannot_say_is_not_stored_as_something_else(path: Path) -> None:
    async def scenario() -> None:
        async with sqlite(path) as store:
            for value in (datetime(2026, 1, 1, tzinfo=UTC), {1, 2}, b"bytes"):
                with pytest.raises(TypeError, match="a document holds plain data only"):
                    await store.write(put("b"), Put(Document(key("a"), {"spec": value})))
            with pytest.raises(ValueError, match="not JSON compliant"):
                await store.write(Put(Document(key("a"), {"spec": float("nan")})))
            assert (await store.read()).revision == 0
            assert await store.write(put("a")) == 1

    run(scenario())


def test_any_mapping_is_plain_data(path: Path) -> None:
    nested = MappingProxyType({"to": [MappingProxyType({"a": 1})]})

    async def scenario() -> None:
        async with sqlite(path) as store:
            await store.write(Put(Document(key("a"), MappingProxyType({"spec": nested}))))
            assert (await held(store, "a")).document.data == {"spec": {"to": [{"a": 1}]}}

    run(scenario())


# --- it is shared ---------------------------------------------------------------------------------------------


def test_two_stores_on_one_file_see_each_other(path: Path) -> None:
    async def scenario() -> None:
        async with sqlite(path) as one, sqlite(path) as other:
            for turn in range(1, 6):
                batch = await told(one, turn - 1, partial(other.write, put("a", turn)))
                assert [change.after for change in batch.changes] == [document("a", turn)]
                assert (await held(one, "a")).document == document("a", turn)
            with pytest.raises(Conflict):
                await one.write(put("a", 9, based_on=1))
            assert (await told(other, 5, partial(one.write, put("b")))).revision == 6

    run(scenario())


def test_all_who_read_a_file_agree_on_the_age_of_a_document(path: Path) -> None:
    """Who was told of it, who was there when it was made, and who opens the file later."""

    async def scenario() -> None:
        async with sqlite(path) as one, sqlite(path) as other:
            batch = await told(one, 0, partial(other.write, put("a")))
            told_of = [change.after.source.created for change in batch.changes if change.after is not None]
            there = (await held(other, "a")).document.source.created
        async with sqlite(path) as later:
            assert [(await held(later, "a")).document.source.created] == [there] == told_of
            assert there

    run(scenario())


def test_an_older_version_that_writes_to_the_file_leaves_the_age_as_it_is(path: Path) -> None:
    """It wrote when a document was made into its row, and nothing of it into the log."""

    async def scenario() -> None:
        async with sqlite(path) as store:
            await store.write(put("a"))
            created = (await held(store, "a")).document.source.created
            with closing(sqlite3.connect(path)) as older, older:
                older.execute("UPDATE documents SET revision = 2")
                older.execute(
                    "INSERT INTO changes (revision, position, type, mesh, name, before, before_source, "
                    "after, after_source, at, written) "
                    "SELECT 2, 0, type, mesh, name, after, after_source, after, after_source, "
                    "at, written + 1 FROM changes"
                )
            [change] = await changes(store, 1, until=2)
            assert change.after is not None
            assert change.after.source.created == created

    run(scenario())


def test_a_store_tells_its_own_followers_by_itself(path: Path) -> None:
    async def scenario() -> None:
        async with sqlite(path) as store:
            await asyncio.to_thread(store._watch.stop)  # it would notice as well, but later
            for turn in range(1, 4):
                assert (await told(store, turn - 1, partial(store.write, put("a", turn)))).revision == turn

    run(scenario())


def test_a_waiting_follower_sees_the_writes_of_another_process(path: Path) -> None:
    async def scenario() -> None:
        async with sqlite(path) as store:
            with writer("write", path, "a", 25) as process:
                seen = await changes(store, 0, until=25)
                output(process).read()
        assert [change.revision for change in seen] == sorted([*range(1, 26), *range(1, 26)])

    run(scenario())


def test_processes_that_write_at_once_agree_on_the_order(path: Path) -> None:
    """From the moment when none of them finds a file: they make it together."""
    processes = [writer("write", path, name, 20) for name in "abcd"]

    async def scenario() -> None:
        async with sqlite(path) as store:
            for turn in range(20):
                await store.write(put("e1", turn), put("e2", turn))
            await until(store, lambda contents: contents.revision == 100)
            seen = await batches(store, 0, until=100)
            revisions = [change.revision for batch in seen for change in batch.changes]
            assert revisions == [revision for revision in range(1, 101) for _ in range(2)]
            assert len(contained(await store.read())) == 10

    run(scenario())
    answered = [int(line.split()[0]) for process in processes for line in output(process)]
    assert len(set(answered)) == len(answered) == 80
    assert [process.wait() for process in processes] == [0, 0, 0, 0]
    for process in processes:
        output(process).close()


def test_one_who_writes_for_too_long_is_waited_for_and_then_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.1)

    async def scenario() -> None:
        async with sqlite(path) as store:
            await store.write(put("a", 1))
            following = store.follow(1)
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Unusable, match="another process has been writing for too long"):
                await store.write(put("a", 2))
            assert (await held(store, "a")).document == document("a", 1)
            assert (await asyncio.to_thread(store._look)).looks_again  # as the watch does meanwhile, and will again
            other.execute("COMMIT")
            other.close()
            await store.write(put("a", 2))
            assert (await anext(following)).revision == 2
            async with sqlite(path) as another:
                await another.write(put("a", 3))
                assert (await anext(following)).revision == 3

    run(scenario())


def locked(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorname = name
    return error


def test_others_who_make_the_file_at_the_same_moment_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite does not: about one in seventy fails, of six processes that open a new file at once."""
    connection = sqlite3.connect(":memory:")
    answers: list[Any] = [locked("SQLITE_BUSY"), locked("SQLITE_BUSY_RECOVERY"), connection.execute("SELECT 1")]

    def execute() -> sqlite3.Cursor:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, sqlite3.Cursor)
        return answer

    assert database._when_others_are_done(execute).fetchone() == (1,)
    for patience, error in ((30.0, "SQLITE_READONLY"), (0.0, "SQLITE_BUSY")):
        monkeypatch.setattr(database, "PATIENCE", patience)
        answers = [locked(error)]
        with pytest.raises(sqlite3.OperationalError):
            database._when_others_are_done(execute)
    connection.close()


def test_a_store_that_is_destroyed_tells_its_followers(path: Path) -> None:
    async def scenario() -> None:
        async with sqlite(path) as store:
            await store.write(put("a"))
            following = store.follow(0)
            await anext(following)
            query(path, "DROP TABLE changes")
            with pytest.raises(Unusable, match="no such table"):
                await anext(following)
            while store._news.failure is None:  # the follower may have seen it before the watch did
                await store._news.after(store._news.edition)
            assert "no such table" in str(store._news.failure)

    run(scenario())


def test_one_who_goes_on_writing_hides_nothing_that_is_written_already(path: Path) -> None:
    async def scenario() -> None:
        async with sqlite(path) as store, sqlite(path) as other:
            third = sqlite3.connect(path, isolation_level=None)

            async def write_and_go_on(turn: int) -> None:
                await other.write(put("a", turn))
                third.execute("BEGIN IMMEDIATE")

            for turn in range(1, 4):
                assert (await told(store, turn - 1, partial(write_and_go_on, turn))).revision == turn
                assert (await asyncio.to_thread(store._look)).looks_again  # at once, not when the third is done
                third.execute("ROLLBACK")
            third.close()

    run(scenario())


@pytest.mark.parametrize("replaced", [True, False])
def test_a_file_that_is_removed_while_in_use_is_not_written_to_any_longer(path: Path, replaced: bool) -> None:
    def take_away() -> None:
        if replaced:
            shutil.copy(path, path.with_name("copy"))
            path.with_name("copy").rename(path)
        else:
            path.unlink()

    async def scenario() -> None:
        async with sqlite(path) as store:
            await store.write(put("a"))
            following = store.follow(1)
            take_away()
            with pytest.raises(Unusable, match="removed or replaced while in use"):
                await store.write(put("b"))
            with pytest.raises(Unusable, match="removed or replaced while in use"):
                await anext(following)

    run(scenario())


def test_a_file_behind_a_link_is_the_same_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    link.symlink_to(path)

    async def scenario() -> None:
        async with sqlite(link) as one, sqlite(path) as other:
            for turn in range(1, 4):  # the first may be seen because the watch only begins
                assert (await told(one, turn - 1, partial(other.write, put("a", turn)))).revision == turn

    run(scenario())


def test_a_follower_of_another_files_revisions_is_told(path: Path, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with sqlite(path) as store:
            await store.write(put("a"))
        async with sqlite(tmp_path / "copy of an older one.db") as store:
            with pytest.raises(Outdated):
                await next_batch(store, 1)

    run(scenario())


# --- it refuses what is not its own -----------------------------------------------------------------------------


def refused(path: Path) -> str:
    async def scenario() -> str:
        with pytest.raises(Unusable) as error:
            await SqliteStore.open(path)
        return str(error.value)

    return run(scenario())


def made(path: Path) -> None:
    async def scenario() -> None:
        async with sqlite(path) as store:
            for value in range(30):
                await store.write(put(f"a{value}", "x" * 1000))

    run(scenario())


def test_a_database_of_another_program_is_refused_and_left_as_it_is(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.commit()
    connection.close()
    before = path.read_bytes()

    assert refused(path) == f"{path}: a database of another program; is this the right file?"
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_an_empty_database_of_another_program_is_refused(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 7")
    connection.commit()
    connection.close()

    assert "another program" in refused(path)


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("type: Mesh\nname: default\n" * 100)

    assert refused(path) == f"{path}: file is not a database; is this the right file?"


def test_empty_file_is_not_a_new_installation(path: Path) -> None:
    path.touch()

    assert refused(path).startswith(f"{path}: the file is empty; restore a backup")
    assert path.stat().st_size == 0


def test_new_file_is_synced_with_its_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[Path, bool]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)

    async def opened() -> None:
        async with sqlite(path):
            assert (path.parent, True) in synced

    run(opened())


def test_new_file_is_complete_and_alone(path: Path) -> None:
    made(path)

    assert {file.name.removeprefix(path.name) for file in path.parent.iterdir()} <= {"", "-wal", "-shm"}


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_truncated_file_is_refused(path: Path, keep: float) -> None:
    made(path)
    os.truncate(path, int(path.stat().st_size * keep))

    assert "the file is damaged: restore a copy" in refused(path)


def test_a_damaged_page_is_noticed_when_the_file_is_opened(path: Path) -> None:
    made(path)
    with path.open("r+b") as file:
        file.seek(-4096, os.SEEK_END)
        file.write(b"\xff" * 4096)

    assert "the file is damaged: restore a copy" in refused(path)


def steps_of(monkeypatch: pytest.MonkeyPatch, *steps: SchemaStep) -> None:
    """A version that knows these steps."""
    monkeypatch.setattr(database, "migrations", lambda _database: steps)


def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    made(path)
    query(path, "PRAGMA user_version = 99")
    with closing(sqlite3.connect(path)) as newer, newer:
        newer.execute("INSERT INTO migrations VALUES (99, 99)")

    assert refused(path) == f"{path}: made by a newer version (schema 99, this one knows {len(STEPS)}): upgrade"


def test_a_file_that_says_nothing_of_its_migrations_is_refused_if_there_were_more(path: Path) -> None:
    made(path)
    query(path, "PRAGMA user_version = 99")
    query(path, "DROP TABLE migrations")

    assert "made by a newer version" in refused(path)


def test_an_older_version_goes_on_with_a_file_that_a_newer_one_left_compatible(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There and back: what each wrote the other reads, and the newer one does nothing twice."""
    newer = (*STEPS, SchemaStep("ALTER TABLE documents ADD COLUMN note TEXT;\n", len(STEPS)))

    async def scenario() -> None:
        async with sqlite(path) as store:
            await store.write(put("a"))
        for steps, name in ((newer, "b"), (STEPS, "c"), (newer, "d")):
            steps_of(monkeypatch, *steps)
            async with sqlite(path) as store:
                await store.write(put(name))
        assert query(path, "SELECT name FROM documents ORDER BY name") == [(name,) for name in "abcd"]
        assert query(path, "PRAGMA user_version") == [(len(newer),)]

    run(scenario())


def test_versions_of_two_steps_serve_from_one_file_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with sqlite(path) as older:
            await older.write(put("a"))
            steps_of(monkeypatch, *STEPS, SchemaStep("ALTER TABLE documents ADD COLUMN note TEXT;\n", len(STEPS)))
            async with sqlite(path) as newer:
                await newer.write(put("b"))
                assert await older.write(put("c")) == 3
                assert (await newer.read()).stored == (await older.read()).stored

    run(scenario())


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "not there" / "koguma.db"

    assert refused(path) == (
        f"{path}: unable to open database file; does its directory exist, and may this user write there?"
    )


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    assert "unable to open database file" in refused(tmp_path)


def test_a_file_system_without_shared_memory_is_refused(path: Path) -> None:
    connection = sqlite3.connect(":memory:")  # the one place without it that every machine has
    with pytest.raises(Unusable, match="put the file on a local disk"):
        database._keep_a_log_of_writes(connection, path)
    connection.close()


def test_a_file_of_before_is_brought_up_to_date_with_the_bytes_of_its_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps_of(monkeypatch, *STEPS[:1])
    database.prepare(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("INSERT INTO changes VALUES (1, 0, 'Mesh', '', 'a', NULL, NULL, 'abcd', 'xy', 'now')")
    connection.execute("INSERT INTO changes VALUES (2, 0, 'Mesh', '', 'a', 'abc', NULL, 'abcd', 'xy', 'now')")
    connection.close()
    steps_of(monkeypatch, *STEPS)
    database.prepare(path)

    assert query(path, "SELECT revision, written FROM changes ORDER BY revision") == [(1, 6), (2, 15)]


def test_a_new_file_can_be_read_by_its_user_alone(path: Path) -> None:
    made(path)
    assert path.stat().st_mode & 0o777 == 0o600

    path.chmod(0o640)
    made(path)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_migration_is_done_wholly_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = (*STEPS, SchemaStep("CREATE TABLE more (a TEXT);\nNONSENSE;\n", 99))
    steps_of(monkeypatch, *faulty)
    assert "NONSENSE" in refused(path)
    assert list(path.parent.iterdir()) == []

    steps_of(monkeypatch, *STEPS)
    made(path)
    steps_of(monkeypatch, *faulty)
    assert "NONSENSE" in refused(path)
    assert query(path, "PRAGMA user_version") == [(len(STEPS),)]

    steps_of(monkeypatch, *STEPS, SchemaStep("CREATE TABLE more (a TEXT);\n", 99))
    made(path)
    assert query(path, "PRAGMA user_version") == [(len(STEPS) + 1,)]
    assert query(path, "SELECT count(*) FROM more") == [(0,)]

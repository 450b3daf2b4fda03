"""The suite of all rosters: who shares a store, and who holds what only one may."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cp.store.memory_roster import MemoryRoster
from cp.store.port import LeaseLost, Store
from cp.store.roster import Fence, Instance
from cp.store.sqlite_roster import SqliteRoster
from tests.store.harness import held, next_batch, on, opened, put, run
from tests.support.postgres import database_of, needs_postgres, shared_postgres

SHARED = ("sqlite", "postgres")
WITH_ROSTER = ("memory", "beside", *SHARED)
LONG = 3600.0


def instance(id_: str, *, revision: int = 0, minute: int = 0) -> Instance:
    started = datetime(2026, 1, 1, 0, minute, tzinfo=UTC)
    return Instance(id_, f"machine-{id_}", f"http://{id_}:5681", "PEM", "0.1.0", started, revision)


@on(WITH_ROSTER)
async def test_lists_what_instances_said_last(store: Store) -> None:
    await store.roster.report(instance("b", minute=2))
    await store.roster.report(instance("a", minute=1))
    await store.roster.report(instance("b", minute=2, revision=7))

    seen = await store.roster.instances()

    assert [one.instance for one in seen] == [instance("a", minute=1), instance("b", minute=2, revision=7)]
    assert all(0 <= one.silence < LONG for one in seen)


@on(WITH_ROSTER)
async def test_who_leaves_is_not_listed(store: Store) -> None:
    for id_ in ("a", "b"):
        await store.roster.report(instance(id_))

    await store.roster.leave("a")

    assert [one.instance.id for one in await store.roster.instances()] == ["b"]


@on(WITH_ROSTER)
async def test_a_lease_has_one_holder(store: Store) -> None:
    first = await store.roster.lease("chores", "a", LONG)
    second = await store.roster.lease("chores", "b", LONG)

    assert first == second
    assert first.holder == "a"
    assert (await store.roster.lease("others", "b", LONG)).holder == "b"


@on(WITH_ROSTER)
async def test_each_holder_after_another_has_a_higher_term(store: Store) -> None:
    first = await store.roster.lease("chores", "a", LONG)
    await store.roster.leave("a")
    second = await store.roster.lease("chores", "b", LONG)
    again = await store.roster.lease("chores", "b", LONG)
    await store.roster.leave("b")
    third = await store.roster.lease("chores", "a", LONG)

    assert [second.holder, third.holder] == ["b", "a"]
    assert first.term < second.term == again.term < third.term


@on(WITH_ROSTER)
async def test_who_begins_at_the_address_of_another_one_takes_his_place(store: Store) -> None:
    first = instance("a")
    await store.roster.succeed(first)
    await store.roster.report(instance("b"))
    await store.roster.lease("chores", "a", LONG)

    again = dataclasses.replace(first, id="c")
    await store.roster.succeed(again)

    assert [one.instance.id for one in await store.roster.instances()] == ["b", "c"]
    assert (await store.roster.lease("chores", "c", LONG)).holder == "c"


@on(WITH_ROSTER)
async def test_a_lease_that_is_over_is_taken(store: Store) -> None:
    await store.roster.lease("chores", "a", 0.0)

    assert (await store.roster.lease("chores", "b", LONG)).holder == "b"


@on(WITH_ROSTER)
async def test_only_who_holds_the_lease_writes_behind_its_fence(store: Store) -> None:
    first = await store.roster.lease("chores", "a", LONG)
    written = await store.write(put("kept", 1), fence=first.fence)
    await store.roster.leave("a")
    second = await store.roster.lease("chores", "b", LONG)

    with pytest.raises(LeaseLost):
        await store.write(put("kept", 2), fence=first.fence)
    with pytest.raises(LeaseLost):
        await store.write(put("kept", 2), fence=Fence("nobody's", 1))

    assert await store.revision() == written
    await store.write(put("kept", 3), fence=second.fence)
    assert (await held(store, "kept")).document.data["spec"] == {"value": 3}


@on(WITH_ROSTER)
async def test_what_instances_say_makes_no_revision_and_wakes_nobody(store: Store) -> None:
    before = await store.revision()
    async with asyncio.TaskGroup() as group:
        news = group.create_task(next_batch(store, before))
        for turn in range(20):
            await store.roster.report(instance("a", revision=turn))
            await store.roster.lease("chores", "a", LONG)

        assert await store.revision() == before
        assert not news.done()
        await store.write(put("kept"))
    assert news.result().revision == before + 1


@pytest.mark.parametrize("kind", SHARED)
def test_of_many_at_once_one_gets_the_lease(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as one, opened(kind, tmp_path) as other:
            asked = [(one, "a"), (other, "b")] * 10
            leases = await asyncio.gather(*(store.roster.lease("chores", id_, LONG) for store, id_ in asked))

            assert len(set(leases)) == 1
            for store, id_ in asked[:2]:
                await store.roster.report(instance(id_))
            assert len(await one.roster.instances()) == 2

    run(scenario())


def test_whoever_is_silent_for_very_long_is_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened("sqlite", tmp_path) as store:
            times = iter((0.0, 60.0, 61.0, 3700.0, 3700.0))
            roster = SqliteRoster(tmp_path / "koguma.db", lambda: next(times))
            await roster.report(instance("a"))
            await roster.report(instance("b"))
            assert {one.instance.id: one.silence for one in await roster.instances()} == {"a": 61.0, "b": 1.0}
            await roster.report(instance("c"))
            assert [one.instance.id for one in await roster.instances()] == ["c"]
            await roster.close()
            assert await store.roster.instances()

    run(scenario())


def test_a_clock_that_is_set_back_holds_no_lease_for_ever(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened("sqlite", tmp_path):
            times = iter((5000.0, 100.0, 101.0))
            roster = SqliteRoster(tmp_path / "koguma.db", lambda: next(times))
            await roster.lease("chores", "a", 10.0)
            assert (await roster.lease("chores", "b", 10.0)).holder == "b"
            assert (await roster.lease("chores", "a", 10.0)).holder == "b"
            await roster.close()

    run(scenario())


def test_a_database_whose_clock_is_set_back_holds_no_lease_for_ever(tmp_path: Path) -> None:
    """Such as after a failover to a server whose clock is behind."""
    needs_postgres()

    async def scenario() -> None:
        async with opened("postgres", tmp_path) as store:
            first = await store.roster.lease("chores", "a", LONG)
            assert (await store.roster.lease("chores", "b", LONG)).holder == "a"
            statement = "UPDATE koguma.leases SET ends = ends + interval '1 hour'"
            await asyncio.to_thread(shared_postgres().execute, statement, database_of(tmp_path).rpartition("/")[2])

            second = await store.roster.lease("chores", "b", LONG)

            assert (second.holder, second.term) == ("b", first.term + 1)

    run(scenario())


@pytest.mark.parametrize("kind", WITH_ROSTER)
def test_who_was_heard_in_the_future_has_been_silent_since_somebody_else_said_something(
    kind: str, tmp_path: Path
) -> None:
    """As where the clock was set back: who has ended since must not seem to be there for as long."""

    async def scenario() -> None:
        async with opened(kind, tmp_path) as store:
            for id_ in "ab":
                await store.roster.report(instance(id_))
            await hear_in_the_future(store, tmp_path, "a")
            assert await silence_of(store, "a") == 0.0

            await store.roster.report(instance("b"))

            while not 0.0 < await silence_of(store, "a") < LONG:  # noqa: ASYNC110  # until `run` gives up
                await asyncio.sleep(0)  # what is waited for is time; the deadline is that of `run`
            assert (await store.roster.instances())[0].instance == instance("a")

    run(scenario())


async def silence_of(store: Store, id_: str) -> float:
    return next(seen.silence for seen in await store.roster.instances() if seen.instance.id == id_)


async def hear_in_the_future(store: Store, folder: Path, id_: str) -> None:
    """Date what an instance said an hour ahead, by hand."""
    if isinstance(store.roster, MemoryRoster):
        instance_, at = store.roster._reports[id_]
        store.roster._reports[id_] = instance_, at + LONG
    elif isinstance(store.roster, SqliteRoster):
        with closing(sqlite3.connect(folder / "koguma.db")) as connection, connection:
            connection.execute("UPDATE instances SET seen = seen + ? WHERE id = ?", (LONG, id_))
    else:
        statement = f"UPDATE koguma.instances SET seen = seen + interval '1 hour' WHERE id = '{id_}'"  # noqa: S608
        await asyncio.to_thread(shared_postgres().execute, statement, database_of(folder).rpartition("/")[2])


@pytest.mark.parametrize("column", ["seen", "started"])
@pytest.mark.parametrize("moment", ["infinity", "-infinity", "0044-03-15 BC", "294000-01-01"])
def test_a_row_that_no_instance_writes_is_none(tmp_path: Path, column: str, moment: str) -> None:
    needs_postgres()

    async def scenario() -> None:
        async with opened("postgres", tmp_path) as store:
            for id_ in "ab":
                await store.roster.report(instance(id_))
            statement = f"UPDATE koguma.instances SET {column} = '{moment}' WHERE id = 'a'"  # noqa: S608
            await asyncio.to_thread(shared_postgres().execute, statement, database_of(tmp_path).rpartition("/")[2])

            assert [each.instance.id for each in await store.roster.instances()] == ["b"]

    run(scenario())


def test_a_store_in_memory_forgets_as_others_do() -> None:
    async def scenario() -> None:
        times = iter((0.0, 3700.0, 3700.0))
        roster = MemoryRoster(lambda: next(times))
        await roster.report(instance("a"))
        await roster.report(dataclasses.replace(instance("b"), name="other"))
        assert [one.instance.id for one in await roster.instances()] == ["b"]

    run(scenario())

"""What the store in PostgreSQL promises beyond the contract: it lasts, it is shared, and it survives its database."""

from __future__ import annotations

import asyncio
import os
import random
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from cp.store.at_rest import SecretsPolicy
from cp.store.columns import DocumentColumns
from cp.store.encryption import DocumentCodec
from cp.store.migrations import SchemaStep, migrations
from cp.store.port import (
    ABSENT,
    Author,
    ChangeBatch,
    Conflict,
    HistoryLimits,
    Outdated,
    Put,
    Stored,
    StoreUnreachable,
    Unusable,
    WriteUncertain,
)
from cp.store.postgres import rows, schema, transactions, writing
from cp.store.postgres import store as postgres_store
from cp.store.postgres.connections import Connection
from cp.store.postgres.store import PostgresStore
from cp.store.registrations import OF_DATAPLANE
from cp.store.secrets_keys import NO_KEYS, SecretsKey, SecretsKeys
from tests.store.harness import (
    DEADLINE,
    ENCRYPTED,
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
)
from tests.store.test_registrations import PROXY, dataplane
from tests.support.cable import Cable, cable_to
from tests.support.loopback import Address, new_address
from tests.support.postgres import (
    FAST,
    PostgresServer,
    database_on_small_disk,
    needs_postgres,
    postgres_server,
    shared_postgres,
)
from tests.support.waiting import eventually_on_loop

STEPS = migrations("postgres")
BACKSTOP = 0.2
"""How often it is looked where no notification can tell. Elsewhere nobody lives to see it."""


@asynccontextmanager
async def opened(url: str, *, backstop: float = NEVER, **options: Any) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url, backstop=backstop, **options)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def url() -> str:
    needs_postgres()
    return shared_postgres().new_url()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One that the test may stop."""
    with postgres_server() as server:
        yield server


def query(url: str, text: str) -> list[Any]:
    return [tuple(row) for row in shared_postgres().execute(text, url.rpartition("/")[2])]


@asynccontextmanager
async def through_a_cable(url: str, **options: str) -> AsyncIterator[tuple[Cable, str]]:
    """A cable to the server of a database, and the URL by which the database is found at its end."""
    target = shared_postgres().address
    async with cable_to(target) as cable:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        yield cable, url.replace(str(target), str(cable.address)) + (f"?{query}" if query else "")


# --- it lasts, and is shared ------------------------------------------------------------------------------------


def test_everything_is_there_when_it_is_opened_again(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            await store.write(put("a", 1), put("b", 1))
            await store.write(put("a", 2))
            before, history = await store.read(), await store.history(key("a"))
        async with opened(url) as store:
            assert await store.read() == before
            assert await store.history(key("a")) == history
            assert [change.revision for change in await changes(store, 0, until=2)] == [1, 1, 2]
            assert await store.write(put("c")) == 3

    run(scenario())


def test_a_waiting_follower_hears_at_once_of_what_another_instance_wrote(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as one, opened(url) as other:
            for turn in range(1, 6):
                async with asyncio.TaskGroup() as running:
                    following = running.create_task(next_batch(one, turn - 1))
                    await other.write(put("a", turn))
                assert [change.after for change in following.result().changes] == [document("a", turn)]
            with pytest.raises(Conflict):
                await one.write(put("a", 9, based_on=1))

    run(scenario())


def test_several_instances_write_and_every_follower_is_given_the_same(url: str) -> None:
    """Revisions are without gaps in the order of commits, so a follower needs nothing but a number."""
    instances, writes = 4, 25

    async def write(store: PostgresStore, name: str) -> list[int]:
        return [await store.write(put(f"{name}1", turn), put(f"{name}2", turn)) for turn in range(writes)]

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(opened(url)) for _ in range(instances)]
            async with asyncio.TaskGroup() as running:
                following = [running.create_task(batches(store, 0, until=instances * writes)) for store in stores]
                writing = [running.create_task(write(store, name)) for store, name in zip(stores, "abcd", strict=True)]
            answered = [revision for task in writing for revision in task.result()]
            assert sorted(answered) == list(range(1, instances * writes + 1))
            given = [_flat(task.result()) for task in following]
            assert [revision for revision, _ in given[0]] == [n for n in range(1, 101) for _ in range(2)]
            assert all(seen == given[0] for seen in given)
            contents = [await store.read() for store in stores]
            assert all(contained(seen) == contained(contents[0]) for seen in contents)

    run(scenario())


def _flat(seen: list[ChangeBatch]) -> list[tuple[int, Any]]:
    return [(change.revision, (change.key, change.after)) for batch in seen for change in batch.changes]


def test_writes_that_come_together_are_committed_together_and_answered_each_for_itself(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            await store.write(put("a", 0))
            nonsense, nobody = Put(document("b", {1, 2})), Author("a\0b")
            answers = await asyncio.gather(
                store.write(put("first")),  # goes alone, and the others wait meanwhile
                store.write(put("a", 1, based_on=1)),
                store.write(put("a", 2, based_on=1)),
                store.write(nonsense),
                store.write(put("a\0b")),
                store.write(put("a\ud800b")),
                store.write(put("c"), author=nobody),
                store.write(put("b", 3), delete("a")),
                store.write(delete("a")),
                store.write(put("a", 4, based_on=ABSENT)),
                return_exceptions=True,
            )
            assert [answer if isinstance(answer, int) else type(answer) for answer in answers] == [
                *(2, 3, Conflict, TypeError, ValueError, ValueError, ValueError, 4, 4, 5)
            ]
            held_before = await held(store, "a")
            assert (held_before.document, held_before.revision) == (document("a", 4), 5)
            assert held_before.created == held_before.modified  # another document than the one that was deleted
            assert [change.revision for change in await changes(store, 0, until=5)] == [1, 2, 3, 4, 4, 5]

    run(scenario())
    marks = query(url, "SELECT count(DISTINCT mark) FROM koguma.changes WHERE revision > 2")
    assert marks == [(1,)]


def test_instances_that_begin_at_once_make_the_tables_together_and_one_of_them_the_first_document(url: str) -> None:
    async def begin(number: int) -> bool:
        async with opened(url) as store:
            try:
                await store.write(put("default", number, based_on=ABSENT))
            except Conflict:
                return False
            return True

    async def scenario() -> None:
        assert sum(await asyncio.gather(*map(begin, range(6)))) == 1
        async with opened(url) as store:
            assert await store.revision() == 1

    run(scenario())
    assert query(url, "SELECT number FROM koguma.migrations ORDER BY 1") == [(n,) for n in range(1, len(STEPS) + 1)]


def test_a_change_too_old_to_be_kept_is_forgotten_with_the_next_write(url: str) -> None:
    days = count()

    def clock() -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=next(days))

    async def scenario() -> None:
        async with opened(url, limits=HistoryLimits(kept_age=timedelta(days=2, hours=1)), clock=clock) as store:
            for value in range(6):
                await store.write(put("a", value))
            assert await store.oldest() == 3
            assert [change.revision for change in await store.history()] == [6, 5, 4]
            with pytest.raises(Outdated):
                await next_batch(store, 2)

    run(scenario())


async def two_old_secrets(store: PostgresStore) -> None:
    for value in range(3):
        await store.write(put("a", f"secret-{value}"))


def test_of_what_is_forgotten_in_time_no_row_has_a_document_and_nobody_is_told(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts = rows._FORGET.replace("10000", "1")
    assert in_parts != rows._FORGET
    monkeypatch.setattr(rows, "_FORGET", in_parts)

    async def scenario() -> None:
        async with opened(url) as other, opened(url, limits=HistoryLimits(kept_age=timedelta(0))) as store:
            await two_old_secrets(other)
            both = other, store
            await eventually_on_loop(lambda: all(each._news.edition == 4 for each in both))  # one when it has begun
            await store.forget()
            assert (await store.oldest(), await other.history()) == (3, ())
            left = "SELECT revision, before, after FROM koguma.changes"
            assert await asyncio.to_thread(query, url, left) == [(3, None, None)]
            await other.write(put("b", 1))
            await eventually_on_loop(lambda: all(each._news.edition >= 5 for each in both))
            assert [each._news.edition for each in both] == [5, 5]

    run(scenario())


def test_a_database_that_has_gone_back_is_noticed_also_after_all_was_forgotten(url: str) -> None:
    async def scenario() -> None:
        async with opened(url, limits=HistoryLimits(kept_age=timedelta(0))) as store:
            await store.write(put("a", 1))
            await keep_a_copy(url)
            await store.write(put("a", 2))
            assert (await store.read()).revision == 2
            await store.forget()
            await go_back(url)
            async with opened(url) as other:
                await other.write(put("b", 1))
                assert await is_refused(store, 2)

    run(scenario())


def test_very_many_are_forgotten_with_several_writes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_parts = rows._RECORD.replace("10000", "4")
    assert in_parts != rows._RECORD
    monkeypatch.setattr(rows, "_RECORD", in_parts)

    async def scenario() -> None:
        async with opened(url) as store:
            for value in range(10):
                await store.write(put("a", value))
        async with opened(url, limits=HistoryLimits(kept=2)) as store:
            assert [(await store.write(put("b", value)), await store.oldest()) for value in range(4)] == [
                *((11, 4), (12, 8), (13, 11), (14, 12))
            ]

    run(scenario())


def test_secrets_are_encrypted_in_every_row(url: str) -> None:
    async def scenario() -> None:
        async with opened(url, secrets=ENCRYPTED) as store:
            await store.write(put("a", "a secret"))
            await store.write(put("a", "another secret"))
            assert (await held(store, "a")).document == document("a", "another secret")
        with pytest.raises(Unusable, match=r"1 document is encrypted with the key .*, which is not configured"):
            await PostgresStore.open(url)

    run(scenario())
    texts = query(url, "SELECT data::text FROM koguma.documents UNION ALL SELECT after::text FROM koguma.changes")
    assert len(texts) == 3
    assert not any("secret" in text for (text,) in texts)


async def in_session(name: str, connection: Connection) -> object:
    return await connection.fetchval("SELECT current_setting($1)", name)


@pytest.mark.parametrize(("given", "in_force"), [("off", "on"), ("remote_write", "remote_write")])
def test_a_commit_waits_for_the_disk_at_least(url: str, given: str, in_force: str) -> None:
    query(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = {given}")

    async def scenario() -> None:
        async with opened(url) as store:
            assert await store._ask(partial(in_session, "synchronous_commit")) == in_force

    run(scenario())


@pytest.mark.long
def test_what_was_answered_is_on_the_disk_whatever_the_server_is_told_meanwhile() -> None:
    async def scenario(server: PostgresServer, url: str) -> None:
        async with opened(url) as store:
            await store.write(put("a", 1))
            for change in ("synchronous_commit = off", "work_mem = '5MB'"):
                server.execute(f"ALTER SYSTEM SET {change}", "postgres")
            server.execute("SELECT pg_reload_conf()", "postgres")
            async with asyncio.timeout(DEADLINE):  # until the session that is kept has heard of it
                while await store._ask(partial(in_session, "work_mem")) != "5MB":
                    pass
            assert await store.write(put("a", 2)) == 2
            await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        async with opened(url) as store:
            assert await store.revision() == 2

    needs_postgres()
    with postgres_server({**FAST, "wal_writer_delay": "10s"}) as server:  # what nobody waits for is late
        run(scenario(server, server.new_url()))


@pytest.mark.parametrize(("number_of", "length"), [(transactions._MANY, 1), (2, transactions._LARGE)])
def test_many_or_large_documents_are_encoded_and_decoded_beside_the_loop(
    url: str, monkeypatch: pytest.MonkeyPatch, number_of: int, length: int
) -> None:
    on_loop = list[str]()

    def noted(name: str) -> None:
        done = getattr(DocumentCodec, name)

        def note(*arguments: object) -> object:
            if threading.current_thread() is threading.main_thread():
                on_loop.append(name)
            return done(*arguments)

        monkeypatch.setattr(DocumentCodec, name, note)

    async def scenario() -> None:
        async with opened(url, secrets=ENCRYPTED) as store:
            for value in range(2):
                await store.write(*(put(f"a{number}", f"{value}" * length) for number in range(number_of)))
            assert len(await store.history(limit=1000)) == 2 * number_of
            assert len((await store.read()).stored) == number_of

    noted("encode")
    noted("decode")
    run(scenario())
    assert on_loop == []


# --- versions ---------------------------------------------------------------------------------------------------


def steps_of(monkeypatch: pytest.MonkeyPatch, *steps: SchemaStep) -> None:
    """A version that knows these steps."""
    monkeypatch.setattr(schema, "migrations", lambda _database: steps)


NOTE = SchemaStep("ALTER TABLE koguma.documents ADD COLUMN note text", len(STEPS))


def test_an_older_version_goes_on_with_a_store_that_a_newer_one_left_compatible(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both at once, and then the older alone, and the newer again, which does nothing twice."""

    async def scenario() -> None:
        async with opened(url) as older:
            await older.write(put("a"))
            steps_of(monkeypatch, *STEPS, NOTE)
            async with opened(url) as newer:
                await newer.write(put("b"))
                assert [change.key for change in (await next_batch(older, 1)).changes] == [key("b")]
                assert await older.write(put("c")) == 3
                assert contained(await newer.read()) == contained(await older.read())
        for steps, name in ((STEPS, "d"), ((*STEPS, NOTE), "e")):
            steps_of(monkeypatch, *steps)
            async with opened(url) as store:
                await store.write(put(name))
                assert len(contained(await store.read())) == ord(name) - ord("a") + 1

    run(scenario())


def test_a_store_that_an_older_version_would_misread_is_refused_by_it_also_while_it_runs(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(url) as older:
            await older.write(put("a"))
            steps_of(monkeypatch, *STEPS, SchemaStep("ALTER TABLE koguma.head ADD COLUMN note text", len(STEPS) + 1))
            async with opened(url) as newer:
                await newer.write(put("b"))
            older._listener.look()
            await eventually_on_loop(lambda: older.outage != "")
            known = len(STEPS)
            with pytest.raises(
                Unusable, match=rf"newer version \(schema {known + 1}, this one knows {known}\): upgrade"
            ):
                await older.write(put("c"))
        steps_of(monkeypatch, *STEPS)
        with pytest.raises(Unusable, match="made by a newer version"):
            await PostgresStore.open(url)

    run(scenario())


def test_a_migration_is_done_wholly_or_not_at_all(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps_of(monkeypatch, *STEPS, SchemaStep("CREATE TABLE koguma.more (a text); NONSENSE;", 1))
    with pytest.raises(Unusable, match="NONSENSE"):
        run(PostgresStore.open(url))

    assert query(url, "SELECT to_regnamespace('koguma') IS NULL") == [(True,)]


def test_who_holds_the_lock_of_those_who_migrate_keeps_nobody_from_a_store_that_is_up_to_date(url: str) -> None:
    """Any role that may connect can take it."""

    async def scenario() -> None:
        stranger = await asyncpg.connect(url, ssl=False)
        try:
            await stranger.execute("SELECT pg_advisory_lock($1)", schema._LOCK)
            with pytest.raises(Unusable, match="somebody else holds the advisory lock 1262966093"):
                await PostgresStore.open(f"{url}?timeout=1")
            await stranger.execute("SELECT pg_advisory_unlock($1)", schema._LOCK)
            async with opened(url):
                await stranger.execute("SELECT pg_advisory_lock($1)", schema._LOCK)
                async with opened(f"{url}?timeout=1") as store:
                    assert await store.revision() == 0
        finally:
            await stranger.close()

    run(scenario())


def test_a_schema_of_another_program_is_left_alone(url: str) -> None:
    query(url, "CREATE SCHEMA koguma CREATE TABLE bears (name text)")

    with pytest.raises(Unusable, match="belongs to another program"):
        run(PostgresStore.open(url))
    assert query(url, "SELECT relname FROM pg_class WHERE relnamespace = 'koguma'::regnamespace") == [("bears",)]


# --- the database goes away -------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [PostgresServer.stop, PostgresServer.kill])
def test_a_database_that_is_started_again_has_all_that_was_answered_and_is_followed_on(
    server: PostgresServer, end: Callable[[PostgresServer], None]
) -> None:
    answered: list[int] = []

    async def scenario() -> None:
        async with (
            opened(server.new_url(), backstop=BACKSTOP) as one,
            opened(one_url(server), backstop=BACKSTOP) as other,
        ):
            following = other.follow(0)
            answered.append(await one.write(put("a", 1)))
            assert (await anext(following)).revision == 1
            await asyncio.to_thread(end, server)
            await eventually_on_loop(lambda: one.outage != "" and other.outage != "")
            with pytest.raises(
                StoreUnreachable, match=r"the store is away since .*; what was read before stays in force"
            ):
                await one.write(put("a", 2))
            waiting = asyncio.ensure_future(anext(following))  # noqa: TID251  # it waits across the outage
            await asyncio.to_thread(server.start)
            await eventually_on_loop(lambda: one.outage == "")
            answered.append(await one.write(put("a", 3)))
            assert (await waiting).revision == 2
            assert contained(await other.read()) == {key("a"): document("a", 3)}

    run(scenario())
    assert answered == [1, 2]


def one_url(server: PostgresServer) -> str:
    return server.url(server.last_database)


def test_whenever_connections_are_cut_what_was_answered_is_there_once_and_what_was_refused_is_not(url: str) -> None:
    chance, cuts, answered = random.Random(5), count(), dict[int, int]()

    async def scenario() -> None:
        async with through_a_cable(url) as (cable, far), opened(far, backstop=BACKSTOP) as store, opened(url) as near:

            def cut_by_chance(_: bytes) -> None:
                if chance.random() < 0.012:
                    next(cuts)
                    cable.cut()

            cable.before_sending = cable.after_sending = cut_by_chance
            revision = ABSENT
            for turn in range(150):
                try:
                    answered[turn] = revision = await store.write(put("a", turn, based_on=revision))
                except StoreUnreachable:
                    await eventually_on_loop(lambda: store.outage == "")
            seen = await near.history(limit=1000)
            made = {change.after.data["spec"]["value"]: change.revision for change in seen if change.after is not None}
            assert made == answered

    run(scenario())
    assert len(answered) > 50
    assert next(cuts) > 3


def test_a_listener_that_is_cut_listens_again_and_has_missed_nothing(url: str) -> None:
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR query LIKE '%head%'"

    async def scenario() -> None:
        async with opened(url) as one, opened(url) as other:
            following = one.follow(0)
            for turn in range(1, 4):
                await eventually_on_loop(lambda: one._listener.is_listening)
                await asyncio.to_thread(query, url, f"{kill} AND pid <> pg_backend_pid()")
                await other.write(put("a", turn))
                assert (await anext(following)).revision == turn
            assert one.outage == ""

    run(scenario())


def test_an_outage_has_the_reason_that_it_has_now(url: str) -> None:
    name = url.rpartition("/")[2]

    async def scenario() -> None:
        async with opened(url) as store:
            await asyncio.to_thread(in_another_database, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"  # noqa: S608  # a name of our own
            await asyncio.to_thread(in_another_database, end)
            await eventually_on_loop(lambda: "not currently accepting connections" in store.outage)
            since = store.outage.partition(": ")[0]
            await asyncio.to_thread(in_another_database, f"ALTER DATABASE {name} RENAME TO {name}_away")
            await eventually_on_loop(lambda: "make it first: CREATE DATABASE" in store.outage)
            assert store.outage.startswith(since)

    with capture_logs() as lines:
        run(scenario())
    told = [line["reason"] for line in lines if line["event"] == "store.unreachable"]
    assert len(told) == len(set(told)) == 2


def in_another_database(statement: str) -> None:
    shared_postgres().execute(statement, "postgres")


async def have_new_connections(store: PostgresStore, cable: Cable) -> None:
    """One that listens and one to ask by, with the limits that the store has now."""
    listening = asyncio.Event()
    cable.after_sending = once_at(b"LISTEN", listening.set)
    cable.cut()
    await listening.wait()
    while True:
        await eventually_on_loop(lambda: store._listener.is_listening and store.outage == "")
        with suppress(StoreUnreachable):  # the machine may be slow
            await store.revision()
            return


def test_a_connection_that_swallows_everything_is_noticed_and_replaced(url: str) -> None:
    async def scenario() -> None:
        async with (
            through_a_cable(url) as (cable, far),
            opened(far, backstop=BACKSTOP) as store,
            opened(url) as other,
        ):
            await store.write(put("a", 1))
            store._database.address = replace(store._database.address, timeout=0.5, connect_timeout=0.5)
            await have_new_connections(store, cable)
            cable.swallow()
            with pytest.raises(StoreUnreachable):
                await store.write(put("a", 2))
            await eventually_on_loop(lambda: store.outage != "")
            await other.write(put("b", 1))  # whoever vanished does not hold the lock for ever
            revision = await other.revision()
            cable.cut()
            cable.carry()
            await eventually_on_loop(lambda: store.outage == "")
            assert (await batches(store, 1, until=revision))[-1].revision == revision

    run(scenario())


def once_at(word: bytes, act: Callable[[], None]) -> Callable[[bytes], None]:
    pending = [act]

    def listen(data: bytes) -> None:
        if word in data and pending:
            pending.pop()()

    return listen


AUTHENTICATED, READY = b"R\0\0\0\x08\0\0\0\0", b"Z\0\0\0\x05I"
BANANA = b"S" + (4 + len(b"server_version\0banana\0")).to_bytes(4) + b"server_version\0banana\0"


@asynccontextmanager
async def answering(address: Address, greeting: bytes) -> AsyncIterator[None]:
    """Somebody who answers whatever he is told with the same, and hangs up when the other one does."""

    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(OSError):
            while await reader.read(65536):
                writer.write(greeting)

    async with await asyncio.start_server(answer, *address):
        yield
    for writer in writers:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize("greeting", [AUTHENTICATED + READY, AUTHENTICATED + BANANA + READY])
def test_somebody_who_answers_in_place_of_the_database_is_an_outage(url: str, greeting: bytes) -> None:
    async def scenario() -> None:
        async with through_a_cable(url) as (cable, far), opened(far, backstop=BACKSTOP) as store:
            await store.write(put("a", 1))
            async with asyncio.TaskGroup() as running:
                following = running.create_task(next_batch(store, 1))
                impostor = new_address()
                there, cable.target = cable.target, impostor
                async with answering(impostor, greeting):
                    cable.cut()
                    await eventually_on_loop(lambda: "does not speak as PostgreSQL does" in store.outage)
                    cable.target = there
                    cable.cut()
                    await eventually_on_loop(lambda: store.outage == "")
                assert await store.write(put("a", 2)) == 2
            assert following.result().revision == 2

    run(scenario())


def test_a_database_that_is_being_restored_is_an_outage(url: str) -> None:
    async def scenario() -> None:
        async with opened(url, backstop=BACKSTOP) as store:
            await store.write(put("a", 1))
            async with asyncio.TaskGroup() as running:
                following = running.create_task(next_batch(store, 1))
                await asyncio.to_thread(query, url, "CREATE TABLE public.kept AS SELECT * FROM koguma.head")
                empty = "WITH gone AS (DELETE FROM koguma.head) SELECT pg_notify('koguma', '')"
                await asyncio.to_thread(query, url, empty)
                await eventually_on_loop(lambda: "is it being restored?" in store.outage)
                with pytest.raises(StoreUnreachable, match="is it being restored"):
                    await store.read()
                await asyncio.to_thread(query, url, "INSERT INTO koguma.head SELECT * FROM public.kept")
                await eventually_on_loop(lambda: store.outage == "")
                assert await store.write(put("a", 2)) == 2
            assert following.result().revision == 2

    run(scenario())


KILL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_GO_BACK = """
    DO $$ BEGIN
        TRUNCATE koguma.head, koguma.documents, koguma.changes;
        INSERT INTO koguma.head SELECT * FROM public.head;
        INSERT INTO koguma.documents SELECT * FROM public.documents;
        INSERT INTO koguma.changes SELECT * FROM public.changes;
    END $$
"""


async def keep_a_copy(url: str) -> None:
    for table in ("head", "documents", "changes"):
        await asyncio.to_thread(query, url, f"CREATE TABLE public.{table} AS TABLE koguma.{table}")


async def go_back(url: str) -> None:
    """As a database does that fails over to a replica which lacked the last writes."""
    await asyncio.to_thread(query, url, _GO_BACK)


async def is_refused(store: PostgresStore, since: int) -> bool:
    try:
        await next_batch(store, since)
    except Outdated:
        return True
    return False


def test_a_database_that_has_gone_back_is_read_anew(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as other:
            await other.write(put("a", 1))
        await keep_a_copy(url)
        async with opened(url) as store:
            await store.write(put("a", 2))
            assert (await next_batch(store, 1)).revision == 2
            async with asyncio.timeout(10), asyncio.TaskGroup() as running:
                refused = running.create_task(is_refused(store, 2))
                await go_back(url)
                await asyncio.to_thread(query, url, KILL)
            assert refused.result()
            contents = await store.read()
            assert (contents.revision, contained(contents)) == (1, {key("a"): document("a", 1)})
            await store.write(put("a", 3))
            assert (await next_batch(store, 1)).revision == 2

    run(scenario())


def test_a_database_that_has_gone_back_and_on_again_is_read_anew(url: str) -> None:
    """The revision alone does not tell: others have written as many or more meanwhile."""

    async def scenario() -> None:
        async with opened(url) as store:
            await store.write(put("a", 1))
            await keep_a_copy(url)
            await store.write(put("a", 2))
            assert (await store.read()).revision == 2
            await go_back(url)
            async with opened(url) as other:
                await other.write(put("b", 1))
                await other.write(put("b", 2))
                assert await is_refused(store, 2)
                contents = await store.read()
                assert contents == await other.read()
                await other.write(put("b", 3))
                assert (await next_batch(store, contents.revision)).revision == 4

    run(scenario())


def test_a_write_whose_commit_is_not_answered_is_looked_for_and_found(url: str) -> None:
    async def scenario() -> None:
        async with through_a_cable(url) as (cable, far), opened(far) as store:
            await store.write(put("a", 1))
            cable.after_sending = once_at(b"COMMIT;", cable.cut)
            assert await store.write(put("a", 2, based_on=1)) == 2  # made again, it would be a conflict with itself
            assert await store.write(put("a", 3)) == 3

    run(scenario())


def test_a_write_whose_commit_did_not_arrive_is_not_made_and_told_so(url: str) -> None:
    async def scenario() -> None:
        async with through_a_cable(url) as (cable, far), opened(far) as store:
            await store.write(put("a", 1))
            cable.before_sending = once_at(b"COMMIT;", cable.cut)
            with pytest.raises(StoreUnreachable, match="the change was not made: repeat it"):
                await store.write(put("a", 2))
            assert await store.write(put("a", 3)) == 2
            assert [change.after for change in await store.history()] == [document("a", 3), document("a", 1)]

    run(scenario())


def test_a_write_of_which_nobody_can_tell_is_told_to_be_uncertain(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "PATIENCE", 0.3)

    def end(cable: Cable) -> None:
        cable.is_open = False
        cable.cut()

    async def scenario() -> None:
        async with through_a_cable(url) as (cable, far), opened(far, backstop=BACKSTOP) as store:
            cable.after_sending = once_at(b"COMMIT;", lambda: end(cable))
            with pytest.raises(WriteUncertain, match="look at what is stored before you repeat it"):
                await store.write(put("a", 1))
            cable.is_open = True
            await eventually_on_loop(lambda: store.outage == "")
            assert contained(await store.read()) == {key("a"): document("a", 1)}

    run(scenario())


def test_a_write_whose_mark_is_forgotten_is_told_to_be_uncertain(url: str) -> None:
    def end(cable: Cable) -> None:
        cable.is_open = False
        cable.cut()

    async def scenario() -> None:
        async with (
            through_a_cable(url) as (cable, far),
            opened(far, limits=HistoryLimits(kept=1)) as store,
            opened(url, limits=HistoryLimits(kept=1)) as other,
        ):
            await store.write(put("a", 1))
            cable.after_sending = once_at(b"COMMIT;", lambda: end(cable))
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(refusal_of(store.write(put("a", 2))))
                assert (await next_batch(other, 1)).revision == 2
                await other.write(put("b", 1))
                cable.is_open = True
            assert type(writing.result()) is WriteUncertain
            assert "already forgotten: look at what is stored" in str(writing.result())
            assert (await held(other, "a")).document == document("a", 2)

    run(scenario())


def test_registration_that_was_merged_is_uncertain(url: str) -> None:
    """It was made, though no row says so: to repeat it would undo later ones."""

    def end(cable: Cable) -> None:
        cable.is_open = False
        cable.cut()

    async def scenario() -> None:
        async with through_a_cable(url) as (cable, far), opened(far) as store, opened(url) as other:
            await store.write(put("a", 1))
            cable.after_sending = once_at(b"COMMIT;", lambda: end(cable))
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(refusal_of(store.write(dataplane("web", 0), author=PROXY)))
                assert (await next_batch(other, 1)).revision == 2
                for value in range(1, 4 * OF_DATAPLANE):
                    await other.write(dataplane("web", value), author=PROXY)
                assert query(url, "SELECT 1 FROM koguma.changes WHERE revision = 2") == []
                cable.is_open = True
            assert type(writing.result()) is WriteUncertain

    run(scenario())


async def refusal_of(asked: Awaitable[object]) -> Unusable:
    with pytest.raises(Unusable) as refusal:
        await asked
    return refusal.value


def test_a_write_that_is_committed_while_the_store_is_closed_is_told_its_revision(url: str) -> None:
    async def scenario() -> None:
        async with through_a_cable(url) as (cable, far), opened(far) as store:
            await store.write(put("a", 1))
            sent = asyncio.Event()
            cable.after_sending = once_at(b"COMMIT;", sent.set)
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(store.write(put("a", 2)))
                await sent.wait()
                await store.close()
            assert writing.result() == 2

    run(scenario())


@pytest.mark.long
def test_a_write_that_the_end_of_the_store_overtakes_is_told_to_be_uncertain(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "GRACE", 0.1)

    async def scenario() -> None:
        async with through_a_cable(url) as (cable, far), opened(far) as store, opened(url) as other:
            await store.write(put("a", 1))
            sent = asyncio.Event()

            def swallow() -> None:
                cable.swallow()
                sent.set()

            cable.after_sending = once_at(b"COMMIT;", swallow)
            async with asyncio.TaskGroup() as group:
                refused = group.create_task(refusal_of(store.write(put("a", 2))))
                await sent.wait()
                await store.close()
            assert type(refused.result()) is WriteUncertain
            assert (await next_batch(other, 1)).revision == 2

    run(scenario())


@pytest.fixture
def small_url() -> Iterator[str]:
    """A database on a disk with room for it and little more."""
    needs_postgres()
    with database_on_small_disk(shared_postgres()) as name:
        if name is None:
            pytest.skip("only root can make a disk that is soon full")
        yield shared_postgres().url(name)


async def fill(store: PostgresStore) -> int:
    """The number of writes until the disk was full."""
    for written in count():
        try:
            await store.write(put(f"a{written}", os.urandom(50_000).hex()))
        except Unusable as error:
            assert "the disk of the database is full" in str(error)  # noqa: PT017  # which one it is tells how many
            return written
    raise AssertionError


def test_a_full_disk_refuses_the_write_and_nothing_else(small_url: str) -> None:
    async def scenario() -> None:
        async with opened(small_url) as store:
            written = await fill(store)
            contents = await store.read()
            assert contents.revision == written == len(contents.stored) > 0
            assert "the disk of the database is full" in store.refusal
            assert len(await changes(store, 0, until=written)) == written

    run(scenario())


# --- it says what is wrong ----------------------------------------------------------------------------------------


def test_a_database_that_is_not_there_is_named(url: str) -> None:
    with pytest.raises(Unusable, match=re.escape(f"{url}_more: database ") + ".*; make it first: CREATE DATABASE"):
        run(PostgresStore.open(f"{url}_more"))


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreUnreachable, match=r"postgresql://me@127.0.0.1:1/mesh: nothing listens there"):
        run(PostgresStore.open("postgresql://me@127.0.0.1:1/mesh"))


def test_a_database_that_can_only_be_read_is_told_to_be_so(url: str) -> None:
    query(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_read_only = on")

    with pytest.raises(StoreUnreachable, match="this is a replica, or may only be read: name the one that can be"):
        run(PostgresStore.open(url))


def test_who_finds_all_connections_in_use_is_told_so(url: str) -> None:
    async def scenario() -> None:
        async with opened(url + "?connections=1") as store:
            database = store._database
            async with database.connection():
                database.address = replace(database.address, connect_timeout=0.05)
                with pytest.raises(StoreUnreachable, match=r"all connections \(1\) are in use; raise `connections` in"):
                    await store.revision()

    run(scenario())


# --- secrets ------------------------------------------------------------------------------------------------------

PLAIN_SECRETS = SecretsPolicy(DocumentCodec(NO_KEYS, lambda _key, _data: True, frozenset({"MeshTimeout"})))


def test_secrets_in_plain_text_are_told_of_until_none_is_left(url: str) -> None:
    async def scenario() -> None:
        async with opened(url, secrets=PLAIN_SECRETS) as store, opened(url, secrets=PLAIN_SECRETS) as other:
            assert (await store.read()).findings == ()
            await other.write(put("a", "a secret"))
            [told] = (await next_batch(store, 0)).findings
            assert (told.code, "MeshTimeout default/a" in told.message) == ("secrets-in-plain-text", True)
            await other.write(delete("a"))
            assert (await next_batch(store, 1)).findings == ()

    run(scenario())


def test_a_read_that_ends_late_does_not_hide_what_was_found_meanwhile(url: str) -> None:
    async def scenario() -> None:
        async with opened(url, secrets=PLAIN_SECRETS) as store:
            await store.write(Put(document("m", kind="Mesh")))
            read, may_end, decoded = asyncio.Event(), asyncio.Event(), store._decoded

            async def slow(documents: Sequence[DocumentColumns]) -> tuple[Stored, ...]:
                read.set()
                await may_end.wait()
                return await decoded(documents)

            store._decoded = slow  # type: ignore[method-assign]
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(store.read())
                await read.wait()
                await store.write(put("a", "a secret"))
                assert [finding.code for finding in (await next_batch(store, 1)).findings] == ["secrets-in-plain-text"]
                may_end.set()
            assert reading.result().revision == 1
            await store.write(Put(document("n", kind="Mesh")))
            assert [finding.code for finding in (await next_batch(store, 2)).findings] == ["secrets-in-plain-text"]

    run(scenario())


def test_a_database_that_is_older_than_it_was_is_looked_through_anew(url: str) -> None:
    to_the_past = "UPDATE koguma.head SET revision = 1; DELETE FROM koguma.changes WHERE revision > 1"

    async def scenario() -> None:
        async with opened(url, secrets=PLAIN_SECRETS) as store:
            await store.write(put("a", "a secret"))
            await store.write(delete("a"))
            assert (await store.read()).findings == ()
            copy = "INSERT INTO koguma.documents SELECT type, mesh, name, after, after_source, 1, at, at FROM"
            for statement in (f"{copy} koguma.changes WHERE revision = 1", *to_the_past.split(";")):
                await asyncio.to_thread(query, url, statement)
            with pytest.raises(Outdated):
                await next_batch(store, 2)
            assert [finding.code for finding in (await store.read()).findings] == ["secrets-in-plain-text"]

    run(scenario())


OTHER_KEY = SecretsKey.of(bytes(31) + b"1")


def encrypted_with(*keys: SecretsKey) -> SecretsPolicy:
    return SecretsPolicy(DocumentCodec(SecretsKeys(keys), lambda _key, _data: True))


def test_two_that_have_no_key_in_common_are_not_let_in_together(url: str) -> None:
    """Before anything is encrypted: neither would see what the other one writes, and overwrite it."""

    async def scenario() -> None:
        async with opened(url, secrets=ENCRYPTED):
            with pytest.raises(Unusable, match=r"encrypt secrets here with the key .*KOGUMA_SECRETS_KEY_FILE"):
                await PostgresStore.open(url, secrets=encrypted_with(OTHER_KEY))
            both = encrypted_with(OTHER_KEY, *ENCRYPTED.codec.keys.keys)
            async with opened(url, secrets=both) as store:
                await store.write(put("a", 1))
        async with opened(url, secrets=encrypted_with(OTHER_KEY)) as store:
            assert (await held(store, "a")).document == document("a", 1)

    run(scenario())


def test_one_without_a_key_is_told_once_another_encrypts_and_overwrites_nothing(url: str) -> None:
    async def scenario() -> None:
        async with opened(url, backstop=BACKSTOP) as store:
            await store.write(put("a", 1))
            async with opened(url, secrets=ENCRYPTED) as other:
                await eventually_on_loop(lambda: "other control planes encrypt secrets here" in store.outage)
                with pytest.raises(Unusable, match="other control planes encrypt secrets here"):
                    await store.write(put("a", 2))
                assert (await held(other, "a")).document == document("a", 1)

    run(scenario())


def test_who_is_refused_for_a_key_knows_from_then_on_that_he_cannot_follow(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store, opened(url, secrets=ENCRYPTED):
            assert store.outage == "", "who does not follow is not told"
            with pytest.raises(Unusable, match="other control planes encrypt secrets here"):
                await store.write(put("a", 1))
            assert "other control planes encrypt secrets here" in store.outage

        async with opened(url, secrets=ENCRYPTED) as store:
            await asyncio.to_thread(query, url, "UPDATE koguma.secrets_keys SET fingerprint = 'another'")
            with pytest.raises(Unusable, match="other control planes encrypt secrets here"):
                await store.read()
            assert "other control planes encrypt secrets here" in store.outage
            await asyncio.to_thread(query, url, "DELETE FROM koguma.secrets_keys")
            await eventually_on_loop(lambda: store.outage == "")
            await store.read()

    run(scenario())


def test_who_follows_knows_that_he_cannot_as_soon_as_another_one_begins_with_a_key(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_PAUSE", NEVER)

    async def scenario() -> None:
        async with opened(url) as store:
            following = asyncio.ensure_future(anext(store.follow(0)))  # noqa: TID251  # it gets nothing
            async with opened(url, secrets=ENCRYPTED):
                await eventually_on_loop(lambda: "other control planes encrypt secrets here" in store.outage)
                assert not following.done()
                following.cancel()

    run(scenario())


def test_who_cannot_be_told_what_is_new_says_so_though_the_database_is_there(url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store, opened(url) as other:
            await store.write(put("a", 1))
            following = store.follow(0)
            await asyncio.to_thread(query, url, "ALTER TABLE koguma.changes RENAME COLUMN after_source TO away")
            waiting = asyncio.ensure_future(anext(following))  # noqa: TID251  # until it is there again
            await eventually_on_loop(lambda: "the store is not read since" in store.outage)
            assert (await store.revision(), other.outage) == (1, "")
            await asyncio.to_thread(query, url, "ALTER TABLE koguma.changes RENAME COLUMN away TO after_source")
            assert (await waiting).revision == 1
            await store.write(put("a", 2))
            assert (await anext(following)).revision == 2
            assert store.outage == ""

    run(scenario())


def test_a_secret_that_is_damaged_stays_as_it_was_last_good(url: str) -> None:
    async def scenario() -> None:
        async with opened(url, secrets=ENCRYPTED) as store:
            await store.write(put("a", 1))
            await asyncio.to_thread(query, url, "UPDATE koguma.documents SET data = '\"koguma-aes256gcm-1:damaged\"'")
            contents = await store.read()
            assert contained(contents) == {key("a"): document("a", 1)}
            assert [finding.code for finding in contents.findings] == ["unreadable-secret"]
            await store.write(put("a", 2))
            assert (await held(store, "a")).document == document("a", 2)
            assert (await store.read()).findings == ()

    run(scenario())

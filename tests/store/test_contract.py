"""What every store promises. The store of files is edited from outside; what cannot be said of it is left out."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cp.model.document import Document, Source
from cp.model.lines import Lines
from cp.model.moments import timestamp
from cp.model.names import Key
from cp.store import columns
from cp.store.clock import Clock
from cp.store.encryption import PLAIN
from cp.store.ledger import size_of
from cp.store.port import (
    ABSENT,
    UNKNOWN,
    Author,
    Change,
    ChangeBatch,
    ChangeNote,
    Closed,
    Conflict,
    Delete,
    HistoryLimits,
    Outdated,
    Put,
    Store,
)
from tests.store.harness import (
    ALL,
    ENCRYPTED,
    WRITABLE,
    batches,
    changes,
    contained,
    delete,
    document,
    held,
    key,
    next_batch,
    on,
    opened,
    put,
    run,
)

DATED = ("memory", "sqlite", "encrypted", "postgres", "encrypted-postgres")
"""Those that note when a document was made. In a folder it says so itself."""

LASTING = ("sqlite", "encrypted", "postgres", "encrypted-postgres")
"""Those that can be opened again."""


MOMENT = datetime(2026, 1, 31, 12, 30, 15, 250_000, tzinfo=UTC)


def later_and_later() -> Clock:
    """A clock that has gone on by a minute whenever it is looked at."""
    minutes = count()
    return lambda: datetime(2026, 1, 31, 12, 30, 15, 250_000, tzinfo=UTC) + timedelta(minutes=next(minutes))


def ages(*documents: Document | None) -> list[str | None]:
    return [None if document is None else document.source.created for document in documents]


# --- reading and writing ------------------------------------------------------------------------------------


@on(ALL)
async def test_a_new_store_is_empty_and_at_revision_zero(store: Store) -> None:
    contents = await store.read()

    assert (contents.revision, tuple(contents.stored), contents.findings) == (0, (), ())
    assert await store.revision() == 0


@on(ALL)
async def test_every_write_has_a_revision_one_higher_than_the_last(store: Store) -> None:
    assert [await store.write(put("a", value)) for value in range(3)] == [1, 2, 3]
    assert await store.write(delete("a")) == 4
    assert (await store.read()).revision == 4
    assert await store.revision() == 4


@on(ALL)
async def test_a_document_that_was_put_is_there(store: Store) -> None:
    await store.write(put("a", 1))
    revision = await store.write(put("b", 2))

    assert (await held(store, "b")).document == document("b", 2)
    assert (await held(store, "b")).revision == revision
    assert contained(await store.read()) == {key("a"): document("a", 1), key("b"): document("b", 2)}


@on(ALL)
async def test_documents_are_read_in_the_order_of_their_keys(store: Store) -> None:
    for name in ("c", "a", "b"):
        await store.write(put(name))

    assert [stored.document.key.name for stored in (await store.read()).stored] == ["a", "b", "c"]


@on(WRITABLE)
async def test_several_documents_are_found_at_once_and_those_that_are_not_there_are_left_out(store: Store) -> None:
    await store.write(put("a"), put("b"))

    found = await store.find(key("b"), key("missing"), key("a"))

    assert found == {key("a"): await store.get(key("a")), key("b"): await store.get(key("b"))}
    assert await store.find() == {}


@on(ALL)
async def test_a_document_that_is_not_there_is_none(store: Store) -> None:
    await store.write(put("a"))

    assert await store.get(key("b")) is None
    assert await store.get(Key("MeshRetry", "default", "a")) is None
    assert await store.get(Key("MeshTimeout", "other", "a")) is None


@on(ALL)
async def test_a_deleted_document_is_gone(store: Store) -> None:
    await store.write(put("a"))
    await store.write(put("b"))
    await store.write(delete("a"))

    assert await store.get(key("a")) is None
    assert list(contained(await store.read())) == [key("b")]


@on(WRITABLE)
async def test_several_writes_make_one_revision(store: Store) -> None:
    await store.write(put("old"))
    revision = await store.write(put("a"), put("b"), delete("old"))

    assert revision == 2
    assert [stored.revision for stored in (await store.read()).stored] == [2, 2]


@on(ALL)
async def test_a_write_that_changes_nothing_makes_no_revision(store: Store) -> None:
    await store.write(put("a", 1))

    assert await store.write(put("a", 1)) == 1
    assert await store.write(delete("b")) == 1
    assert (await held(store, "a")).revision == 1
    assert await store.write(put("a", 2)) == 2
    assert [change.revision for change in await changes(store, 0, until=2)] == [1, 2]


@on(WRITABLE)
async def test_writing_nothing_makes_no_revision(store: Store) -> None:
    assert await store.write() == 0
    await store.write(put("a"))
    assert await store.write() == 1


@on(WRITABLE)
async def test_of_several_writes_to_one_document_the_last_counts(store: Store) -> None:
    await store.write(put("a", 1), put("a", 2))
    assert (await held(store, "a")).document == document("a", 2)

    assert await store.write(put("b"), delete("b")) == 1
    assert len(await store.history(key("a"))) == 1


@on(WRITABLE)
async def test_a_name_that_nobody_can_have_is_not_there(store: Store) -> None:
    await store.write(put("a"))

    nobody = key("a\0b")
    assert await store.get(nobody) is None
    assert list(await store.find(key("a"), nobody)) == [key("a")]
    assert await store.history(nobody) == ()


@on(WRITABLE)
async def test_the_place_where_a_document_was_written_is_kept(store: Store) -> None:
    source = Source(
        "policies/a.yaml",
        Lines(3, {"spec": Lines(5, {"value": Lines(6)}), "list": Lines(7, items=(Lines(8), Lines(9)))}),
    )
    await store.write(Put(document("a", source=source)))

    assert (await held(store, "a")).document.source == source
    [change] = await changes(store, 0, until=1)
    assert change.after is not None
    assert change.after.source == source


@on(WRITABLE)
async def test_a_document_that_only_moved_is_a_change_to_an_equal_one(store: Store) -> None:
    before, after = Source("a.yaml", Lines(1)), Source("a.yaml", Lines(9))
    await store.write(Put(document("a", source=before)))

    assert await store.write(Put(document("a", source=after))) == 2
    [change] = await changes(store, 1, until=2)
    assert change.before is not None
    assert change.after is not None
    assert change.before == change.after
    assert (change.before.source, change.after.source) == (before, after)
    assert await store.write(Put(document("a", source=after))) == 2


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def test_a_document_comes_back_as_it_was_written(tmp_path: Path) -> None:
    async def come_back(store: Store, data: dict[str, object]) -> None:
        await store.write(Put(Document(key("a"), data)))
        read = (await held(store, "a")).document
        assert repr(read.data) == repr(data)  # tells 1 from 1.0 and True, and sees the order of keys
        await store.write(delete("a"))

    with asyncio.Runner() as runner:
        context = opened("sqlite", tmp_path)
        store = runner.run(context.__aenter__())

        @settings(max_examples=60, deadline=None)
        @given(data=st.dictionaries(st.text(), plain))
        def come_back_whatever_it_is(data: dict[str, object]) -> None:
            runner.run(come_back(store, data))

        come_back_whatever_it_is()
        runner.run(context.__aexit__(None, None, None))


@pytest.mark.parametrize("kind", ALL)
def test_the_times_of_making_and_changing_are_noted(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path, clock=later_and_later()) as store:
            start = (await store.write(put("a", 1)), (await held(store, "a")).modified)[1]
            await store.write(put("a", 2))
            now = await held(store, "a")
            assert now.created == start
            assert now.modified > start
            assert [change.at for change in await store.history(key("a"))] == [now.modified, start]

    run(scenario())


@pytest.mark.parametrize("kind", DATED)
def test_a_document_knows_when_it_was_made_whatever_becomes_of_it(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path, clock=later_and_later()) as store:
            await store.write(put("a", 1))
            await store.write(put("a", 2), put("b"))
            a, b = await held(store, "a"), await held(store, "b")
            assert ages(a.document, b.document) == [timestamp(a.created), timestamp(b.created)]
            assert a.created < a.modified == b.created
            seen = await changes(store, 0, until=2)
            assert [ages(change.before, change.after) for change in seen if change.key == key("a")] == [
                ages(None, a.document),
                ages(a.document, a.document),
            ]

    run(scenario())


@pytest.mark.parametrize("kind", DATED)
def test_a_document_that_is_made_again_is_a_new_one(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path, clock=later_and_later()) as store:
            await store.write(put("a"))
            first = await held(store, "a")
            await store.write(delete("a"))
            await store.write(put("a"))
            again = await held(store, "a")
            assert again.created > first.created
            assert ages(again.document) == [timestamp(again.created)]

    run(scenario())


@pytest.mark.parametrize("kind", DATED)
def test_what_is_written_together_is_made_in_that_order_and_last_of_all_now(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path, clock=later_and_later()) as store:
            await store.write(*(put(name) for name in "cab"))
            first, second, last = [await held(store, name) for name in "cab"]
            assert first.created < second.created < last.created == last.modified == first.modified
            await store.write(put("a", 1), put("d"))
            assert (await held(store, "a")).created == second.created

    run(scenario())


@on(DATED)
async def test_a_new_document_brings_its_age_along_and_one_that_is_there_keeps_its_own(store: Store) -> None:
    old, other = ("2020-01-01T00:00:00.000000Z", "2021-01-01T00:00:00.000000Z")
    await store.write(Put(document("a", 1, source=Source(created=old))))
    first = await held(store, "a")

    assert (timestamp(first.created), ages(first.document)) == (old, [old])
    assert await store.write(Put(document("a", 1, source=Source(created=other)))) == 1
    await store.write(Put(document("a", 2, source=Source(created=other))))
    assert ages((await held(store, "a")).document) == [old]


@on(ALL)
async def test_the_log_tells_what_the_history_does_but_for_the_documents(store: Store) -> None:
    await store.write(put("a", 1), put("b", 1))
    await store.write(put("a", 2))
    await store.write(delete("b"))
    assert await store.log() == tuple(map(ChangeNote.of, await store.history()))
    assert await store.log(key("a"), 1) == tuple(map(ChangeNote.of, await store.history(key("a"), 1)))
    assert await store.log(None, 10, 3) == tuple(map(ChangeNote.of, await store.history(None, 10, 3)))


@on(("sqlite", "encrypted", "postgres", "encrypted-postgres"))
async def test_the_log_of_large_documents_takes_little_memory(store: Store) -> None:
    for turn in range(10):
        await store.write(put("a", str(turn) * 1_000_000))
    tracemalloc.start()
    try:
        assert len(await store.log()) == 10
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1_000_000


# --- optimistic concurrency ---------------------------------------------------------------------------------


@on(WRITABLE)
async def test_a_write_based_on_the_last_revision_is_made(store: Store) -> None:
    first = await store.write(put("a", 1, based_on=ABSENT))
    await store.write(put("b"))
    second = await store.write(put("a", 2, based_on=first))

    assert await store.write(delete("a", based_on=second)) == 4
    assert await store.write(put("a", 3, based_on=ABSENT)) == 5


@on(WRITABLE)
async def test_a_write_based_on_an_old_revision_is_refused(store: Store) -> None:
    first = await store.write(put("a", 1))
    await store.write(put("a", 2))

    with pytest.raises(Conflict, match="MeshTimeout default/a is at revision 2, not at 1") as refused:
        await store.write(put("a", 3, based_on=first))
    assert (refused.value.key, refused.value.based_on, refused.value.actual) == (key("a"), 1, 2)
    with pytest.raises(Conflict):
        await store.write(delete("a", based_on=first))
    assert (await held(store, "a")).document == document("a", 2)
    assert (await store.read()).revision == 2


@on(WRITABLE)
async def test_what_must_be_new_must_not_be_there(store: Store) -> None:
    await store.write(put("a"))

    with pytest.raises(Conflict):
        await store.write(put("a", 1, based_on=ABSENT))


@on(WRITABLE)
async def test_what_must_be_there_must_not_be_gone(store: Store) -> None:
    first = await store.write(put("a"))
    await store.write(delete("a"))

    with pytest.raises(Conflict, match="does not exist"):
        await store.write(put("a", 1, based_on=first))
    with pytest.raises(Conflict, match="does not exist"):
        await store.write(delete("a", based_on=first))


@on(WRITABLE)
async def test_a_conflict_is_one_even_if_the_write_would_change_nothing(store: Store) -> None:
    await store.write(put("a", 1))
    await store.write(put("a", 2))

    with pytest.raises(Conflict):
        await store.write(put("a", 2, based_on=1))


@on(WRITABLE)
async def test_of_several_writes_all_or_none_are_made(store: Store) -> None:
    await store.write(put("a", 1))

    with pytest.raises(Conflict):
        await store.write(put("b"), put("a", 2, based_on=7), delete("a"))
    assert contained(await store.read()) == {key("a"): document("a", 1)}
    assert (await store.read()).revision == 1
    assert await store.history(key("b")) == ()


@on(WRITABLE)
async def test_each_write_is_compared_with_what_was_there_before_all(store: Store) -> None:
    first = await store.write(put("a", 1))

    await store.write(put("a", 2, based_on=first), put("a", 3, based_on=first))
    assert (await held(store, "a")).document == document("a", 3)


@on(WRITABLE)
async def test_of_concurrent_writers_exactly_one_wins_each_round(store: Store) -> None:
    async def wins(writer: int, based_on: int) -> bool:
        try:
            await store.write(put("a", writer, based_on))
        except Conflict:
            return False
        return True

    revision = ABSENT
    for round_of in range(20):
        outcomes = await asyncio.gather(*(wins(round_of * 100 + writer, revision) for writer in range(10)))
        assert sum(outcomes) == 1
        stored = await held(store, "a")
        assert stored.document == document("a", round_of * 100 + outcomes.index(True))
        revision = stored.revision
    assert revision == 20


@on(WRITABLE)
async def test_concurrent_writers_who_try_again_all_get_through(store: Store) -> None:
    async def increment() -> None:
        while True:
            stored = await store.get(key("counter"))
            value = 0 if stored is None else stored.document.data["spec"]["value"]
            try:
                await store.write(put("counter", value + 1, ABSENT if stored is None else stored.revision))
            except Conflict:
                continue
            return

    await asyncio.gather(*(increment() for _ in range(25)))

    assert (await held(store, "counter")).document == document("counter", 25)
    assert (await store.read()).revision == 25


# --- following ----------------------------------------------------------------------------------------------


@on(ALL)
async def test_a_follower_from_the_beginning_sees_every_change(store: Store) -> None:
    await store.write(put("a", 1))
    await store.write(put("a", 2))
    await store.write(delete("a"))

    seen = await changes(store, 0, until=3)
    assert [change.revision for change in seen] == [1, 2, 3]
    assert {change.key for change in seen} == {key("a")}
    assert [change.after for change in seen] == [document("a", 1), document("a", 2), None]
    assert [change.before for change in seen] == [None, document("a", 1), document("a", 2)]


@on(ALL)
async def test_a_follower_waits_for_the_next_change(store: Store) -> None:
    await store.write(put("a"))
    first, second, _ = await asyncio.gather(next_batch(store, 1), next_batch(store, 1), store.write(put("b")))

    for batch in (first, second):
        assert batch.revision == 2
        assert [change.key for change in batch.changes] == [key("b")]


@on(ALL)
async def test_a_follower_from_an_old_revision_sees_only_what_came_after(store: Store) -> None:
    for value in range(5):
        await store.write(put("a", value))

    assert [change.revision for change in await changes(store, 2, until=5)] == [3, 4, 5]
    assert [change.revision for change in await changes(store, 4, until=5)] == [5]


@on(ALL)
async def test_who_reads_and_follows_from_there_misses_nothing(store: Store) -> None:
    await store.write(put("a"))
    since = (await store.read()).revision
    await store.write(put("b"))

    assert [change.key for change in (await next_batch(store, since)).changes] == [key("b")]


@on(ALL)
async def test_a_slow_follower_gets_several_changes_in_one_batch(store: Store) -> None:
    following = store.follow(0)
    await store.write(put("a"))
    assert (await anext(following)).revision == 1
    for name in ("b", "c", "d"):
        await store.write(put(name))

    batch = await anext(following)
    assert batch.revision == 4
    assert [change.key.name for change in batch.changes] == ["b", "c", "d"]


@on(WRITABLE)
async def test_what_was_written_together_is_never_cut_apart(store: Store) -> None:
    async with asyncio.TaskGroup() as running:
        followers = [running.create_task(batches(store, 0, until=40)) for _ in range(3)]
        for value in range(40):
            await store.write(put("a", value), put("b", value), put("c", value))

    for follower in followers:
        for batch in follower.result():
            values = [change.after.data["spec"]["value"] for change in batch.changes if change.after is not None]
            assert all(values.count(value) == 3 for value in values)


@on(WRITABLE)
async def test_followers_agree_with_the_store_while_many_write(store: Store) -> None:
    """Each builds a copy from the changes alone; in it no change may be missing, twice or out of order."""
    writes_each, writers = 30, 4

    async def write(seed: int) -> None:
        chance = random.Random(seed)
        for turn in range(writes_each):
            name = chance.choice("abcde")
            unique = seed * 1000 + turn
            together: list[Put | Delete] = [put(f"{name}1", unique), put(f"{name}2", unique)]
            await store.write(*together, delete(chance.choice("abcde") + "1"))

    async def copy(since: int) -> tuple[dict[Key, Document], list[int]]:
        copied: dict[Key, Document] = {}
        revisions: list[int] = []
        for batch in await batches(store, since, until=writes_each * writers):
            _apply(batch, copied)
            revisions += dict.fromkeys(change.revision for change in batch.changes)
            await asyncio.sleep(0)
        return copied, revisions

    following = [copy(0) for _ in range(3)]
    copies = await asyncio.gather(*following, *(write(seed) for seed in range(writers)))

    contents = await store.read()
    assert contents.revision == writes_each * writers
    for copied, revisions in [*filter(None, copies), await copy(0)]:
        assert revisions == list(range(1, contents.revision + 1))
        assert copied == contained(contents)


def _apply(batch: ChangeBatch, copied: dict[Key, Document]) -> None:
    for change in batch.changes:
        assert copied.get(change.key) == change.before
        assert change.before is not None or change.after is not None
        copied.pop(change.key, None)
        if change.after is not None:
            copied[change.key] = change.after
    assert all(change.revision <= batch.revision for change in batch.changes)


@on(ALL)
async def test_changes_of_the_future_cannot_be_followed(store: Store) -> None:
    await store.write(put("a"))

    with pytest.raises(Outdated, match="revisions 0 to 1, not from 2"):
        await next_batch(store, 2)


@pytest.mark.parametrize("kind", ALL)
def test_changes_that_are_no_longer_kept_cannot_be_followed(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path, limits=HistoryLimits(kept=3)) as store:
            for value in range(5):
                await store.write(put("a", value))
            assert [change.revision for change in await changes(store, 2, until=5)] == [3, 4, 5]
            assert [change.revision for change in await store.history(key("a"))] == [5, 4, 3]
            with pytest.raises(Outdated, match="revisions 2 to 5, not from 1") as outdated:
                await next_batch(store, 1)
            assert (outdated.value.since, outdated.value.oldest, outdated.value.newest) == (1, 2, 5)

    run(scenario())


@pytest.mark.parametrize("kind", ALL)
def test_a_follower_who_is_too_slow_is_told(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path, limits=HistoryLimits(kept=2)) as store:
            following = store.follow(0)
            await store.write(put("a", 0))
            await anext(following)
            for value in range(1, 5):
                await store.write(put("a", value))
            with pytest.raises(Outdated):
                await anext(following)

    run(scenario())


@pytest.mark.parametrize("kind", ALL)
def test_a_store_keeps_at_least_its_last_revision(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path, limits=HistoryLimits(kept=1)) as store:
            await store.write(put("a", 1))
            assert [change.revision for change in await changes(store, 0, until=1)] == [1]
        with pytest.raises(ValueError, match="at least its last revision, not 0"):
            async with opened(kind, tmp_path, limits=HistoryLimits(kept=0)):
                pass

    run(scenario())


@pytest.mark.parametrize("kind", ALL)
def test_what_is_remembered_has_a_size_too(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path, limits=HistoryLimits(kept_bytes=10_000)) as store:
            for value in range(20):
                await store.write(put("a", f"{value:04}" * 250))  # a change has what was and what is: 2,000 bytes
            kept = [change.revision for change in await store.history(key("a"))]
            assert 3 <= len(kept) <= 5
            assert kept == list(range(20, 20 - len(kept), -1))
            assert len(await changes(store, 20 - len(kept), until=20)) == len(kept)
            with pytest.raises(Outdated):
                await next_batch(store, 10)

    run(scenario())


@pytest.mark.parametrize("kind", ALL)
def test_history_keeps_changes_that_fill_its_bytes(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        for folder in ("measured", "limited"):
            (tmp_path / folder).mkdir()
        async with opened(kind, tmp_path / "measured", clock=lambda: MOMENT) as store:
            for value in range(3):
                await store.write(put("a", value))
            size = logged_size(kind, (await store.history(limit=1))[0])
        limits = HistoryLimits(kept_bytes=2 * size)
        async with opened(kind, tmp_path / "limited", limits=limits, clock=lambda: MOMENT) as store:
            for value in range(6):
                await store.write(put("a", value))
            assert [change.revision for change in await store.history()] == [6, 5]

    run(scenario())


def logged_size(kind: str, change: Change) -> int:
    """The bytes that a change takes in the history of a store."""
    if kind not in LASTING:
        return sum(size_of(document) for document in (change.before, change.after) if document is not None)
    codec = ENCRYPTED.codec if kind.startswith("encrypted") else PLAIN
    texts = (*columns.written(change.before, codec), *columns.written(change.after, codec))
    return sum(len(text) for text in texts if text is not None)


@pytest.mark.parametrize("kind", DATED)
def test_what_is_remembered_has_an_age_too(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = later_and_later()
        async with opened(kind, tmp_path, limits=HistoryLimits(kept_age=timedelta(minutes=2)), clock=clock) as store:
            for value in range(6):
                await store.write(put("a", value))
            assert [change.revision for change in await store.history()] == [6, 5, 4]
            assert await store.oldest() == 3
            for _ in range(10):
                clock()
            await store.write(put("a", 6))
            assert [change.revision for change in await store.history()] == [7]

    run(scenario())


@pytest.mark.parametrize("kind", DATED)
def test_what_is_too_old_is_forgotten_also_where_nobody_writes(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = later_and_later()
        async with opened(kind, tmp_path, limits=HistoryLimits(kept_age=timedelta(minutes=4)), clock=clock) as store:
            for value in range(3):
                await store.write(put("a", value))
            before, documents = await store.history(), await store.read()
            await store.forget()
            assert await store.history() == before, "nothing is too old"
            clock()
            await store.forget()
            assert ([change.revision for change in await store.history()], await store.oldest()) == ([3, 2], 1)
            assert [change.revision for change in await changes(store, 1, until=3)] == [2, 3]
            assert await store.read() == documents

    run(scenario())


@pytest.mark.parametrize("kind", [*DATED, "beside"])
def test_of_a_last_write_that_is_too_old_nothing_is_left_but_its_number(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = later_and_later()
        async with opened(kind, tmp_path, limits=HistoryLimits(kept_age=timedelta(minutes=4)), clock=clock) as store:
            for value in range(3):
                await store.write(put("a", value), put("b", value))
            documents = await store.read()
            for _ in range(10):
                clock()
            for _ in range(2):
                await store.forget()
                assert (await store.revision(), await store.oldest()) == (3, 3)
                assert (await store.history(), await store.log(), await store.history(key("a"))) == ((), (), ())
                assert await store.read() == documents
            with pytest.raises(Outdated, match="revisions 3 to 3, not from 2"):
                await next_batch(store, 2)

            assert await store.write(put("a", 3)) == 4
            assert [change.revision for change in await changes(store, 3, until=4)] == [4]
            assert [(change.revision, change.before) for change in await store.history()] == [(4, document("a", 2))]
            assert await store.oldest() == 3

    run(scenario())


@pytest.mark.parametrize("kind", ALL)
def test_forgetting_is_no_change(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = later_and_later()
        async with opened(kind, tmp_path, limits=HistoryLimits(kept_age=timedelta(minutes=1)), clock=clock) as store:
            await store.write(put("a", 1))
            async with asyncio.TaskGroup() as group:
                news = group.create_task(next_batch(store, 1))
                for _ in range(5):
                    clock()
                    await store.forget()
                assert (await store.revision(), news.done()) == (1, False)
                assert await store.write(put("a", 2)) == 2
            assert [change.revision for change in news.result().changes] == [2]

    run(scenario())


@pytest.mark.parametrize("kind", LASTING)
def test_what_is_forgotten_stays_so_and_the_next_revision_is_the_next(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as store:
            for value in range(3):
                await store.write(put("a", value))
        async with opened(kind, tmp_path, limits=HistoryLimits(kept_age=timedelta(0))) as store:
            await store.forget()
            assert (await store.revision(), await store.oldest(), await store.history()) == (3, 3, ())
        async with opened(kind, tmp_path) as store:  # which remembers all that is written from now on
            assert (await store.revision(), await store.oldest(), await store.history()) == (3, 3, ())
            assert await store.write(put("a", 9)) == 4
            assert await store.write(put("a", 10)) == 5
            assert ([change.revision for change in await store.history()], await store.oldest()) == ([5, 4], 3)

    run(scenario())


@on(ALL)
async def test_a_store_without_an_age_forgets_nothing_by_itself(store: Store) -> None:
    await store.write(put("a", 1))
    await store.forget()

    assert [change.revision for change in await store.history()] == [1]


@pytest.mark.parametrize("kind", DATED)
def test_a_clock_that_is_set_back_leaves_no_gap(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        start = datetime(2026, 1, 31, tzinfo=UTC)
        moments = iter(start + timedelta(minutes=minute) for minute in (10, 0, 1, 12))
        async with opened(
            kind, tmp_path, limits=HistoryLimits(kept_age=timedelta(minutes=5)), clock=lambda: next(moments)
        ) as store:
            for value in range(4):
                await store.write(put("a", value))
            assert await store.oldest() == 0  # the first is not old, and what is behind it is kept with it
            assert [change.revision for change in await changes(store, 0, until=4)] == [1, 2, 3, 4]

    run(scenario())


@pytest.mark.parametrize(
    "limits", [HistoryLimits(kept=1), HistoryLimits(kept_bytes=0), HistoryLimits(kept_age=timedelta(0))], ids=str
)
@pytest.mark.parametrize("kind", LASTING)
def test_what_is_beyond_a_new_limit_is_forgotten_with_the_next_write(
    kind: str, limits: HistoryLimits, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as store:
            for value in range(10):
                await store.write(*(put(f"a{number}", value) for number in range(30)))
        async with opened(kind, tmp_path, limits=limits) as store:
            await store.write(put("b"))
            assert [change.revision for change in await store.history()] == [11]
            assert await store.oldest() == 10

    run(scenario())


@pytest.mark.parametrize("kind", ALL)
def test_a_change_that_is_larger_than_what_is_remembered_can_be_followed(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path, limits=HistoryLimits(kept_bytes=0)) as store:
            for value in range(3):
                await store.write(put("a", value))
            assert [change.revision for change in await changes(store, 2, until=3)] == [3]
            assert (await store.read()).revision == 3

    run(scenario())


# --- history, and the end -----------------------------------------------------------------------------------


@on(ALL)
async def test_history_is_of_one_document_and_newest_first(store: Store) -> None:
    await store.write(put("a", 1))
    await store.write(put("b", 1))
    await store.write(put("a", 2))
    await store.write(delete("a"))

    history = await store.history(key("a"))
    assert [change.revision for change in history] == [4, 3, 1]
    assert [change.after for change in history] == [None, document("a", 2), document("a", 1)]
    assert await store.history(key("c")) == ()


@on(ALL)
async def test_history_has_a_limit(store: Store) -> None:
    for value in range(4):
        await store.write(put("a", value))

    assert [change.revision for change in await store.history(key("a"), limit=2)] == [4, 3]


@on(ALL)
async def test_history_of_everything_is_newest_first(store: Store) -> None:
    await store.write(put("a", 1))
    await store.write(put("b", 1))
    await store.write(put("a", 2))

    assert [(change.revision, change.key) for change in await store.history()] == [
        (3, key("a")),
        (2, key("b")),
        (1, key("a")),
    ]
    assert [change.revision for change in await store.history(before=3)] == [2, 1]
    assert [change.revision for change in await store.history(key("a"), before=3)] == [1]
    assert [change.revision for change in await store.history(limit=1, before=3)] == [2]


@pytest.mark.parametrize("kind", ALL)
def test_a_store_says_how_far_it_can_be_gone_back(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path, limits=HistoryLimits(kept=2)) as store:
            assert await store.oldest() == 0
            for value in range(4):
                await store.write(put("a", value))
            assert await store.oldest() == 2

    run(scenario())


@on(DATED)
async def test_what_is_gone_is_as_old_in_the_history_as_it_was(store: Store) -> None:
    old, new = "2020-01-01T00:00:00.000000Z", "2021-01-01T00:00:00.000000Z"
    await store.write(Put(document("a", 1, source=Source(created=old))))
    await store.write(delete("a"))
    await store.write(Put(document("a", 2, source=Source(created=new))))
    await store.write(Put(document("a", 3)))

    told = [ages(change.before, change.after) for change in await store.history(key("a"))]
    assert told == [[new, new], [None, new], [old, None], [None, old]]


@on(WRITABLE)
async def test_a_change_says_who_made_it(store: Store) -> None:
    alice = Author("alice", "apply from 192.0.2.7")
    await store.write(put("a", 1), author=alice)
    await store.write(put("a", 2))

    assert [change.author for change in await store.history(key("a"))] == [UNKNOWN, alice]
    assert [change.author for change in await changes(store, 0, until=2)] == [alice, UNKNOWN]


@on(ALL)
async def test_closing_wakes_every_follower(store: Store) -> None:
    await store.write(put("a"))

    given = asyncio.Queue[int]()

    async def everything() -> None:
        async for batch in store.follow(0):
            given.put_nowait(batch.revision)

    async with asyncio.TaskGroup() as running:
        for _ in range(3):
            running.create_task(everything())
        assert [await given.get() for _ in range(3)] == [1, 1, 1]
        await store.close()


@on(ALL)
async def test_a_closed_store_says_so(store: Store) -> None:
    await store.close()
    await store.close()

    for asked in (
        store.read(),
        store.get(key("a")),
        store.find(key("a")),
        store.history(key("a")),
        store.write(put("a")),
    ):
        with pytest.raises(Closed, match="the store is closed"):
            await asked
    assert [batch async for batch in store.follow(0)] == []


@on(WRITABLE)
async def test_a_document_is_not_changed_by_what_happens_to_it_later(store: Store) -> None:
    await store.write(put("a", 1))
    first = await held(store, "a")
    copy = replace(first)
    await store.write(put("a", 2))

    assert first == copy
    assert first.document == document("a", 1)

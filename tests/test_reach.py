"""Whom a change reached, how long that took, and who refused it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from cp.serving.delivery import ChangeReach, combined_reach
from cp.serving.publications import Publication, PublicationLog
from tests.random_mesh import MESH
from tests.support.waiting import eventually_on_loop
from tests.test_observe import Client, Rig, dataplane, patch, run, timeout


@asynccontextmanager
async def followed(rig: Rig) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(rig.observer.follow_changes())
        await asyncio.sleep(0)
        yield
        task.cancel()


def connected(test: Callable[[Rig, Client, Client], Awaitable[None]]) -> None:
    async def whole(rig: Rig) -> None:
        a, b = (Client(rig.hub, f"default.{name}") for name in "ab")
        await rig.write(MESH, dataplane("backend", port=81), dataplane("a", "backend"), dataplane("b", "backend"))
        async with followed(rig):
            with a.connected(), b.connected():
                await rig.settled("default.a", "default.b")
                await test(rig, a, b)

    run(whole)


async def reach(rig: Rig, revision: int) -> ChangeReach:
    assert await rig.reconciler.wait_for_revision(revision, 10)
    ((entry,),) = await rig.observer.reaches([revision])
    return entry


async def settled(rig: Rig, revision: int, waiting: int = 0) -> ChangeReach:
    await reach(rig, revision)
    entry = await eventually_on_loop(lambda: _with_waiting(rig, revision, waiting))
    assert entry is not None
    return entry


def _with_waiting(rig: Rig, revision: int, waiting: int) -> ChangeReach | None:
    (entry,) = rig.observer._reach.reaches([revision])
    return entry if entry.waiting == waiting else None


def test_a_change_has_reached_those_who_took_it_at_the_moment_of_the_last() -> None:
    async def test(rig: Rig, a: Client, _b: Client) -> None:
        a.answers = False
        revision = await rig.write(timeout(3))
        first = await settled(rig, revision, waiting=1)
        assert (first.proxies, first.have) == (2, 1)

        a.speak()
        last = await settled(rig, revision)
        assert (last.have, last.refusals, last.gone) == (2, 0, 0)
        assert last.answered_at is not None
        assert last.answered_at == max(client.seat.answered_at for client in (a, _b))
        assert last.answered_at >= last.published_at

    connected(test)


def test_who_refused_a_change_is_named_also_when_he_takes_the_next() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        revision = await rig.write(patch("bad", proxy="a"))
        refused = await settled(rig, revision)
        assert (refused.refused, refused.refusals, refused.have) == (("default.a",), 1, 0)

        later = await rig.write(patch("good", proxy="a"))
        assert (await settled(rig, later)).have == 1
        assert (await reach(rig, revision)).refused == ("default.a",)

    connected(test)


def test_who_leaves_is_waited_for_no_longer() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        other = Client(rig.hub, "default.c")
        await rig.write(dataplane("c", "backend"))
        with other.connected():
            await rig.settled("default.c")
            other.answers = False
            revision = await rig.write(timeout(4))
            await settled(rig, revision, waiting=1)
        left = await settled(rig, revision)

        assert (left.proxies, left.have, left.gone) == (3, 2, 1)

    connected(test)


def test_a_change_that_concerns_nobody_is_known_all_the_same() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        revision = await rig.write(timeout(3, name="of-nobody"))
        await eventually_on_loop(lambda: rig.reconciler.world.revision >= revision)
        again = await rig.write(timeout(3, name="of-nobody-else"))

        assert (await reach(rig, again)).proxies == 0

    connected(test)


def test_what_processes_know_is_added_up_and_what_one_does_not_know_is_said() -> None:
    first = ChangeReach(5, 7, 1.0, 3, have=2, waiting=1, answered_at=4.0)
    second = ChangeReach(6, 8, 2.0, 2, have=1, refusals=1, refused=("default.a",), answered_at=3.0)

    combined = combined_reach(7, [[first], [second], []])

    assert combined is not None
    assert combined.reach == ChangeReach(
        6, 7, 2.0, 5, have=3, waiting=1, refusals=1, refused=("default.a",), answered_at=4.0
    )
    assert not combined.is_complete
    assert combined_reach(9, [[first], [second]]) is None
    only = combined_reach(6, [[first]])
    assert only is not None
    assert only.is_complete


def test_the_publications_after_a_revision_are_in_order() -> None:
    log = PublicationLog()
    for revision in range(1, 5):
        log.add(Publication(revision - 1, revision, float(revision)))

    assert [publication.revision for publication in log.after(2)] == [3, 4]
    assert log.after(4) == []

"""What is said of a write while a rollout changes the same: what proxies are served, and who is held by the rollout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from msgspec.structs import replace

from cp.model.names import Key
from cp.resources.rollout import rollout_document, rollout_key
from cp.serving.delivery import ChangeProgress, ChangeReach
from cp.store.port import Delete
from tests.rollouts.test_keeper import HOLD, NAMES, Course, having, in_a_mesh
from tests.support.waiting import eventually_on_loop
from tests.test_observe import timeout

SLOW = timeout(3).key
PAUSED = "Paused"


async def held(course: Course, steps: str = "2,100%") -> set[str]:
    """Those that are served a connect timeout of 3 s, and are watched."""
    await course.begin(timeout(3), steps=steps)
    return set((await course.step()).proxies)


async def progress_of(
    course: Course, revisions: Collection[int], within: float, resources: Collection[Key] = ()
) -> ChangeProgress:
    return await course.rig.outcome(revisions, resources, within)


@asynccontextmanager
async def followed(course: Course) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(course.rig.observer.follow_changes())
        await asyncio.sleep(0)
        yield
        task.cancel()


def reach_of(course: Course, revision: int) -> ChangeReach | None:
    """What it came to, once nobody is waited for."""
    entry = reach_now(course, revision)
    return entry if entry.waiting == 0 else None


def reach_now(course: Course, revision: int) -> ChangeReach:
    (entry,) = course.rig.observer._reach.reaches([revision])
    return entry


async def go_back(course: Course) -> None:
    """What the keeper does when it sees the write."""
    assert (await course.sweep()).state == "RolledBack"


def test_who_is_served_what_a_rollout_proposes_does_not_have_what_was_written_in_its_place() -> None:
    async def test(course: Course) -> None:
        names = await held(course)
        revision = await course.rig.write(timeout(5))
        early = await progress_of(course, [revision], 0.3)
        assert having(course) == names
        assert (early.proxies, early.have) == (len(NAMES), len(NAMES) - len(names))
        assert early.waiting == tuple(sorted(f"default.{name}" for name in names))

        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(progress_of(course, [revision], 10))
            await go_back(course)
        assert (waiting.result().proxies, waiting.result().have) == (len(NAMES), len(NAMES))
        assert having(course) == set()

    in_a_mesh(test)


def test_nor_has_he_lost_what_was_deleted() -> None:
    async def test(course: Course) -> None:
        names = await held(course)
        revision = await course.rig.store.write(Delete(SLOW))

        assert (await progress_of(course, [revision], 0.3)).waiting == tuple(
            sorted(f"default.{name}" for name in names)
        )
        assert having(course) == names

    in_a_mesh(test)


def test_the_end_of_a_rollout_is_noticed_also_where_it_brings_nothing_new() -> None:
    """Somebody wrote what it proposes."""

    async def test(course: Course) -> None:
        await held(course)
        revision = await course.rig.write(timeout(3))
        assert len((await progress_of(course, [revision], 0.3)).waiting) == 2
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(progress_of(course, [revision], 10))
            await go_back(course)

        assert (waiting.result().proxies, waiting.result().have) == (len(NAMES), len(NAMES))

    in_a_mesh(test)


def test_after_the_end_of_a_rollout_those_are_counted_that_it_held() -> None:
    async def test(course: Course) -> None:
        await held(course)
        revision = await course.rig.write(timeout(5))
        await course.rig.reconciler.current()
        await go_back(course)

        assert (await progress_of(course, [revision], 10)).have == len(NAMES)

    in_a_mesh(test)


def test_who_leaves_while_a_rollout_holds_him_has_gone() -> None:
    async def test(course: Course) -> None:
        names = await held(course)
        revision = await course.rig.write(timeout(5))
        await course.rig.reconciler.current()
        for name in names:
            course.exits[name].close()

        assert (await progress_of(course, [revision], 0.3)).gone == tuple(sorted(f"default.{name}" for name in names))

    in_a_mesh(test)


def test_where_nothing_was_written_it_is_said_who_is_not_served_what_is_stored() -> None:
    async def test(course: Course) -> None:
        names = await held(course)
        of_slow = await progress_of(course, [], 0.0, [SLOW])
        of_another = await progress_of(course, [], 0.0, [timeout(1, "another").key])

        assert of_slow.waiting == tuple(sorted(f"default.{name}" for name in names))
        assert of_another.proxies == 0

    in_a_mesh(test)


def test_what_is_written_elsewhere_waits_for_no_rollout() -> None:
    async def test(course: Course) -> None:
        await held(course)
        await course.rig.write(rollout_document("default", replace(await course.spec(), state=PAUSED)))
        revision = await course.rig.write(timeout(7, "weaker"))

        assert (await progress_of(course, [revision], 10)).waiting == ()

    in_a_mesh(test)


def test_the_write_that_ends_a_good_rollout_concerns_those_that_had_it_already() -> None:
    async def test(course: Course) -> None:
        async with followed(course):
            await held(course, "100%")
            assert (await course.sweep(later=HOLD)).state == "Done"
            stored = await course.rig.store.get(SLOW)
            assert stored is not None
            progress = await progress_of(course, [stored.revision], 10)
            entry = await eventually_on_loop(lambda: reach_of(course, stored.revision))

        assert (progress.proxies, progress.have) == (len(NAMES), len(NAMES))
        assert entry is not None
        assert (entry.proxies, entry.have) == (len(NAMES), len(NAMES))
        assert entry.answered_at is not None
        assert entry.answered_at >= entry.published_at

    in_a_mesh(test)


def test_a_write_has_not_reached_whom_a_rollout_holds() -> None:
    async def test(course: Course) -> None:
        async with followed(course):
            names = await held(course)
            revision = await course.rig.write(timeout(5))
            await course.rig.reconciler.current()
            await course.rig.settled(*(client.proxy for client in course.clients.values()))
            early = await eventually_on_loop(
                lambda: entry if (entry := reach_now(course, revision)).waiting == len(names) else None
            )
            await go_back(course)
            await course.rig.reconciler.current()
            entry = await eventually_on_loop(lambda: reach_of(course, revision))
            back = (await course.rig.store.get(rollout_key("default"))).revision  # type: ignore[union-attr]  # it is there

            assert early is not None
            assert (early.proxies, early.have) == (len(NAMES), len(NAMES) - len(names))
            assert entry is not None
            assert (entry.proxies, entry.have) == (len(NAMES), len(NAMES))
            assert reach_now(course, back).proxies == len(names)

    in_a_mesh(test)

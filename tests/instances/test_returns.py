"""Proxies that are expected back: nobody takes them for proxies that a change does not concern."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from cp.ads.connection import ConnectionRecord
from cp.ads.session.messages import Node
from cp.model.document import Document, Source
from cp.model.names import Key, proxy_id
from cp.policies import kinds
from cp.resources.world import World
from cp.serving.delivery import BACK_WITHIN, BREAK, GONE_AFTER, ChangeProgress, Presence, ProxyState
from cp.serving.instances.returns import ReturnWatch, WholeProgress, whole_progress
from cp.store.port import Delete
from tests.random_mesh import MESH
from tests.random_mesh.words import document_of
from tests.snapshots import policies
from tests.support.waiting import eventually_on_loop
from tests.test_observe import Client, Rig, dataplane, patch, run, timeout, unrelated

BEGUN = 1_900_000_000.0
DAY = 86400.0
PATCH = patch("bad").key
KINDS = kinds(policies())


async def progress_of(
    rig: Rig, revision: int, within: float, resources: Collection[Key] = (), *, alike_since: float | None = None
) -> WholeProgress:
    """The last that is told where the control plane has begun now, unless something else is said."""
    since = time.time() if alike_since is None else alike_since
    watch = ReturnWatch(rig.observer, lambda: rig.reconciler.world, lambda: since, time.time, ["default"])
    told = [whole async for whole in whole_progress(rig.observer, watch, [revision], resources, within)]
    assert [whole.progress.is_done for whole in told] == [False] * (len(told) - 1) + [True]
    return told[-1]


def long_ago(document: Document) -> Document:
    return replace(document, source=Source(created="2020-01-01T00:00:00Z"))


def after_a_start(test: Callable[[Rig, Client, Client], Awaitable[None]]) -> None:
    """A control plane that has just begun, with two proxies of before that have not come back yet."""

    async def begun(rig: Rig) -> None:
        await rig.write(MESH, long_ago(dataplane("a", "backend")), long_ago(dataplane("b", "backend")))
        await rig.reconciler.current()
        await test(rig, Client(rig.hub, "default.a"), Client(rig.hub, "default.b"))

    run(begun)


def test_right_after_a_start_nobody_knows_what_those_have_who_have_not_come_back() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        whole = await progress_of(rig, await rig.write(timeout(3)), 0.1)

        assert whole.progress.proxies == 0
        assert whole.unknown == ("default.a", "default.b")

    after_a_start(test)


def test_who_comes_back_has_it_with_all_else() -> None:
    async def test(rig: Rig, a: Client, b: Client) -> None:
        revision = await rig.write(timeout(3))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(progress_of(rig, revision, 10))
            await rig.reconciler.current()
            with a.connected(), b.connected():
                await rig.settled("default.a", "default.b")
                whole = await waiting
        assert (whole.unknown, whole.returns.returned) == ((), ("default.a", "default.b"))

    after_a_start(test)


def test_who_is_back_and_has_not_answered_is_waited_for() -> None:
    async def test(rig: Rig, a: Client, b: Client) -> None:
        a.answers = False
        with a.connected(), b.connected():
            await rig.settled("default.b")
            whole = await progress_of(rig, await rig.write(timeout(3)), 0.1)
        assert {*whole.unknown, *whole.progress.waiting} == {"default.a"}

    after_a_start(test)


def test_who_connects_when_it_is_published_is_waited_for_and_not_counted_twice() -> None:
    async def test(rig: Rig, a: Client, b: Client) -> None:
        a.answers = b.answers = False
        with a.connected(), b.connected():
            revision = await rig.write(timeout(3))
            early = await progress_of(rig, revision, 0.1, alike_since=0.0)
            a.speak()
            b.speak()
            await rig.settled("default.a", "default.b")
            whole = await progress_of(rig, revision, 10, alike_since=0.0)
        assert {*early.unknown, *early.progress.waiting} == {"default.a", "default.b"}
        assert (whole.unknown, whole.progress.waiting) == ((), ())
        assert whole.progress.have + len(whole.returns.returned) <= 2

    after_a_start(test)


def test_who_was_there_is_not_said_to_have_come_back() -> None:
    async def test(rig: Rig, a: Client, b: Client) -> None:
        with a.connected(), b.connected():
            await rig.settled("default.a", "default.b")
            a.answers = False
            revision = await rig.write(timeout(3))
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(progress_of(rig, revision, 10))
                await eventually_on_loop(lambda: len(a.waiting) > 0)
                a.speak()
        assert (waiting.result().progress.have, waiting.result().returns.returned) == (2, ())

    after_a_start(test)


def test_who_comes_back_and_refuses_the_change_is_named_at_once_with_the_policy() -> None:
    async def test(rig: Rig, a: Client, _b: Client) -> None:
        revision = await rig.write(patch("bad"))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(progress_of(rig, revision, 10, [PATCH]))
            await rig.reconciler.current()
            with a.connected():
                whole = await waiting
        assert whole.progress.refusing == ("default.a",)
        assert [part.policy for report in whole.progress.nack_reports for part in report.likeliest] == [PATCH]
        assert whole.unknown == ("default.b",)

    after_a_start(test)


def test_who_comes_back_and_refuses_something_else_is_not_said_to_have_it() -> None:
    async def test(rig: Rig, a: Client, b: Client) -> None:
        await rig.write(patch("bad", proxy="a"))
        revision = await rig.write(unrelated("x"))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(progress_of(rig, revision, 10, [unrelated("x").key]))
            await rig.reconciler.current()
            with a.connected(), b.connected():
                whole = await waiting
        assert (whole.unknown, whole.returns.returned) == (("default.a",), ("default.b",))

    after_a_start(test)


def test_who_is_deleted_is_expected_no_longer() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        revision = await rig.write(timeout(3))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(progress_of(rig, revision, 10))
            await rig.store.write(Delete(dataplane("a").key), Delete(dataplane("b").key))
        assert waiting.result().unknown == ()

    after_a_start(test)


def test_who_was_made_after_the_start_is_not_expected_back() -> None:
    """As where documents are applied before there is a proxy."""

    async def begun(rig: Rig) -> None:
        began = time.time() - 1
        await rig.write(MESH, dataplane("a", "backend"))
        whole = await progress_of(rig, await rig.write(timeout(3)), 10, alike_since=began)
        assert (whole.progress.proxies, whole.unknown) == (0, ())

    run(begun)


def test_who_leaves_while_he_is_waited_for_has_gone() -> None:
    async def test(rig: Rig, a: Client, _b: Client) -> None:
        async with asyncio.TaskGroup() as tasks:
            with a.connected():
                await rig.settled("default.a")
                a.answers = False
                waiting = tasks.create_task(progress_of(rig, await rig.write(timeout(3)), 10, alike_since=0.0))
                await eventually_on_loop(lambda: len(a.waiting) > 0)
        assert waiting.result().progress.gone == ("default.a",)
        assert waiting.result().unknown == ()

    after_a_start(test)


def test_who_left_a_moment_ago_is_expected_back() -> None:
    async def test(rig: Rig, a: Client, _b: Client) -> None:
        with a.connected():
            await rig.settled("default.a")
        await rig.write(timeout(2))
        await rig.reconciler.current()
        whole = await progress_of(rig, await rig.write(timeout(3)), 0.1, alike_since=0.0)

        assert whole.unknown == ("default.a",)

    after_a_start(test)


def test_a_silent_proxy_of_another_mesh_keeps_nobody() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        await rig.write(document_of({"type": "Mesh", "name": "other"}), in_other_mesh(dataplane("c")))
        revision = await rig.write(timeout(3))
        await rig.reconciler.current()
        silent = Client(rig.hub, "other.c", answers=False)
        with silent.connected():
            await eventually_on_loop(lambda: len(silent.waiting) > 0)
            whole = await progress_of(rig, revision, 0.1, alike_since=0.0)

        assert whole.progress.late == ("other.c",)
        assert whole.unknown == ()

    after_a_start(test)


def in_other_mesh(resource: Document) -> Document:
    return document_of({**resource.data, "mesh": "other"})


# --- which of them, by the clock ---


def record(since: float, until: float | None = None) -> ConnectionRecord:
    return ConnectionRecord(Node("default.a"), "delta", since, until, since, ())


@dataclass
class Standing:
    """Proxies as the test says."""

    presences_now: Mapping[Key, Presence]
    questions: list[list[Key]] = field(default_factory=list)

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        keys = list(dataplanes)
        self.questions.append(keys)
        return {key: self.presences_now[key] for key in keys}

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        yield ChangeProgress(max(revisions, default=0), 0, 0, is_done=True)


OFFLINE = Presence(ProxyState.OFFLINE, None, ())
LEFT_EARLY = Presence(ProxyState.OFFLINE, None, (record(0.0, BEGUN + 1),))
LEFT_LATE = Presence(ProxyState.OFFLINE, None, (record(0.0, BEGUN + DAY),))


@pytest.mark.parametrize(
    ("presence", "now", "is_expected"),
    [
        (OFFLINE, BEGUN + BACK_WITHIN - 1, True),
        (OFFLINE, BEGUN + BACK_WITHIN, False),
        (LEFT_EARLY, BEGUN + GONE_AFTER, True),  # while control planes come and go
        (LEFT_EARLY, BEGUN + GONE_AFTER + 1, False),
        (LEFT_LATE, BEGUN + DAY + BREAK - 1, True),
        (LEFT_LATE, BEGUN + DAY + BREAK, False),
        (Presence(ProxyState.OUT_OF_SYNC, 1.0, (record(BEGUN),)), BEGUN, False),  # who counts it knows more
        (Presence(ProxyState.ONLINE, 1.0, (record(BEGUN),)), BEGUN, False),
        (Presence(ProxyState.UNKNOWN, None, ()), BEGUN, False),  # who is silent is named by himself
    ],
)
def test_there_is_an_end_to_being_expected(presence: Presence, now: float, is_expected: bool) -> None:
    made = long_ago(dataplane("a"))
    world = World.of([MESH, made], KINDS)
    watch = ReturnWatch(Standing({made.key: presence}), lambda: world, lambda: BEGUN, lambda: now, ())

    returns = asyncio.run(watch.look())

    assert returns.awaited == ((proxy_id(made.key),) if is_expected else ())


def test_those_of_other_meshes_are_not_looked_at() -> None:
    made = long_ago(dataplane("a"))
    world, standing = World.of([MESH, made], KINDS), Standing({made.key: OFFLINE})
    watch = ReturnWatch(standing, lambda: world, lambda: BEGUN, lambda: BEGUN, ["other"])

    assert asyncio.run(watch.look()).awaited == ()
    assert standing.questions[0] == []


def test_where_a_control_plane_goes_meanwhile_its_proxies_are_expected() -> None:
    made = long_ago(dataplane("a"))
    world, since = World.of([MESH, made], KINDS), [BEGUN]
    standing = Standing({made.key: OFFLINE})
    watch = ReturnWatch(standing, lambda: world, lambda: since[-1], lambda: BEGUN + DAY, ())

    async def looks() -> list[tuple[str, ...]]:
        first = await watch.look()
        since.append(BEGUN + DAY)
        return [first.awaited, (await watch.look()).awaited]

    assert asyncio.run(looks()) == [(), ("default.a",)]


def test_who_comes_back_and_leaves_again_and_again_keeps_nobody() -> None:
    """As an Envoy that ends at each start: it is never here for long enough to answer."""
    made = long_ago(dataplane("a"))
    world, since = World.of([MESH, made], KINDS), [0.0]
    standing = Standing({made.key: LEFT_EARLY})
    watch = ReturnWatch(standing, lambda: world, lambda: since[-1], lambda: BEGUN + 2, ())

    async def looks() -> list[tuple[str, ...]]:
        awaited = [(await watch.look()).awaited]
        standing.presences_now = {made.key: Presence(ProxyState.OUT_OF_SYNC, 1.0, (record(BEGUN + 1),))}
        awaited.append((await watch.look()).awaited)
        standing.presences_now = {made.key: Presence(ProxyState.OFFLINE, None, (record(BEGUN + 1, BEGUN + 2),))}
        awaited.append((await watch.look()).awaited)
        since.append(BEGUN + 2)  # a control plane took it along
        return [*awaited, (await watch.look()).awaited]

    assert asyncio.run(looks()) == [("default.a",), ("default.a",), (), ("default.a",)]


class OwnTime(asyncio.SelectorEventLoop):
    """A loop in which time passes as the test says."""

    now = 0.0

    def time(self) -> float:
        return self.now


@dataclass
class Slow(Standing):
    """Proxies of which it takes a while to say where they are, as if many others asked as well."""

    loop: OwnTime = field(default_factory=OwnTime)
    took: float = 0.0

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        self.loop.now += self.took
        return await super().presences(dataplanes)


@pytest.mark.parametrize(("took", "looks"), [(0.01, 40), (0.5, 5), (3.0, 2)])
def test_however_many_ask_others_have_most_of_the_time(
    took: float, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = long_ago(dataplane("a"))
    world, slow = World.of([MESH, made], KINDS), Slow({made.key: OFFLINE}, took=took)
    watch = ReturnWatch(slow, lambda: world, lambda: BEGUN, lambda: BEGUN, ())

    async def sleep(seconds: float) -> None:
        slow.loop.now += seconds

    async def answered() -> int:
        return len([whole async for whole in whole_progress(slow, watch, [], [], 10)])

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with asyncio.Runner(loop_factory=lambda: slow.loop) as runner:
        assert runner.run(answered()) == looks

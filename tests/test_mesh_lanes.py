"""A mesh that takes long delays no other one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext
from functools import partial
from random import Random
from typing import Any

import pytest
import structlog

from cp import precedence
from cp.model.checkpoint import checkpoint_set, pass_checkpoint
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import Policies, discover
from cp.policies.mesh_timeout import MeshTimeout
from cp.precedence import DeliveryLock, Precedence, yielding
from cp.serving import reconcile
from cp.serving.delivery import ProxyState
from cp.serving.observe import Observer
from cp.store.port import Delete, Put
from generators.drafts import ClusterDraft
from tests.random_mesh import EVERY, IDENTIFIED, random_document, seeds
from tests.support.waiting import eventually, eventually_on_loop
from tests.test_reconcile import Rig, checked, run

WITHIN = 10.0
DOOR = "door"
"""The service at which a mesh is held."""


class _Door(MeshTimeout):
    """A policy that takes as long as a test says, wherever a certain service is called."""

    def __init__(self) -> None:
        self.is_entered, self.is_open = threading.Event(), threading.Event()

    def cluster(self, conf: Any, draft: ClusterDraft) -> None:
        if draft.cluster.name == DOOR:
            self.is_entered.set()
            assert self.is_open.wait(WITHIN)
        super().cluster(conf, draft)

    @property
    def policies(self) -> Policies:
        return [self if isinstance(policy, MeshTimeout) else policy for policy in discover()]


@contextmanager
def doors() -> Iterator[_Door]:
    door = _Door()
    try:
        yield door
    finally:
        door.is_open.set()


def document(type_: str, mesh: str, name: str, **fields: Any) -> Document:
    data = {"type": type_, "name": name, **({"mesh": mesh} if mesh else {}), **fields}
    return Document(Key(type_, mesh, name), data)


def dataplane(mesh: str, name: str, *services: str) -> Document:
    outbound = [{"port": 10000 + n, "tags": {"kuma.io/service": service}} for n, service in enumerate(services)]
    inbound = [{"port": 80, "tags": {"kuma.io/service": name}}]
    return document(
        "Dataplane", mesh, name, networking={"address": "127.0.0.1", "inbound": inbound, "outbound": outbound}
    )


def timeout(mesh: str, seconds: int = 1) -> Document:
    to = [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": f"{seconds}s"}}]
    return document("MeshTimeout", mesh, "slow", spec={"to": to})


MESHES = (document("Mesh", "", "a"), document("Mesh", "", "b"))
SELECTED = {"selector": {"dataplaneTags": {"kuma.io/service": "web"}}, "ports": [{"port": 80}]}
GENERATED = {"selector": {"meshService": {"matchLabels": {"x": "y"}}}, "template": "{{ .Name }}.x"}
EDITS_OF_B = (
    dataplane("b", "web", "other"),
    timeout("b", 7),
    document("MeshService", "b", "shop", spec=SELECTED),
    document(
        "MeshHTTPRoute", "b", "r", spec={"to": [{"targetRef": {"kind": "MeshService", "name": "x"}, "rules": []}]}
    ),
    document("Secret", "b", "s", data="c2VjcmV0"),
    document("Mesh", "", "b", constraints={}),
    document("HostnameGenerator", "", "h", spec=GENERATED),
)


def held(test: Callable[[Rig, _Door], Awaitable[None]], **options: Any) -> None:
    """Run a test while a change of mesh a is computed, with a proxy in each of two meshes, until the door is open."""

    async def whole(rig: Rig) -> None:
        await rig.write(*MESHES, timeout("a"), timeout("b"), dataplane("a", "web", "x"), dataplane("b", "web", "x"))
        async with AsyncExitStack() as stack:
            for mesh in ("a", "b"):
                rig.stays[mesh] = await stack.enter_async_context(AsyncExitStack())
                await rig.stays[mesh].enter_async_context(rig.connected("web", mesh))
                await rig.clusters(f"{mesh}.web", bool)
            await rig.write(dataplane("a", "web", DOOR))
            await eventually_on_loop(door.is_entered.is_set)
            await test(rig, door)

    with doors() as door:
        run(whole, policies=door.policies, **options)


@pytest.mark.parametrize("edit", EDITS_OF_B, ids=lambda edit: edit.key.type)
def test_change_is_published_while_another_mesh_is_held(edit: Document) -> None:
    async def test(rig: Rig, _: _Door) -> None:
        revision = await rig.store.write(Put(edit))
        assert await rig.reconciler.wait_for_publication([revision], {"b"}, WITHIN) == (True, revision)
        assert rig.reconciler.world.get(edit.key) is not None
        assert DOOR not in await rig.clusters("a.web", bool)

    held(test)


def test_new_proxy_is_served_while_another_mesh_is_held() -> None:
    async def test(rig: Rig, _: _Door) -> None:
        await rig.write(dataplane("b", "new", "y"))
        async with rig.connected("new", "b") as proxy:
            assert await rig.clusters(proxy, bool) == {"y", "localhost:80"}
        async with rig.connected("web", "b"):
            await eventually_on_loop(lambda: rig.hub.observer.newest("b.web") is not None)

    held(test)


def test_progress_waits_for_the_meshes_of_a_change_alone() -> None:
    async def test(rig: Rig, door: _Door) -> None:
        observer = Observer(rig.hub, rig.reconciler)
        edit, of_held = dataplane("b", "web", "y"), dataplane("a", "web", DOOR)
        revision = await rig.store.write(Put(edit))
        for resources in ([edit.key], []):
            progress = await observer.final_progress([revision], resources, WITHIN)
            assert (progress.revision >= revision, progress.have, progress.waiting) == (True, 1, ())

        for resources in ([of_held.key], []):
            progress = await observer.final_progress([revision - 1], resources, 0.01)
            assert (progress.revision < revision - 1, progress.proxies) == (True, 0)
        assert (await observer.final_progress([], [], 0.01)).waiting == ("a.web",)
        assert (await observer.presences([of_held.key]))[of_held.key].state is ProxyState.OUT_OF_SYNC
        assert (await observer.presences([edit.key]))[edit.key].state is ProxyState.ONLINE

        door.is_open.set()
        for resources in ([of_held.key], []):
            progress = await observer.final_progress([revision - 1], resources, WITHIN)
            assert (progress.revision >= revision, progress.have, progress.having) == (True, 1, ("a.web",))
        assert (await observer.final_progress([], [], WITHIN)).have == 2
        assert (await observer.presences([of_held.key]))[of_held.key].state is ProxyState.ONLINE
        (reaches,) = await observer.reaches([revision - 1])
        assert [reach.proxies for reach in reaches] == [1], "those of the mesh that was held count too"

    held(test)


def test_held_mesh_is_given_all_later_changes_at_once() -> None:
    async def test(rig: Rig, door: _Door) -> None:
        for number in range(3):
            revision = await rig.store.write(Put(dataplane("a", "web", f"s{number}")), Put(timeout("b", number + 2)))
            assert await rig.reconciler.wait_for_publication([revision], {"b"}, WITHIN) == (True, revision)
        async with rig.connected("late", "a"):
            await rig.write(dataplane("a", "late", "z"))
            woken = rig.woken["a.web"]
            door.is_open.set()
            assert await rig.clusters("a.late", bool) == {"z", "localhost:80"}
            assert await rig.clusters("a.web", lambda names: "s2" in names) == {"s2", "localhost:80"}
            assert rig.woken["a.web"] - woken == 2, "for the first change, and for all others"
        assert await rig.reconciler.wait_for_publication([], (), WITHIN) == (True, await rig.store.revision())

    held(test, checks_itself=True)


def test_mesh_that_lost_its_proxies_while_held_is_served_all_changes() -> None:
    async def test(rig: Rig, door: _Door) -> None:
        lane = rig.reconciler.lane("a")
        await rig.write(timeout("b", 3))  # another mesh waits, so this one is set aside
        await eventually_on_loop(lambda: lane.is_set_aside)
        await rig.stays["a"].aclose()
        await rig.write(timeout("b", 4))  # a turn that notes that the proxy has left
        revision = await rig.store.write(Put(dataplane("a", "web", DOOR, "new")))
        assert await rig.reconciler.wait_for_publication([revision], {"b"}, WITHIN) == (True, revision)
        door.is_open.set()
        assert await rig.reconciler.wait_for_publication([], (), WITHIN) == (True, revision)
        async with rig.connected("web", "a") as proxy:
            assert "new" in await rig.clusters(proxy, lambda names: DOOR in names)

    held(test)


def test_leaving_during_a_held_computation_leaves_nothing_behind() -> None:
    async def test(rig: Rig, door: _Door) -> None:
        async with rig.connected("web", "b"):
            revision = await rig.store.write(Delete(Key("Dataplane", "a", "web")), Put(timeout("b", 3)))
            assert await rig.reconciler.wait_for_publication([revision], {"b"}, WITHIN) == (True, revision)
        door.is_open.set()
        assert await rig.reconciler.wait_for_publication([], (), WITHIN) == (True, revision)
        assert rig.hub.publisher.knows("a.web"), "it is still connected"

    held(test)


def test_held_mesh_is_reported_until_it_has_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "LATE_AFTER", 0.0)
    monkeypatch.setattr(reconcile, "_REPORTS_EVERY", 0.001)

    async def test(rig: Rig, door: _Door) -> None:
        revision = await rig.store.write(Put(timeout("b", 3)))
        assert await rig.reconciler.wait_for_publication([revision], {"b"}, WITHIN) == (True, revision)
        assert list(rig.reconciler.late_meshes) == ["a"]
        lane = rig.reconciler.lane("a")
        await eventually_on_loop(lambda: lane.is_reported)
        door.is_open.set()
        await eventually_on_loop(lambda: not rig.reconciler.late_meshes)
        assert not lane.is_reported

    with structlog.testing.capture_logs() as lines:
        held(test)
    events = [line["event"] for line in lines]
    assert events.index("mesh.late") < events.index("mesh.caught_up")


def test_mesh_late_names_its_connected_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "LATE_AFTER", 0.0)
    monkeypatch.setattr(reconcile, "_REPORTS_EVERY", 0.001)

    async def test(rig: Rig) -> None:
        await rig.write(*MESHES, timeout("a"), dataplane("a", "web", DOOR))
        await eventually_on_loop(lambda: rig.reconciler.world.get(Key("Dataplane", "a", "web")) is not None)
        async with rig.connected("web", "a"):
            await eventually_on_loop(lambda: rig.reconciler.lane("a").is_reported)
            door.is_open.set()
            await rig.clusters("a.web", bool)

    with structlog.testing.capture_logs() as lines, doors() as door:
        run(test, policies=door.policies)
    (late,) = (line for line in lines if line["event"] == "mesh.late")
    assert late["cause"] == "1 proxy connected"
    assert "resources" not in late


def test_question_about_a_held_mesh_delays_no_other_one() -> None:
    async def test(rig: Rig, door: _Door) -> None:
        web = rig.reconciler.world.get(Key("Dataplane", "a", "web"))
        assert web is not None
        async with asyncio.TaskGroup() as asking:
            questions = [asking.create_task(rig.reconciler.snapshot(web, is_certified_client=False)) for _ in range(50)]
            compiled = asking.create_task(rig.reconciler.compiled(["a.web", "b.web"]))
            revision = await rig.store.write(Put(timeout("b", 3)))
            assert await rig.reconciler.wait_for_publication([revision], {"b"}, WITHIN) == (True, revision)
            assert set(await compiled) == set(await rig.reconciler.compiled(["a.web", "b.web"])) == {"b.web"}
            for question in questions[1:]:
                question.cancel()
            door.is_open.set()
        assert not questions[0].cancelled()

    held(test)


@pytest.fixture
def endless_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that waits for delivery waits until delivery has ended, and at every checkpoint."""
    monkeypatch.setattr(precedence, "_PAUSE", 10 * WITHIN)
    monkeypatch.setattr(precedence, "_SHARE", 0.0)


@pytest.mark.usefixtures("endless_pauses")
@pytest.mark.parametrize("is_waiting", [False, True])
def test_turn_does_not_wait_for_a_question_that_yields(*, is_waiting: bool) -> None:
    reached = threading.Event()

    async def test(rig: Rig) -> None:
        await rig.write(*MESHES, timeout("a"), dataplane("a", "web", DOOR))
        web, claims = (await rig.reconciler.current()).get(Key("Dataplane", "a", "web")), rig.reconciler.precedence
        assert web is not None
        async with asyncio.TaskGroup() as asking:
            with checkpoint_set(yielding(claims, lambda: reached.set() if door.is_open.is_set() else None)):
                asking.create_task(rig.reconciler.snapshot(web, is_certified_client=False))
            await eventually_on_loop(door.is_entered.is_set)
            with claims.claimed() if is_waiting else nullcontext():
                if is_waiting:
                    door.is_open.set()
                    await eventually_on_loop(reached.is_set)
                async with rig.connected("web", "a"):
                    await eventually_on_loop(lambda: claims.is_claimed)
                    door.is_open.set()
                    await rig.clusters("a.web", lambda names: DOOR in names)

    with doors() as door:
        run(test, policies=door.policies)


@pytest.mark.usefixtures("endless_pauses")
def test_question_yields_while_a_mesh_that_is_set_aside_needs_it() -> None:
    claims, happened = Precedence(), list[str]()
    entered, lane_waits, asked = threading.Event(), threading.Event(), threading.Event()

    def has_precedence() -> bool:
        asked.set()
        return False  # the mesh is set aside

    lock = DeliveryLock(claims, has_precedence)

    def question() -> None:
        with lock.held_by_question(), checkpoint_set(yielding(claims)):
            entered.set()
            assert lane_waits.wait(WITHIN)
            pass_checkpoint()
            happened.append("the question went on")

    def lane() -> None:
        with lock.held_by_delivery():
            happened.append("the mesh was computed")

    threads = [threading.Thread(target=question), threading.Thread(target=lane)]
    with claims.claimed():
        threads[0].start()
        assert entered.wait(WITHIN)
        threads[1].start()
        eventually(lambda: lock.is_awaited)
        lane_waits.set()
        assert asked.wait(WITHIN)
        happened.append("the other mesh was served")
    for thread in threads:
        thread.join(WITHIN)
    assert happened == ["the other mesh was served", "the question went on", "the mesh was computed"]


def test_meshes_are_computed_as_from_the_whole_world() -> None:
    """Each mesh is computed from a part of the World, and checked against a computation from all of it."""

    async def edits(chance: Random, rig: Rig) -> None:
        async with AsyncExitStack() as stack:
            await rig.write(*MESHES)
            for mesh in ("a", "b"):
                for name in ("dp-1", "dp-2", "dp-3", "dp-4"):
                    await stack.enter_async_context(rig.connected(name, mesh))
            for number in range(10):
                made = [random_document(chance, (*EVERY, *IDENTIFIED)) for _ in range(3 if number else 50)]
                await rig.write(*(_moved(document, chance.choice("ab")) for document in made))
                await rig.reconciler.current()
        assert (checked(rig, "same") > 0, checked(rig, "different")) == (True, 0)

    for seed in seeds(times=0.03):
        run(partial(edits, Random(seed)), checks_itself=True)


def _moved(document: Document, mesh: str) -> Document:
    """The same document in another mesh."""
    key = document.key
    if key.type == "Mesh":
        return Document(Key("Mesh", "", mesh), {**document.data, "name": mesh})
    return Document(Key(key.type, mesh if key.mesh else "", key.name), {**document.data, "mesh": mesh})

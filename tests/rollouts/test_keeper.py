"""A rollout from step to step, to its end or back: on a store in memory, with Envoys without a socket."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from msgspec.structs import replace

from cp.model.document import Document
from cp.model.duration import Duration
from cp.model.moments import timestamp
from cp.model.names import Key
from cp.policies import discover
from cp.resources.resource import Resource
from cp.resources.rollout import RolledResource, RolloutSpec, content_of, rollout_document, rollout_key
from cp.resources.world import World
from cp.serving.delivery import BACK_WITHIN, GONE_AFTER, Presence, ProxyState
from cp.serving.observe import Observer
from cp.serving.rollouts.choice import ReachedProxy, reached_proxies
from cp.serving.rollouts.conditions import RequestCounts
from cp.serving.rollouts.keeper import PATIENCE, RolloutKeeper
from cp.serving.rollouts.requests import MOST_ASKED, NoCounts, RequestWatch, some_of
from cp.store.port import ABSENT, UNKNOWN, Author, Delete, LeaseLost, Put
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.packing import CLUSTER
from tests.random_mesh import MESH, document
from tests.rollouts.test_assignment import MOMENT
from tests.test_observe import Client, Rig, dataplane, patch, run, timeout

NAMES: Final = tuple(f"web-{number}" for number in range(10))
HOLD: Final = 30.0


@dataclass
class FakeCounters:
    """The requests of each proxy, as its Envoy would count them."""

    known: dict[str, RequestCounts] = field(default_factory=dict)
    questions: int = 0

    async def counts(self, dataplane: Key) -> RequestCounts:
        self.questions += 1
        if dataplane.name not in self.known:
            raise NoCounts(f"no agent of ours is connected for {dataplane.name}")
        return self.known[dataplane.name]

    def count(self, requests: int, errors: int = 0) -> None:
        """So many more at each proxy."""
        self.known = {
            name: RequestCounts(before.requests + requests, before.errors + errors)
            for name, before in self.known.items()
        }


@dataclass
class Course:
    """A rollout on its way, with the clients of a mesh by their names."""

    rig: Rig
    clients: Mapping[str, Client]
    exits: Mapping[str, ExitStack]
    counters: FakeCounters = field(default_factory=FakeCounters)
    now: float = 0.0
    set_by: float = 0.0
    """So many seconds the clock was set forward."""

    leads: bool = True
    control_planes: frozenset[str] = frozenset({"a", "b"})

    def __post_init__(self) -> None:
        self.now = math.ceil(time.time())
        self.keeper = self.new_keeper()
        self.counters.known = {name: RequestCounts(1000, 500) for name in self.clients}

    def new_keeper(self) -> RolloutKeeper:
        rig = self.rig
        return RolloutKeeper(
            rig.store,
            rig.reconciler,
            rig.observer,
            self.counters,
            discover(),
            leads=lambda: self.leads,
            control_planes=lambda: self.control_planes,
            clock=lambda: self.now + self.set_by,
            stopwatch=lambda: self.now,
        )

    async def begin(
        self, *documents: Document, steps: str = "1,50%,100%", until: str | None = None, hold: float = HOLD
    ) -> None:
        resources = [await self._rolled(document.key) for document in documents]
        spec = RolloutSpec(
            number=7,
            author="ann",
            begun=MOMENT,
            resources=resources,
            content=content_of(documents),
            steps=steps.split(","),
            hold=Duration(int(hold * 10**9)),
            until=until,
            state="Going",
            since=MOMENT,
            proxies=[],
        )
        await self.rig.write(rollout_document("default", spec))

    async def _rolled(self, key: Key) -> RolledResource:
        held = await self.rig.store.get(key)
        revision, change = (ABSENT, "Created") if held is None else (held.revision, "Updated")
        return RolledResource(type=key.type, name=key.name, based_on=revision, change=change)  # type: ignore[arg-type]  # one of both

    async def sweep(self, later: float = 0.0) -> RolloutSpec:
        """What comes of a look, some seconds later."""
        self.now += later
        await self.keeper.sweep(await self.rig.reconciler.current())
        return await self.spec()

    async def spec(self) -> RolloutSpec:
        resource = (await self.rig.reconciler.current()).get(rollout_key("default"))
        assert resource is not None
        spec: RolloutSpec = resource.spec
        return spec

    async def step(self) -> RolloutSpec:
        """The next step, as soon as its proxies have it and are watched."""
        spec = await self.sweep()
        await self.rig.settled(*(f"default.{name}" for name in self.clients))
        assert spec.state == "Going"
        return await self.sweep()

    async def until_end(self) -> RolloutSpec:
        return await self.until_end_from(await self.step())

    async def until_end_from(self, spec: RolloutSpec) -> RolloutSpec:
        while spec.is_under_way:
            spec = await self.sweep(later=HOLD)
            if spec.state == "Going":
                await self.rig.settled(*(f"default.{name}" for name in self.clients))
                spec = await self.sweep()
        return spec


def in_a_mesh(
    test: Callable[[Course], Awaitable[None]], names: tuple[str, ...] = NAMES, *, others: tuple[str, ...] = ()
) -> None:
    """Proxies that call `backend`, and others that call `api`, connected and in sync."""

    async def begun(rig: Rig) -> None:
        callers = {**dict.fromkeys(names, "backend"), **dict.fromkeys(others, "api")}
        await rig.write(MESH, timeout(1), *(dataplane(name, service) for name, service in callers.items()))
        with ExitStack() as stack:
            clients = {name: Client(rig.hub, f"default.{name}") for name in callers}
            exits = {name: stack.enter_context(ExitStack()) for name in clients}
            for name, client in clients.items():
                exits[name].enter_context(client.connected())
            await rig.settled(*(client.proxy for client in clients.values()))
            await test(Course(rig, clients, exits))

    run(begun)


def connect_timeouts(course: Course) -> Mapping[str, int]:
    """What each proxy has in force for connections, in seconds."""
    seen = {}
    for name, client in course.clients.items():
        newest = course.rig.hub.observer.newest(client.proxy)
        assert newest is not None
        clusters = [Cluster.FromString(packed.body) for packed in newest.of(CLUSTER)]
        (seen[name],) = {each.connect_timeout.seconds for each in clusters if not each.name.startswith("localhost")}
    return seen


def having(course: Course) -> set[str]:
    return {name for name, seconds in connect_timeouts(course).items() if seconds == 3}


def test_it_goes_to_more_proxies_with_each_step_and_is_stored_for_all_in_one_write() -> None:
    async def test(course: Course) -> None:
        store = course.rig.store
        await course.begin(timeout(3))
        first = await course.step()
        assert (first.step, first.state, len(first.proxies), first.reached) == (1, "Holding", 1, 10)
        assert having(course) == set(first.proxies)

        assert (await course.sweep(later=HOLD - 1)).step == 1
        second = await course.sweep(later=1)
        assert (second.step, second.state, len(second.proxies)) == (2, "Going", 5)
        assert set(first.proxies) < set(second.proxies)
        await course.rig.settled(*(client.proxy for client in course.clients.values()))
        await course.sweep()
        await course.sweep(later=HOLD)
        await course.rig.settled(*(client.proxy for client in course.clients.values()))
        third = await course.sweep()
        assert (third.step, third.state, having(course)) == (3, "Holding", set(NAMES))
        assert (await store.get(timeout(3).key)).document == timeout(1)  # type: ignore[union-attr]  # it is there

        snapshots = {name: course.rig.hub.observer.newest(client.proxy) for name, client in course.clients.items()}
        before = await store.revision()
        last = await course.sweep(later=HOLD)
        assert (last.state, last.content, await store.revision()) == ("Done", None, before + 1)
        stored = await store.get(timeout(3).key)
        assert stored is not None
        assert (stored.document, stored.revision) == (timeout(3), before + 1)
        (change, *_) = await store.history(timeout(3).key)
        assert change.author == Author("ann", "rollout 7")
        for name, client in course.clients.items():
            assert course.rig.hub.observer.newest(client.proxy) is snapshots[name], "it was sent something again"

    in_a_mesh(test)


YEAR: Final = 365 * 24 * 3600.0


@pytest.mark.parametrize("jump", [YEAR, -YEAR], ids=["forward", "back"])
def test_a_clock_that_is_set_neither_ends_a_hold_early_nor_prolongs_it(jump: float) -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        first = await course.step()
        assert (first.step, first.state) == (1, "Holding")

        course.set_by = jump
        assert (await course.sweep(later=HOLD - 1)).step == 1
        second = await course.sweep(later=1)
        assert (second.step, second.state) == (2, "Going")

    in_a_mesh(test)


@pytest.mark.parametrize("jump", [YEAR, -YEAR], ids=["forward", "back"])
def test_whoever_takes_over_holds_as_long_as_it_should_be_held_whatever_the_clock_says(jump: float) -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        assert (await course.step()).state == "Holding"
        course.set_by = jump
        course.keeper = course.new_keeper()

        assert (await course.sweep()).step == 1
        course.set_by = 2 * jump
        assert (await course.sweep(later=HOLD - 1)).step == 1
        second = await course.sweep(later=1)
        assert (second.step, second.state) == (2, "Going")

    in_a_mesh(test)


@pytest.mark.parametrize("jump", [YEAR, -YEAR], ids=["forward", "back"])
def test_a_clock_that_is_set_does_not_shorten_or_prolong_the_patience_with_proxies(jump: float) -> None:
    async def test(course: Course) -> None:
        for client in course.clients.values():
            client.answers = False
        await course.begin(timeout(3))
        assert (await course.sweep()).state == "Going"

        course.set_by = jump
        assert (await course.sweep(later=PATIENCE)).state == "Going"
        assert (await course.sweep(later=1)).state == "RolledBack"

    in_a_mesh(test)


def test_of_each_class_some_have_it_first() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        first = await course.step()

        assert len(first.proxies) == 2
        assert {name.partition("-")[0] for name in first.proxies} == {"web", "job"}
        assert first.reached == 14

    in_a_mesh(test, others=tuple(f"job-{number}" for number in range(4)))


def test_every_control_plane_chooses_the_same_proxies() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        first = (await course.step()).proxies
        await course.rig.store.write(Delete(rollout_key("default")))
        course.keeper = course.new_keeper()
        await course.begin(timeout(3))

        assert (await course.step()).proxies == first

    in_a_mesh(test)


def test_a_refusal_brings_it_back_and_nobody_else_has_seen_it() -> None:
    async def test(course: Course) -> None:
        others = {name: course.rig.hub.observer.newest(client.proxy) for name, client in course.clients.items()}
        await course.begin(patch("bad"))
        going = await course.sweep()
        (chosen,) = going.proxies
        await course.rig.reconciler.current()
        spec = await course.sweep()

        assert (spec.state, spec.step) == ("RolledBack", 1)
        assert spec.reason is not None
        assert "1 proxy refuses (default." in spec.reason
        assert "backend: bad" in spec.reason
        assert await course.rig.store.get(patch("bad").key) is None
        await course.rig.reconciler.current()
        await course.rig.settled(*(client.proxy for client in course.clients.values()))
        for name, client in course.clients.items():
            newest = course.rig.hub.observer.newest(client.proxy)
            assert newest == others[name]
            assert name == chosen or newest is others[name]

    in_a_mesh(test)


def test_a_refusal_is_told_as_one_of_what_is_rolled_out() -> None:
    async def test(course: Course) -> None:
        await course.begin(patch("bad"))
        await course.sweep()
        await course.rig.reconciler.current()
        (report,) = await course.rig.observer.nack_reports()

        assert [part.policy for part in report.likeliest] == [patch("bad").key]

    in_a_mesh(test)


def test_the_reason_of_a_refusal_names_the_policy_and_not_what_came_with_it() -> None:
    async def test(course: Course) -> None:
        await course.begin(connect_timeout_patch("bad"), timeout(3, name="innocent"))
        await course.sweep()
        await course.rig.reconciler.current()
        reason = (await course.sweep()).reason or ""

        assert reason.startswith("MeshProxyPatch default/patch spec.default.appendModifications[0]: 1 proxy refuses")

    in_a_mesh(test)


def connect_timeout_patch(mark: str) -> Document:
    """A patch as most are written: for all clusters, with text to be merged."""
    change = {"operation": "Patch", "value": f"connectTimeout: -5s\naltStatName: {mark}\n"}
    return document("MeshProxyPatch", "patch", spec={"default": {"appendModifications": [{"cluster": change}]}})


def test_who_does_not_answer_soon_is_told_of_once() -> None:
    async def test(course: Course) -> None:
        for client in course.clients.values():
            client.answers = False
        await course.begin(timeout(3))
        await course.sweep()
        assert (await course.sweep(later=5)).reason is None
        spec = await course.sweep(later=1)
        assert (spec.state, (spec.reason or "").startswith("not answered within 5 s: web-")) == ("Going", True)
        revision = await course.rig.store.revision()
        await course.sweep(later=1)
        assert await course.rig.store.revision() == revision

    in_a_mesh(test)


def test_who_does_not_answer_in_time_brings_it_back() -> None:
    async def test(course: Course) -> None:
        for client in course.clients.values():
            client.answers = False
        await course.begin(timeout(3))
        await course.sweep()
        assert (await course.sweep(later=PATIENCE)).state == "Going"
        spec = await course.sweep(later=1)

        assert spec.state == "RolledBack"
        assert (spec.reason or "").startswith("not answered within 60 s: web-")

    in_a_mesh(test)


@pytest.mark.parametrize(("settled_for", "absence"), [(0.0, BACK_WITHIN), (BACK_WITHIN, GONE_AFTER)])
def test_who_is_away_for_long_brings_it_back(settled_for: float, absence: float) -> None:
    """Right after the start of a control plane, proxies have longer to come back."""

    async def test(course: Course) -> None:
        await course.keeper.sweep(await course.rig.reconciler.current())
        course.now += settled_for
        await course.begin(timeout(3))
        (name,) = (await course.step()).proxies
        course.exits[name].close()
        assert (await course.sweep()).state == "Holding"
        assert (await course.sweep(later=absence - 1)).state == "Holding"
        spec = await course.sweep(later=1)

        assert (spec.state, spec.reason) == ("RolledBack", f"disconnected: {name}")

    in_a_mesh(test)


def test_who_is_away_at_the_end_of_a_hold_is_waited_for() -> None:
    """A change by which Envoys end would go on otherwise, if the hold is short."""

    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        (name,) = (await course.step()).proxies
        await course.sweep(later=HOLD - 5)
        course.exits[name].close()
        await course.sweep()
        assert (await course.sweep(later=10)).step == 1
        with course.clients[name].connected():
            await course.rig.settled(f"default.{name}")
            assert (await course.sweep(later=1)).step == 1, "it has not been held there"
            assert (await course.sweep(later=HOLD)).step == 2

    in_a_mesh(test)


def test_an_envoy_that_ends_again_and_again_brings_it_back() -> None:
    """It is well each time that somebody looks at the right moment."""

    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        (name,) = (await course.step()).proxies
        client, spec = course.clients[name], await course.spec()
        for _ in range(20):
            course.exits[name].close()
            await course.sweep(later=8)
            course.exits[name].enter_context(client.connected())
            await course.rig.settled(client.proxy)
            await course.sweep(later=1)
            spec = await course.sweep(later=5)
            if not spec.is_under_way:
                break
        assert (spec.state, spec.reason) == ("RolledBack", f"connected anew again and again: {name}")

    in_a_mesh(test)


def test_a_fault_of_ours_that_lasts_brings_it_back() -> None:
    class Faulty(FakeCounters):
        is_faulty = False

        async def counts(self, dataplane: Key) -> RequestCounts:
            if self.is_faulty:
                raise RuntimeError("a fault of ours")
            return await super().counts(dataplane)

    async def test(course: Course) -> None:
        course.counters = counters = Faulty(course.counters.known)
        course.keeper = course.new_keeper()
        await course.begin(timeout(3), until="5xx < 10%")
        await course.step()
        counters.is_faulty = True
        spec = await course.sweep(later=HOLD)
        while spec.is_under_way and course.now < time.time() + 100 * PATIENCE:
            spec = await course.sweep(later=5)
        assert (spec.state, "by a fault of the control plane" in (spec.reason or "")) == ("RolledBack", True)

    in_a_mesh(test)


def test_who_does_not_answer_something_later_is_waited_for_and_brings_it_back() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        (name,) = (await course.step()).proxies
        course.clients[name].answers = False
        await course.rig.write(patch("later"))
        await course.rig.reconciler.current()
        assert (await course.sweep(later=HOLD)).state == "Holding"
        spec = await course.sweep(later=PATIENCE)
        assert (spec.state, spec.reason) == ("RolledBack", f"not known to have it 60 s after the hold: {name}")

    in_a_mesh(test)


def test_requests_that_fail_bring_it_back_and_those_of_before_do_not_count() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3), until="5xx < 10%")
        (name,) = (await course.step()).proxies
        course.counters.count(100, 9)
        assert (await course.sweep(later=HOLD / 2)).state == "Holding"
        course.counters.count(100, 30)
        spec = await course.sweep(later=HOLD / 2 - 1)

        assert spec.state == "RolledBack"
        assert spec.reason == f"not `5xx < 10%`: 39 of 200 requests were answered with 5xx at {name}"

    in_a_mesh(test)


def test_without_enough_requests_it_is_held_for_longer_and_then_goes_back() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3), until="5xx < 10%")
        await course.step()
        course.counters.count(19)
        held = await course.sweep(later=HOLD)
        assert (held.state, held.step) == ("Holding", 1)
        assert "too few requests" in (held.reason or "")
        assert (await course.sweep(later=8 * HOLD)).state == "Holding"
        spec = await course.sweep(later=HOLD)

        assert spec.state == "RolledBack"
        assert "could not be judged in 300 s: 0 of 19 requests" in (spec.reason or "")

    in_a_mesh(test)


def test_a_hold_that_goes_on_asks_no_more_often_than_before() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3), until="5xx < 10%")
        await course.step()
        for _ in range(100):
            await course.sweep(later=0.5)
        before = course.counters.questions
        for _ in range(100):
            await course.sweep(later=0.5)
        assert 5 <= course.counters.questions - before <= 10

    in_a_mesh(test)


def test_what_cannot_be_read_is_told_as_that() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3), until="5xx < 10%")
        await course.step()
        course.counters.known = {}
        held = await course.sweep(later=HOLD)
        assert held.reason == "the counters of some proxies cannot be read, so it is held for longer"
        spec = await course.sweep(later=10 * HOLD)
        assert "could not be judged in 330 s: no agent of ours is connected" in (spec.reason or "")

    in_a_mesh(test)


def test_a_proxy_that_cannot_be_read_hides_none_that_fails() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3), steps="50%,100%", until="5xx < 10%")
        names = (await course.step()).proxies
        course.counters.count(100, 50)
        del course.counters.known[names[0]]
        spec = await course.sweep(later=HOLD / 2)
        assert (spec.state, spec.reason) == (
            "RolledBack",
            f"not `5xx < 10%`: 50 of 100 requests were answered with 5xx at {names[1]}",
        )

    in_a_mesh(test)


def test_all_that_are_asked_have_answered_when_one_cannot_be_read() -> None:
    class Slow:
        def __init__(self) -> None:
            self.answered: list[str] = []

        async def counts(self, dataplane: Key) -> RequestCounts:
            if dataplane.name == "a":
                raise NoCounts("a is not there")
            await asyncio.sleep(0)
            self.answered.append(dataplane.name)
            return RequestCounts(0, 0)

    async def test() -> None:
        slow = Slow()
        with pytest.raises(NoCounts, match="a is not there"):
            await RequestWatch(slow, "default", ["a", "b", "c"]).begin()
        assert slow.answered == ["b", "c"]

    asyncio.run(test())


def test_who_does_not_answer_in_time_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks after the rollout meanwhile."""

    class Hanging:
        async def counts(self, dataplane: Key) -> RequestCounts:
            if dataplane.name == "b":
                await asyncio.Event().wait()
            return RequestCounts(100, 100)

    async def test() -> None:
        monkeypatch.setattr("cp.serving.rollouts.requests._WITHIN", 0.01)
        with pytest.raises(NoCounts, match="the Envoy of b has not answered within"):
            await RequestWatch(Hanging(), "default", ["a", "b"]).begin()

    asyncio.run(test())


def test_the_time_to_answer_begins_when_the_counters_are_read() -> None:
    class Slow(FakeCounters):
        async def counts(self, dataplane: Key) -> RequestCounts:
            self.course.now += PATIENCE
            return await super().counts(dataplane)

        def __init__(self, course: Course) -> None:
            super().__init__(course.counters.known)
            self.course = course

    async def test(course: Course) -> None:
        course.counters = Slow(course)
        course.keeper = course.new_keeper()
        for client in course.clients.values():
            client.answers = False
        await course.begin(timeout(3), until="5xx < 10%")
        await course.sweep()
        assert (await course.sweep(later=1)).state == "Going"

    in_a_mesh(test)


def test_requests_during_a_pause_do_not_count() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3), until="5xx < 10%")
        spec = await course.step()
        await course.rig.write(rollout_document("default", replace(spec, state="Paused")))
        await course.sweep()
        course.counters.count(100, 100)
        course.now += HOLD
        since = timestamp(datetime.fromtimestamp(course.now, UTC))
        await course.rig.write(rollout_document("default", replace(spec, state="Going", since=since)))
        assert (await course.sweep()).state == "Holding"
        course.counters.count(100, 0)
        await course.sweep(later=1)
        course.counters.count(100, 0)
        assert (await course.sweep(later=HOLD)).step == 2

    in_a_mesh(test)


def test_with_enough_requests_it_goes_on_however_late_they_come() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3), until="5xx < 10%")
        await course.step()
        await course.sweep(later=2 * HOLD)
        course.counters.count(20)

        assert (await course.sweep(later=10)).step == 2

    in_a_mesh(test)


def test_next_step_waits_for_agents_after_a_restart() -> None:
    async def test(course: Course) -> None:
        known = course.counters.known
        await course.begin(timeout(3), until="5xx < 10%")
        await course.step()
        course.keeper, course.counters.known = course.new_keeper(), {}
        held = await course.sweep(later=HOLD)
        assert (held.state, held.step) == ("Holding", 1)
        course.counters.known = dict.fromkeys([*held.proxies], RequestCounts(1000, 500))
        await course.sweep(later=HOLD / 2)
        course.counters.count(100)
        waiting = await course.sweep(later=HOLD)  # the next proxies have no agents here yet
        assert (waiting.state, waiting.step, len(having(course))) == ("Holding", 1, 1)
        assert "the counters of some proxies cannot be read" in (waiting.reason or "")
        course.counters.known = known | course.counters.known
        assert (await course.sweep(later=HOLD)).step == 2

    in_a_mesh(test)


def test_prolonged_hold_outlives_a_restart_of_another_control_plane() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3), until="5xx < 10%")
        (name,) = (await course.step()).proxies
        assert (await course.sweep(later=HOLD + PATIENCE + 1)).state == "Holding"  # there are too few requests
        course.exits[name].close()
        course.control_planes = frozenset({"a"})
        waiting = await course.sweep(later=1)
        assert (waiting.state, waiting.step) == ("Holding", 1), waiting.reason
        with course.clients[name].connected():
            await course.rig.settled(f"default.{name}")
            course.counters.count(100)
            assert (await course.sweep(later=HOLD)).step == 2

    in_a_mesh(test)


def test_short_hold_outlives_a_restart() -> None:
    """Agents need some seconds to come back, whatever the hold is."""

    async def test(course: Course) -> None:
        await course.begin(timeout(3), until="5xx < 10%", hold=1)
        await course.step()
        known, course.counters.known = course.counters.known, {}
        course.keeper = course.new_keeper()
        await course.sweep()
        assert (await course.sweep(later=PATIENCE / 2)).state == "Holding"
        course.counters.known = known
        await course.sweep(later=1)
        course.counters.count(100)
        assert (await course.sweep(later=10)).step == 2

    in_a_mesh(test)


def test_step_begins_as_soon_as_agents_are_back() -> None:
    async def test(course: Course) -> None:
        known, course.counters.known = course.counters.known, {}
        await course.begin(timeout(3), until="5xx < 10%")
        waiting = await course.sweep()
        assert (waiting.state, waiting.step, having(course)) == ("Going", 0, set())
        assert "the counters of some proxies cannot be read" in (waiting.reason or "")
        assert (await course.sweep(later=BACK_WITHIN - 1)).step == 0
        course.counters.known = known
        spec = await course.sweep()
        assert (spec.step, spec.reason) == (1, None)

    in_a_mesh(test)


def test_where_counters_cannot_be_read_nobody_is_sent_anything() -> None:
    async def test(course: Course) -> None:
        course.counters.known = {}
        await course.begin(timeout(3), until="5xx < 10%")
        assert (await course.sweep()).state == "Going"
        spec = await course.sweep(later=PATIENCE + 1)

        assert (spec.state, spec.step, having(course)) == ("RolledBack", 0, set())
        assert "cannot be judged: no agent of ours is connected for web-" in (spec.reason or "")

    in_a_mesh(test)


def test_of_many_proxies_some_are_asked_from_the_first_to_the_last() -> None:
    names = [f"p-{number:04}" for number in range(1001)]

    assert len(some_of(names)) <= MOST_ASKED
    assert (some_of(names)[0], some_of(names)[-1] > "p-0990") == ("p-0000", True)
    assert list(some_of(names[:MOST_ASKED])) == names[:MOST_ASKED]
    assert list(some_of([])) == []


def test_what_cannot_be_made_brings_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a fault of ours, in the only proxy that is to have it first."""

    async def test(course: Course) -> None:
        proxy = Compiler.proxy

        def failing(compiler: Compiler, world: World, dataplane: Resource) -> CompiledProxy:
            seconds = world.get(timeout(3).key)
            if seconds is not None and seconds.data["to"][0]["default"]["connectionTimeout"] == "3s":
                raise RuntimeError("a fault of ours")
            return proxy(compiler, world, dataplane)

        monkeypatch.setattr(Compiler, "proxy", failing)
        await course.begin(timeout(3))
        assert (await course.sweep()).step == 1
        spec = await course.sweep()
        assert spec.state == "RolledBack"
        assert "by a fault of the control plane" in (spec.reason or "")

    in_a_mesh(test)


def test_what_somebody_else_writes_meanwhile_is_not_lost() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        await course.step()
        await course.rig.write(timeout(5))
        spec = await course.sweep()

        assert (spec.state, spec.reason) == (
            "RolledBack",
            "MeshTimeout default/timeout was written by somebody else meanwhile",
        )
        await course.rig.reconciler.current()
        assert set(connect_timeouts(course).values()) == {5}

    in_a_mesh(test)


def test_what_somebody_else_writes_at_the_last_moment_is_not_lost() -> None:
    class Contended:
        """A store in which somebody is a moment faster with what is to be stored."""

        def __init__(self, course: Course) -> None:
            self._store, self.get = course.rig.store, course.rig.store.get

        async def write(self, *writes: Put | Delete, author: Author = UNKNOWN) -> int:
            if any(write.key == timeout(3).key for write in writes):
                await self._store.write(Put(timeout(5)))
            return await self._store.write(*writes, author=author)

    async def test(course: Course) -> None:
        rig = course.rig
        course.keeper = RolloutKeeper(
            Contended(course), rig.reconciler, rig.observer, course.counters, discover(), stopwatch=lambda: course.now
        )
        await course.begin(timeout(3), steps="100%")
        await course.step()
        spec = await course.sweep(later=HOLD)
        assert (spec.state, "was written by somebody else" in (spec.reason or "")) == ("RolledBack", True)
        await rig.reconciler.current()
        assert set(connect_timeouts(course).values()) == {5}

    in_a_mesh(test)


def test_what_is_written_elsewhere_reaches_everybody_meanwhile() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        await course.step()
        await course.rig.write(patch("good"))
        await course.rig.reconciler.current()
        spec = await course.sweep()

        assert spec.state == "Holding"
        assert having(course) == set(spec.proxies)
        for client in course.clients.values():
            newest = course.rig.hub.observer.newest(client.proxy)
            assert newest is not None
            assert any(b"good" in packed.body for part in newest.parts for packed in part)

    in_a_mesh(test)


def test_while_it_is_paused_nothing_happens_and_then_its_step_is_watched_anew() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        spec = await course.step()
        await course.rig.write(rollout_document("default", replace(spec, state="Paused")))
        for client in course.clients.values():
            client.answers = False
        paused = await course.sweep(later=100 * HOLD)
        assert (paused.state, paused.step, having(course)) == ("Paused", 1, set(spec.proxies))

        since = (await course.sweep()).since
        await course.rig.write(rollout_document("default", replace(spec, state="Going", since=since)))
        for client in course.clients.values():
            client.speak()
        assert (await course.sweep()).state == "Holding"

    in_a_mesh(test)


def test_another_control_plane_takes_over_and_holds_the_step_from_the_beginning() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        first = await course.step()
        await course.sweep(later=HOLD - 1)
        course.keeper = course.new_keeper()
        assert await course.sweep() == first
        assert (await course.sweep(later=HOLD - 1)).step == 1
        assert (await course.sweep(later=1)).step == 2

    in_a_mesh(test)


def test_who_does_not_lead_does_nothing() -> None:
    async def test(course: Course) -> None:
        course.leads = False
        await course.begin(timeout(3))
        before = await course.rig.store.revision()
        assert (await course.sweep(later=HOLD)).step == 0
        assert await course.rig.store.revision() == before

    in_a_mesh(test)


def test_who_has_lost_the_lease_meanwhile_writes_nothing() -> None:
    class Fenced:
        def __init__(self, course: Course) -> None:
            self._store = course.rig.store
            self.get = course.rig.store.get

        async def write(self, *_writes: object, **_options: object) -> int:
            raise LeaseLost("chores")

    async def test(course: Course) -> None:
        rig = course.rig
        await course.begin(timeout(3))
        course.keeper = RolloutKeeper(Fenced(course), rig.reconciler, rig.observer, course.counters, discover())
        assert (await course.sweep()).step == 0

    in_a_mesh(test)


def test_what_makes_no_difference_for_a_connected_proxy_is_stored_at_once() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(1, "same-as-before"))
        spec = await course.sweep()

        assert (spec.state, spec.reason) == ("Done", "it makes no difference for a connected proxy")
        assert await course.rig.store.get(timeout(1, "same-as-before").key) is not None

    in_a_mesh(test)


def test_nobody_of_whom_it_is_not_known_what_he_has_is_passed_over() -> None:
    """To take those for nobody would store it for all of them at once."""

    async def test(course: Course) -> None:
        for client in course.clients.values():
            client.answers = False
        await course.rig.write(timeout(2))
        await course.rig.reconciler.current()
        await course.begin(timeout(3), steps="1,100%")
        first = await course.sweep()
        assert (first.step, first.state, having(course)) == (0, "Going", set())
        spec = await course.sweep(later=PATIENCE + 1)
        assert (spec.state, having(course)) == ("RolledBack", set())
        assert (spec.reason or "").startswith("not known within 60 s what web-0, ")

    in_a_mesh(test)


def test_where_everybody_has_gone_nothing_is_stored() -> None:
    async def test(course: Course) -> None:
        for exits in course.exits.values():
            exits.close()
        await course.begin(timeout(3), steps="1,100%")
        assert (await course.sweep()).state == "Going"
        spec = await course.sweep(later=PATIENCE + 1)

        assert spec.state == "RolledBack"
        assert "not known within 60 s" in (spec.reason or "")
        assert await stored_value(course) == 1

    in_a_mesh(test)


def test_who_went_away_a_moment_ago_is_waited_for_and_then_passed_over() -> None:
    async def test(course: Course) -> None:
        course.exits["web-3"].close()
        await course.begin(timeout(3), steps="100%")
        waiting = await course.sweep(later=GONE_AFTER - 5)
        assert (waiting.step, waiting.state, waiting.reason) == (0, "Going", "it is not known yet what web-3 have")
        spec = await course.sweep(later=10)
        assert set(spec.proxies) == set(NAMES) - {"web-3"}
        assert spec.reason is None

    in_a_mesh(test)


def test_after_the_start_of_a_control_plane_proxies_are_waited_for_that_it_has_not_seen_yet() -> None:
    async def test(course: Course) -> None:
        await course.rig.write(dataplane("late", "backend"))
        await course.begin(timeout(3), steps="100%")
        waiting = await course.sweep(later=BACK_WITHIN - 1)
        assert (waiting.step, waiting.reason) == (0, "it is not known yet what late have")
        late = Client(course.rig.hub, "default.late")
        with late.connected():
            await course.rig.settled(late.proxy)
            assert set((await course.sweep()).proxies) == {*NAMES, "late"}

    in_a_mesh(test)


def test_where_nobody_has_come_for_long_it_is_stored_at_once() -> None:
    """As of Dataplanes that are written before there is a proxy."""

    async def begun(rig: Rig) -> None:
        await rig.write(MESH, timeout(1), dataplane("web-0", "backend"))
        course = Course(rig, {}, {})
        await course.keeper.sweep(await rig.reconciler.current())
        course.now += BACK_WITHIN
        await course.begin(timeout(3))
        assert (await course.sweep()).state == "Done"
        assert await stored_value(course) == 3

    run(begun)


@pytest.mark.parametrize("gone", ["the one that led", "another one"])
def test_when_a_control_plane_has_gone_its_proxies_are_waited_for(gone: str) -> None:
    """Nobody knows when they were here: it took its memory along."""

    async def test(course: Course) -> None:
        course.leads = gone == "another one"
        await course.rig.write(dataplane("late", "backend"))
        await course.keeper.sweep(await course.rig.reconciler.current())
        course.now += 100 * BACK_WITHIN
        course.leads, course.control_planes = True, frozenset({"a"})
        await course.begin(timeout(3), steps="100%")
        waiting = await course.sweep(later=1)
        assert (waiting.step, waiting.reason) == (0, "it is not known yet what late have")
        assert (await course.sweep(later=BACK_WITHIN)).step == 1

    in_a_mesh(test)


def test_where_all_refuse_something_already_nobody_is_sent_it() -> None:
    """There is nobody to watch."""

    async def test(course: Course) -> None:
        await course.rig.outcome([await course.rig.write(patch("bad"))])
        await course.begin(timeout(3), steps="1,100%")
        spec = await course.sweep()

        assert (spec.state, await stored_value(course)) == ("RolledBack", 1)
        assert "all that it reaches refuse something already" in (spec.reason or "")

    in_a_mesh(test)


def test_each_proxy_is_waited_for_by_itself() -> None:
    """Some are always about to answer in a large mesh."""

    async def test(course: Course) -> None:
        await course.begin(timeout(3), steps="100%")
        for number in range(4):
            late = dataplane(f"late-{number}", "backend")
            course.control_planes = frozenset({f"{number}"})  # another one each time, so its proxies may come back
            await course.rig.write(late)
            assert (await course.sweep(later=PATIENCE - 1)).step == 0
            await course.rig.store.write(Delete(late.key))
        assert (await course.sweep()).step == 1

    in_a_mesh(test)


def test_there_is_an_end_to_waiting_for_one_after_the_other() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3), steps="100%")
        spec = await course.spec()
        for number in range(30):
            course.control_planes = frozenset({f"{number}"})
            await course.rig.write(dataplane(f"late-{number}", "backend"))
            spec = await course.sweep(later=PATIENCE / 2)
            if not spec.is_under_way:
                break
            await course.rig.store.write(Delete(dataplane(f"late-{number}").key))
        assert (spec.state, spec.reason) == (
            "RolledBack",
            "for 600 s it was never known of all proxies at once what they have",
        )

    in_a_mesh(test)


def test_what_is_written_elsewhere_has_nobody_compared_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(*arguments: Any) -> list[ReachedProxy]:
        compared.append(1)
        return reached_proxies(*arguments)

    async def test(course: Course) -> None:
        monkeypatch.setattr("cp.serving.rollouts.proxies.reached_proxies", counted)
        await course.rig.write(dataplane("late", "backend"))
        await course.begin(timeout(3), steps="100%")
        for number in range(5):
            await course.rig.write(elsewhere(number))
            await course.sweep()
        assert len(compared) == 1

    in_a_mesh(test)


def elsewhere(number: int) -> Document:
    key = Key("MeshTimeout", "other", "timeout")
    return Document(key, {**timeout(number).data, "mesh": "other"})


def test_nobody_waits_for_a_proxy_that_the_change_does_not_reach() -> None:
    async def test(course: Course) -> None:
        await course.rig.write(dataplane("late", "backend"))
        await course.begin(patch("good", proxy="web-1"), steps="1")
        assert (await course.sweep()).proxies == ["web-1"]

    in_a_mesh(test)


def test_who_has_it_keeps_it_whatever_becomes_of_him_when_the_next_step_begins() -> None:
    """To take it from him would look as if he were well."""

    class LaterRefusing(Observer):
        """It finds that one of all proxies refuses something a moment after it found that it was well."""

        def __init__(self, rig: Rig, name: str) -> None:
            super().__init__(rig.hub, rig.reconciler)
            self._name = name

        async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
            presences = dict(await super().presences(dataplanes))
            key = Key("Dataplane", "default", self._name)
            if len(presences) > 1:
                presences[key] = dataclasses.replace(presences[key], state=ProxyState.REFUSED)
            return presences

    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        (name,) = (await course.step()).proxies
        rig, proxies = course.rig, LaterRefusing(course.rig, name)
        course.keeper = RolloutKeeper(
            rig.store, rig.reconciler, proxies, course.counters, discover(), stopwatch=lambda: course.now
        )
        await course.sweep()
        second = await course.sweep(later=HOLD)
        assert (second.step, name in second.proxies) == (2, True)

    in_a_mesh(test)


async def stored_value(course: Course) -> int:
    held = await course.rig.store.get(timeout(3).key)
    assert held is not None
    return 1 if held.document == timeout(1) else 3


def test_steps_that_add_no_proxy_are_passed_over() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3), steps="1,2,10%,20%,100%")
        await course.step()
        spec = await course.sweep(later=HOLD)
        assert (spec.step, len(spec.proxies)) == (2, 2)
        await course.rig.settled(*(client.proxy for client in course.clients.values()))
        await course.sweep()
        assert (await course.sweep(later=HOLD)).step == 5

    in_a_mesh(test)


def test_without_a_last_step_for_all_the_others_get_it_with_the_write() -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3), steps="1")
        await course.step()
        assert (await course.sweep(later=HOLD)).state == "Done"
        await course.rig.reconciler.current()
        assert having(course) == set(NAMES)

    in_a_mesh(test)


def test_who_refused_something_before_is_not_asked_to_go_first() -> None:
    async def test(course: Course) -> None:
        await course.rig.outcome([await course.rig.write(patch("bad", proxy="web-3"))])
        await course.begin(timeout(3), steps="100%")
        spec = await course.sweep()

        assert set(spec.proxies) == set(NAMES) - {"web-3"}

    in_a_mesh(test)


def test_deleted_resources_are_rolled_out_too() -> None:
    async def test(course: Course) -> None:
        held = await course.rig.store.get(timeout(1).key)
        assert held is not None
        await course.begin(timeout(1, "other"))
        spec = await course.spec()
        gone = RolledResource(type="MeshTimeout", name="timeout", based_on=held.revision, change="Deleted")
        await course.rig.write(rollout_document("default", replace(spec, resources=[gone], content=content_of([None]))))
        first = await course.step()
        assert sorted(connect_timeouts(course).values()) == [1] * 9 + [5]
        assert len(first.proxies) == 1
        assert (await course.until_end_from(first)).state == "Done"
        assert await course.rig.store.get(timeout(1).key) is None

    in_a_mesh(test)


@pytest.mark.parametrize("count", [1, 10])
def test_a_rollout_comes_to_its_end(count: int) -> None:
    async def test(course: Course) -> None:
        await course.begin(timeout(3))
        assert (await course.until_end()).state == "Done"
        assert having(course) == set(NAMES[:count])

    in_a_mesh(test, NAMES[:count])

"""What proxies make of what they are served: asked by those who wait, and told to the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog

from cp.ads.connection import Connection
from cp.ads.hub import Hub
from cp.ads.session.messages import Node, Response, SotwRequest
from cp.ads.session.sotw import SotwSession
from cp.api.policy_delivery import policy_delivery
from cp.insight.inspect import affected_proxies
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover
from cp.resources.world import World
from cp.serving.delivery import ChangeProgress, ProxyState
from cp.serving.observe import Observer
from cp.serving.publications import KEPT
from cp.serving.reconcile import Pace, Reconciler
from cp.store.memory import MemoryStore
from cp.store.port import Delete, Put
from cp.translate.compiler import CompiledProxy
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from cp.translate.snapshot import Snapshot
from tests.random_mesh import MESH, document
from tests.support.waiting import eventually_on_loop

WITHIN = 10
PATCH = Key("MeshProxyPatch", "default", "patch")


@dataclass(eq=False)
class Client:
    """An Envoy without a socket. It refuses what is marked, in Envoy's words, and answers when it wants to."""

    hub: Hub
    proxy: str
    mark: bytes = b"bad"
    answers: bool = True
    session: SotwSession = field(default_factory=SotwSession)
    waiting: list[Response] = field(default_factory=list)

    @contextmanager
    def connected(self) -> Iterator[Client]:
        self.session = SotwSession()
        self.seat = Connection(Node(self.proxy, version="1.36.0"), "sotw", self.session, self._wake)
        with self.hub.streams.connected(self.seat):
            for type_url in (CLUSTER, LISTENER):
                self._take(self.session.receive(SotwRequest(type_url)))
            self._wake()
            yield self

    def _wake(self) -> None:
        asyncio.get_running_loop().call_soon(self._catch_up)

    def _catch_up(self) -> None:
        newest = self.hub.observer.newest(self.proxy)
        if newest is not None:
            self._take(self.session.publish(newest))
            self.hub.streams.caught_up(self.seat)

    def _take(self, responses: list[Response]) -> None:
        self.waiting += responses
        while self.answers and self.waiting:
            self._answer(self.waiting.pop(0))

    def speak(self) -> None:
        self.answers = True
        self._take([])

    def _answer(self, response: Response) -> None:
        bad = [packed.name for packed in response.resources if self.mark in packed.body]
        error = ", ".join(f"{name}: {self.mark.decode()}" for name in bad) or None
        version = "" if error else response.version
        request = SotwRequest(response.type_url, self._wanted(response.type_url), response.nonce, version, error)
        sent = self.session.receive(request)
        heard = self.session.answer
        self.hub.streams.answered(self.seat, response.type_url, heard if not isinstance(heard, str) else None)
        for type_url in (ENDPOINTS, ROUTES):
            if (wanted := self._wanted(type_url)) and response.type_url in {CLUSTER, LISTENER} and not error:
                sent += self.session.receive(SotwRequest(type_url, wanted))
        self._take(sent)

    def _wanted(self, type_url: str) -> frozenset[str]:
        newest = self.hub.observer.newest(self.proxy) or Snapshot()
        return frozenset(newest.names(type_url)) if type_url in {ENDPOINTS, ROUTES} else frozenset()


@dataclass
class Rig:
    store: MemoryStore
    hub: Hub
    reconciler: Reconciler
    observer: Observer

    async def write(self, *documents: Document) -> int:
        return await self.store.write(*map(Put, documents))

    async def outcome(
        self, revisions: Collection[int] = (), resources: Collection[Key] = (), within: float = WITHIN
    ) -> ChangeProgress:
        return await self.observer.final_progress(revisions, resources, within)

    async def settled(self, *proxies: str) -> None:
        async with asyncio.timeout(WITHIN):
            with self.hub.observer.watch() as watch:
                while not all(map(self.hub.observer.is_in_sync, proxies)):
                    await watch.news()


def run(test: Callable[[Rig], Awaitable[None]]) -> None:
    async def whole() -> None:
        store, hub = MemoryStore(), Hub()
        reconciler = Reconciler(store, hub, discover(), Pace())
        rig = Rig(store, hub, reconciler, Observer(hub, reconciler))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(reconciler.run()), group.create_task(rig.observer.log_nacks())]
            assert await reconciler.wait_for_revision(0, WITHIN)
            try:
                await test(rig)
            finally:
                for task in tasks:
                    task.cancel()

    asyncio.run(whole())


def dataplane(name: str, *services: str, port: int = 80) -> Document:
    outbound = [{"port": 10000 + n, "tags": {"kuma.io/service": service}} for n, service in enumerate(services)]
    inbound = [{"port": port, "tags": {"kuma.io/service": name}}]
    return document("Dataplane", name, networking={"address": "127.0.0.1", "inbound": inbound, "outbound": outbound})


def timeout(seconds: int, name: str = "timeout") -> Document:
    item = {"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": f"{seconds}s"}}
    return document("MeshTimeout", name, spec={"to": [item]})


def patch(value: str, proxy: str = "", name: str = "patch", cluster: str = "backend") -> Document:
    """A change of a cluster for some or all proxies, good or bad."""
    change = {"op": "add", "path": "/altStatName", "value": value}
    modification = {"cluster": {"operation": "Patch", "match": {"name": cluster}, "jsonPatches": [change]}}
    target = {"targetRef": {"kind": "Dataplane", "name": proxy}} if proxy else {}
    return document("MeshProxyPatch", name, spec={**target, "default": {"appendModifications": [modification]}})


def unrelated(name: str) -> Document:
    return document("MeshService", name, spec={"ports": [{"port": 1}]})


def in_a_mesh(test: Callable[[Rig, Client, Client], Awaitable[None]]) -> None:
    """Two proxies that call `backend`, connected and in sync."""

    async def begun(rig: Rig) -> None:
        await rig.write(MESH, dataplane("a", "backend"), dataplane("b", "backend"))
        with Client(rig.hub, "default.a").connected() as a, Client(rig.hub, "default.b").connected() as b:
            await rig.settled("default.a", "default.b")
            await test(rig, a, b)

    run(begun)


def test_a_change_is_done_when_every_proxy_that_it_concerns_has_it() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        of_both = await rig.outcome([await rig.write(timeout(3))])
        of_a = await rig.outcome([await rig.write(dataplane("a", "backend", "more"))])
        of_nobody = await rig.outcome([await rig.write(unrelated("x"))])

        assert [(progress.proxies, progress.have) for progress in (of_both, of_a, of_nobody)] == [
            (2, 2),
            (1, 1),
            (0, 0),
        ]

    in_a_mesh(test)


def test_a_proxy_that_nacks_a_change_is_named_with_the_policy_and_the_other_one_has_it() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        progress = await rig.outcome([await rig.write(timeout(3), patch("bad", proxy="b"))])

        assert (progress.proxies, progress.have, progress.refusing) == (2, 1, ("default.b",))
        assert progress.having == ("default.a",)
        (report,) = progress.nack_reports
        assert [place.policy for place in report.likeliest] == [PATCH, Key("MeshTimeout", "default", "timeout")]
        assert report.names == ("backend",)
        assert report.lasts

    in_a_mesh(test)


def test_an_earlier_nack_is_not_the_fault_of_a_later_change() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        await rig.outcome([await rig.write(patch("bad", proxy="b"))])

        progress = await rig.outcome([await rig.write(dataplane("a", "backend", "x"), dataplane("b", "backend", "x"))])

        assert (progress.have, progress.refusing, progress.nack_reports) == (2, (), ())

    in_a_mesh(test)


def test_a_nack_that_still_stands_counts_for_the_policy_that_it_comes_from() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        await rig.outcome([await rig.write(timeout(3))])
        await rig.outcome([await rig.write(patch("bad", proxy="b"))])

        of_patch = await rig.outcome(resources=[PATCH])
        of_another = await rig.outcome(resources=[Key("MeshTimeout", "default", "timeout")])

        assert (of_patch.refusing, len(of_patch.nack_reports)) == (("default.b",), 1)
        assert (of_another.proxies, of_another.nack_reports) == (0, ())

    in_a_mesh(test)


def test_who_does_not_answer_is_waited_for_and_named() -> None:
    async def test(rig: Rig, a: Client, _b: Client) -> None:
        a.answers = False
        revision = await rig.write(timeout(3))

        early = await rig.outcome([revision], within=0.2)
        assert (early.have, early.waiting) == (1, ("default.a",))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(rig.outcome([revision]))
            await asyncio.sleep(0)
            a.speak()
        assert waiting.result().have == 2

    in_a_mesh(test)


def test_who_is_waited_for_is_told_soon_though_nothing_happens() -> None:
    async def test(rig: Rig, a: Client, _b: Client) -> None:
        a.answers = False
        revision = await rig.write(timeout(3))

        async with asyncio.timeout(WITHIN):
            progress = await anext(rig.observer.progress([revision], (), 10 * WITHIN))
        assert (progress.is_done, progress.have, progress.waiting) == (False, 1, ("default.a",))

    in_a_mesh(test)


def test_who_goes_meanwhile_is_not_waited_for() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("a", "backend"))
        async with asyncio.TaskGroup() as tasks:
            with Client(rig.hub, "default.a").connected() as a:
                await rig.settled("default.a")
                a.answers = False
                waiting = tasks.create_task(rig.outcome([await rig.write(timeout(3))]))
                await eventually_on_loop(lambda: len(a.waiting) > 0)
                assert not waiting.done()
        progress = waiting.result()
        assert (progress.proxies, progress.have, progress.gone) == (1, 0, ("default.a",))

    run(test)


def test_a_proxy_that_comes_back_meanwhile_is_waited_for_again() -> None:
    async def test(rig: Rig, a: Client, b: Client) -> None:
        a.answers = b.answers = False
        gone = Client(rig.hub, "default.c")
        async with asyncio.TaskGroup() as tasks:
            with gone.connected():
                await rig.write(dataplane("c", "backend"))
                await rig.settled("default.c")
                waiting = tasks.create_task(rig.outcome([await rig.write(timeout(3))]))
                await eventually_on_loop(lambda: len(a.waiting) > 0)
            with gone.connected():
                await rig.settled("default.c")
                a.speak()
                b.speak()
                await waiting
        assert (waiting.result().have, waiting.result().gone) == (3, ())

    in_a_mesh(test)


def test_for_a_revision_that_is_too_long_ago_every_proxy_has_to_have_everything() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        first = await rig.write(timeout(3))
        for number in range(KEPT + 1):
            assert await rig.reconciler.wait_for_revision(await rig.write(unrelated(f"s{number}")), WITHIN)

        assert (await rig.outcome([first])).proxies == 2

    in_a_mesh(test)


def test_the_progress_of_a_revision_that_does_not_come_ends_at_an_earlier_one() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        progress = await rig.outcome([1000], within=0.05)

        assert progress.is_done
        assert progress.revision < 1000

    in_a_mesh(test)


def test_without_revisions_and_resources_the_progress_is_that_of_everything() -> None:
    async def test(rig: Rig, a: Client, _b: Client) -> None:
        assert (await rig.outcome()).have == 2
        a.answers = False
        assert await rig.reconciler.wait_for_revision(await rig.write(timeout(3)), WITHIN)
        assert (await rig.outcome(within=0)).waiting == ("default.a",)

    in_a_mesh(test)


def test_the_dataplane_is_at_fault_if_it_alone_was_changed() -> None:
    async def test(rig: Rig, _a: Client, b: Client) -> None:
        await rig.write(timeout(3))
        b.mark = b"localhost:81"
        progress = await rig.outcome([await rig.write(dataplane("b", "backend", port=81))])

        assert progress.refusing == ("default.b",)
        assert {place.policy for report in progress.nack_reports for place in report.likeliest} == {dataplane("b").key}

    in_a_mesh(test)


def test_trouble_that_lasts_began_with_its_first_cause() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        await rig.outcome([await rig.write(patch("bad", proxy="b"))])
        await rig.outcome([await rig.write(timeout(3))])

        (report,) = await rig.observer.nack_reports()

        assert [place.policy for place in report.likeliest] == [PATCH]
        assert [place.policy.type for place in report.suspects] == ["MeshProxyPatch", "MeshTimeout"]

    in_a_mesh(test)


def test_a_delivery_says_what_the_proxy_nacked_and_what_it_has_instead() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        good = rig.hub.observer.newest("default.b")
        assert good is not None
        await rig.outcome([await rig.write(patch("bad", proxy="b"))])

        delivery = await rig.observer.delivery(Key("Dataplane", "default", "b"))

        assert delivery.presence.state is ProxyState.REFUSED
        (stream,) = delivery.streams
        (clusters,) = [of_type for of_type in stream.types if of_type.status.type_url == CLUSTER]
        (refusal,) = clusters.refusals
        (held,) = refusal.held
        accepted = good.get(CLUSTER, "backend")
        assert accepted is not None
        assert (held.name, held.in_force) == ("backend", accepted.version)
        assert clusters.since == refusal.at
        assert clusters.rejected == 1
        assert all(of_type.status.in_sync for of_type in stream.types if of_type is not clusters)
        assert [finding.resource for finding in delivery.findings] == [PATCH]

    in_a_mesh(test)


def test_nacks_of_many_proxies_are_logged_once_and_again_when_they_come_again() -> None:
    def logged(logs: list[Any]) -> list[tuple[str, int]]:
        return [(entry["resource"], entry["proxies"]) for entry in logs if entry["event"] == "finding"]

    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        with structlog.testing.capture_logs() as logs:
            await rig.outcome([await rig.write(patch("bad"))])
            await eventually_on_loop(lambda: len(logged(logs)) == 1)
            await rig.outcome([await rig.write(patch("bad", "a", "other", "localhost:80"))])
            await eventually_on_loop(lambda: len(logged(logs)) == 2)
            assert (await rig.outcome([await rig.write(patch("good"))])).proxies == 2
            await rig.outcome([await rig.write(patch("bad again"))])
            await eventually_on_loop(lambda: len(logged(logs)) == 3)
        other_patch = str(Key("MeshProxyPatch", "default", "other"))
        assert logged(logs) == [(str(PATCH), 2), (other_patch, 1), (str(PATCH), 2)]

    in_a_mesh(test)


def test_the_presences_of_many_proxies_do_not_hold_up_the_loop() -> None:
    async def test(rig: Rig) -> None:
        rounds = 0

        async def count() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            counting = group.create_task(count())
            presences = await rig.observer.presences([dataplane(f"p{number}").key for number in range(200)])
            counting.cancel()

        assert len(presences) == 200
        assert rounds >= 10

    run(test)


def test_a_proxy_that_left_has_a_last_connection_and_one_that_never_came_has_none() -> None:
    async def test(rig: Rig) -> None:
        keys = [dataplane(name).key for name in ("a", "b")]
        await rig.write(MESH, dataplane("a"), dataplane("b"))
        with Client(rig.hub, "default.a").connected():
            await rig.settled("default.a")
            here = await rig.observer.presences(keys)
        gone = await rig.observer.presences(keys)

        assert [here[key].state for key in keys] == [ProxyState.ONLINE, ProxyState.OFFLINE]
        (visit,) = gone[keys[0]].connections
        assert visit.until is not None
        assert sum(tally.accepted for tally in visit.tallies) > 0
        assert not gone[keys[1]].connections

    run(test)


def test_of_a_policy_it_is_known_which_of_its_values_a_proxy_refuses() -> None:
    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        await rig.outcome([await rig.write(timeout(2), patch("good", proxy="a", name="good"))])
        await rig.outcome([await rig.write(patch("bad", proxy="b"), timeout(3, name="zz-later"))])

        assert await standing(rig, PATCH) == {"b": ("Refused", True)}
        assert await standing(rig, patch("good", name="good").key) == {"a": ("Online", False)}
        assert await standing(rig, Key("MeshTimeout", "default", "timeout")) == {
            "a": ("Online", False),
            "b": ("Refused", False),
        }, "b keeps the version before, and this value with it"

    in_a_mesh(test)


def test_nobody_is_blamed_for_a_nack_of_what_is_taken_back_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a rollout ends: the World in which the patch was is not known any more."""

    async def test(rig: Rig, _a: Client, _b: Client) -> None:
        await rig.outcome([await rig.write(patch("bad"), timeout(3))])
        compiled = rig.reconciler.compiled

        async def compiled_later(proxies: Iterable[str]) -> Mapping[str, tuple[World, CompiledProxy]]:
            await rig.store.write(Delete(PATCH))
            await rig.reconciler.current()
            return await compiled(proxies)

        assert len(await rig.observer.nack_reports()) == 2
        monkeypatch.setattr(rig.reconciler, "compiled", compiled_later)
        assert await rig.observer.nack_reports() == ()

    in_a_mesh(test)


async def standing(rig: Rig, policy: Key) -> dict[str, tuple[str, bool]]:
    """The state of each proxy of a policy, and whether it refuses what the policy says."""
    world = await rig.reconciler.current()
    resource = world.get(policy)
    assert resource is not None
    proxies = list(affected_proxies(world, resource))
    delivered = await policy_delivery(rig.observer, policy, [proxy.dataplane for proxy in proxies])
    answers = [delivered.data(proxy) for proxy in proxies]
    return {each["name"]: (each["status"], any("refused" in one for one in each["survives"])) for each in answers}

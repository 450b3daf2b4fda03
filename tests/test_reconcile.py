"""The loop between the store and the hub."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar
from weakref import ref

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryResponse

from cp.ads.connection import Connection
from cp.ads.hub import Hub
from cp.ads.server import ServerOptions, serving
from cp.ads.session.messages import Node
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import Policies, Policy, discover
from cp.policies.mesh_timeout import MeshTimeout
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.delivery import ProxyState
from cp.serving.observe import Observer
from cp.serving.reconcile import Pace, Reconciler
from cp.store.clock import utc
from cp.store.memory import MemoryStore
from cp.store.port import ChangeBatch, Contents, Delete, HistoryLimits, Outdated, Put, StoreUnreachable, Unusable
from cp.translate.compiler import CompiledProxy
from cp.translate.packing import CLUSTER, LISTENER
from generators.drafts import ClusterDraft
from tests.ads.proxy import Proxy as Visitor
from tests.random_mesh import MESH, document
from tests.support.waiting import eventually_on_loop

T = TypeVar("T")
Run = Callable[["Rig"], Awaitable[None]]


@dataclass
class Rig:
    """A reconciler at work on a store in memory, and proxies that count how often they are woken."""

    store: MemoryStore
    hub: Hub
    reconciler: Reconciler
    woken: dict[str, int] = field(default_factory=dict)
    stays: dict[str, AsyncExitStack] = field(default_factory=dict)
    """For as long as a proxy stays connected, by its mesh."""

    async def write(self, *documents: Document) -> None:
        await self.store.write(*map(Put, documents))

    async def clusters(self, proxy: str, wanted: Callable[[set[str]], bool]) -> set[str]:
        """The names of a proxy's clusters, once they are as wanted."""
        await eventually_on_loop(lambda: wanted(_clusters(self.hub, proxy)))
        return _clusters(self.hub, proxy)

    @asynccontextmanager
    async def connected(self, name: str, mesh: str = "default", **metadata: str) -> AsyncIterator[str]:
        proxy = f"{mesh}.{name}"
        self.woken[proxy] = 0

        def wake() -> None:
            self.woken[proxy] += 1

        with self.hub.streams.connected(Connection(Node(proxy, metadata=metadata), "sotw", _SESSION, wake)):
            yield proxy


_SESSION: Any = SimpleNamespace(statuses=(), tallies=(), is_at=lambda _: True, is_settled=lambda *_: True)


def _clusters(hub: Hub, proxy: str) -> set[str]:
    snapshot = hub.observer.newest(proxy)
    return set(snapshot.names(CLUSTER)) if snapshot is not None else set()


def run(
    test: Run,
    policies: Policies | None = None,
    pace: Pace | None = None,
    store: MemoryStore | None = None,
    **options: Any,
) -> None:
    store = store or MemoryStore()

    async def whole() -> None:
        hub = Hub()
        reconciler = Reconciler(store, hub, policies or discover(), pace or Pace(), **options)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reconciler.run())
            with suppress(asyncio.CancelledError):
                await eventually_on_loop(lambda: reconciler.is_ready)
                await test(Rig(store, hub, reconciler))
            task.cancel()

    asyncio.run(whole())


def dataplane(name: str, *services: str) -> Document:
    outbound = [{"port": 10000 + n, "tags": {"kuma.io/service": service}} for n, service in enumerate(services)]
    inbound = [{"port": 80, "tags": {"kuma.io/service": name}}]
    return document("Dataplane", name, networking={"address": "127.0.0.1", "inbound": inbound, "outbound": outbound})


MTLS = {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin", "mode": "STRICT"}]}
CERTIFIED = {"koguma.io/certificates": "koguma"}


def test_a_grpc_client_speaks_tls_while_one_of_its_streams_says_that_it_finds_certificates() -> None:
    tags = {"kuma.io/service": "shop"}
    client = document("Dataplane", "shop", labels={"koguma.io/client": "grpc"}, networking=_calling("backend", tags))
    tags = {"kuma.io/service": "backend", "kuma.io/protocol": "grpc"}
    inbound = [{"port": 80, "tags": tags}]
    server = document("Dataplane", "backend", networking={"address": "127.0.0.2", "inbound": inbound, "outbound": []})

    async def test(rig: Rig) -> None:
        await rig.write(Document(MESH.key, {**MESH.data, "mtls": MTLS}), client, server)
        async with rig.connected("shop") as proxy:
            await eventually_on_loop(lambda: _over_tls(rig.hub, proxy) == {"backend": False})
            async with rig.connected("shop", **CERTIFIED):
                assert _over_tls(rig.hub, proxy) == {}, "what the other stream has is not for this one"
                await eventually_on_loop(lambda: _over_tls(rig.hub, proxy) == {"backend": True})
                async with rig.connected("shop", **CERTIFIED), rig.connected("backend") as other:
                    await eventually_on_loop(lambda: rig.hub.observer.newest(other) is not None)
                async with rig.connected("backend") as other:
                    await eventually_on_loop(lambda: rig.hub.observer.newest(other) is not None)
                assert _over_tls(rig.hub, proxy) == {"backend": True}
            await eventually_on_loop(lambda: _over_tls(rig.hub, proxy) == {"backend": False})

    run(test, checks_itself=True)


def _calling(service: str, tags: dict[str, str]) -> dict[str, Any]:
    outbound = [{"port": 1, "tags": {"kuma.io/service": service}}]
    return {"address": "127.0.0.1", "gateway": {"type": "DELEGATED", "tags": tags}, "outbound": outbound}


def _over_tls(hub: Hub, proxy: str) -> dict[str, bool]:
    """For each cluster of a proxy, whether it is called over TLS."""
    snapshot = hub.observer.newest(proxy)
    clusters = () if snapshot is None else (Cluster.FromString(packed.body) for packed in snapshot.of(CLUSTER))
    return {cluster.name: cluster.HasField("transport_socket") for cluster in clusters}


def test_who_waits_for_another_world_waits_for_the_store_to_be_read() -> None:
    async def waits() -> None:
        reconciler = Reconciler(MemoryStore(), Hub(), discover())  # which nobody runs, so it reads nothing
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await reconciler.changed(reconciler.world)

    asyncio.run(waits())


def test_a_proxy_that_connects_before_its_dataplane_is_written_is_served_when_it_is() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("web") as proxy:
            await rig.write(MESH, dataplane("web", "backend"))
            assert await rig.clusters(proxy, bool) == {"backend", "localhost:80"}

    run(test)


def test_a_proxy_whose_dataplane_is_removed_keeps_what_it_has() -> None:
    async def test(rig: Rig) -> None:
        web = dataplane("web", "backend")
        await rig.write(MESH, web)
        async with rig.connected("web") as proxy:
            before = await rig.clusters(proxy, bool)
            revision = await rig.store.write(Delete(web.key))
            await eventually_on_loop(lambda: rig.reconciler.world.revision == revision)
            assert _clusters(rig.hub, proxy) == before

    run(test)


def test_changes_that_come_together_are_one_push() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web"))
        async with rig.connected("web") as proxy:
            await rig.clusters(proxy, bool)
            before = rig.woken[proxy]
            for number in range(1, 30):
                await rig.write(dataplane("web", *(f"s{n}" for n in range(number))))
            await rig.clusters(proxy, lambda names: "s28" in names)
            assert rig.woken[proxy] - before < 10, "29 writes in a row, and far fewer pushes"

    run(test, pace=Pace(quiet=0.05, at_most=5))


def test_a_proxy_that_comes_back_is_told_once_and_what_was_changed_meanwhile() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "backend"))
        async with serving(rig.hub, ServerOptions(), lambda: 0.5) as server:
            async with Visitor(server.port) as visitor:
                await visitor.ask(CLUSTER)
                assert _named(await visitor.hear()) == {"backend", "localhost:80"}
            await eventually_on_loop(lambda: not rig.hub.observer.of("default.web"))
            await rig.write(dataplane("web", "more"))
            await rig.reconciler.current()

            async with Visitor(server.port) as visitor:
                await visitor.ask(CLUSTER)
                clusters = await visitor.hear()
                assert _named(clusters) == {"more", "localhost:80"}
                await visitor.answer(clusters)
                await visitor.ask(LISTENER)
                assert (await visitor.hear()).type_url == LISTENER, "clusters were sent again"

    run(test)


@pytest.mark.parametrize("was_served", [True, False])
def test_a_proxy_that_leaves_during_a_turn_is_told_only_of_what_is_in_force_when_it_returns(was_served: bool) -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "first"))
        await rig.reconciler.current()
        turn = _Held(rig.reconciler)
        if was_served:
            turn.may_end.set()
        async with rig.connected("web") as proxy:
            if was_served:
                await rig.clusters(proxy, bool)
                turn.may_end.clear()
                turn.has_begun.clear()
            await rig.write(dataplane("web", "second"))
            await eventually_on_loop(turn.has_begun.is_set)
        turn.may_end.set()
        await rig.reconciler.current()
        await rig.write(dataplane("web", "third"))
        assert (await rig.reconciler.current()).revision == await rig.store.revision()

        async with rig.connected("web") as proxy:
            assert rig.hub.observer.newest(proxy) is None
            assert await rig.clusters(proxy, bool) == {"third", "localhost:80"}

    run(test)


class _Held:
    """Turns in which a proxy is worked out end only when they may."""

    def __init__(self, reconciler: Reconciler) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        compiler = reconciler.lane("default").turns.compiler
        self._proxy = compiler.proxy
        compiler.proxy = self._held  # type: ignore[method-assign]  # the real one, later

    def _held(self, world: World, dataplane: Resource) -> CompiledProxy:
        self.has_begun.set()
        assert self.may_end.wait(10)
        return self._proxy(world, dataplane)


def test_a_proxy_that_comes_before_a_write_was_noticed_is_told_of_the_write() -> None:
    """Writes of another process are noticed later; this store tells of its second one when it is asked to."""

    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "backend"))
        await rig.reconciler.current()
        slow.may_tell.clear()
        await rig.write(dataplane("web", "more"))
        async with rig.connected("web") as proxy:
            await eventually_on_loop(lambda: slow.asked)
            assert rig.hub.observer.newest(proxy) is None
            slow.may_tell.set()
            assert await rig.clusters(proxy, bool) == {"more", "localhost:80"}

    slow = _Slow()
    run(test, store=slow)


def test_a_proxy_that_comes_back_to_a_dataplane_that_is_gone_keeps_what_it_had() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "backend"))
        async with rig.connected("web") as first:
            await rig.clusters(first, bool)
            await rig.store.write(Delete(dataplane("web").key))
            await rig.reconciler.current()
        async with rig.connected("web") as proxy:
            await eventually_on_loop(lambda: rig.woken[proxy])
            assert _clusters(rig.hub, proxy) == {"backend", "localhost:80"}

    run(test)


def _named(response: DiscoveryResponse) -> set[str]:
    return {Cluster.FromString(resource.value).name for resource in response.resources}


class _Slow(MemoryStore):
    """A store that may know of a write for a while before it tells its followers."""

    def __init__(self) -> None:
        super().__init__()
        self.may_tell, self.asked = asyncio.Event(), 0
        self.may_tell.set()

    async def revision(self) -> int:
        self.asked += not self.may_tell.is_set()
        return await super().revision()

    async def follow(self, since: int) -> AsyncIterator[ChangeBatch]:
        async for batch in super().follow(since):
            await self.may_tell.wait()
            yield batch


class _Forgetful(MemoryStore):
    """A store that, when it is followed for the first time, no longer knows the changes since then."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def follow(self, since: int) -> AsyncIterator[ChangeBatch]:
        self.asked += 1
        return _outdated(since) if self.asked == 1 else super().follow(since)


async def _outdated(since: int) -> AsyncIterator[ChangeBatch]:
    raise Outdated(since, since + 1, since + 1)
    yield


def test_a_store_that_forgot_what_changed_is_read_anew() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("web") as proxy:
            await rig.write(MESH, dataplane("web", "backend"))
            await rig.clusters(proxy, lambda names: "backend" in names)
            await rig.write(dataplane("web", "more"))
            await rig.clusters(proxy, lambda names: "more" in names)

    run(test, store=_Forgetful())


class _AwayWhenForgetful(_Forgetful):
    """It cannot be read at once when everything has to be read anew, as in the time of a failover."""

    refusals = 0

    async def read(self) -> Contents:
        if self.read_once and self.refusals < 1:
            self.refusals += 1
            raise StoreUnreachable("the database is away")
        self.read_once = True
        return await super().read()

    read_once = False


def test_a_store_that_is_away_when_it_has_to_be_read_anew_is_read_later() -> None:
    async def test(rig: Rig) -> None:
        async with rig.connected("web") as proxy:
            await rig.write(MESH, dataplane("web", "backend"))
            await rig.clusters(proxy, lambda names: "backend" in names)
        assert store.refusals == 1

    store = _AwayWhenForgetful()
    run(test, store=store)


def test_an_edit_that_changes_nothing_for_a_proxy_does_not_wake_it() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "backend"))
        async with rig.connected("web") as proxy:
            await rig.clusters(proxy, bool)
            before = rig.woken[proxy]
            await rig.write(dataplane("other", "backend"))
            revision = await rig.store.write(Put(document("MeshService", "unrelated", spec={"ports": [{"port": 1}]})))
            await eventually_on_loop(lambda: rig.reconciler.world.revision == revision)
            assert rig.woken[proxy] == before

    run(test)


class _Faulty(MeshTimeout):
    """A policy with a fault that only one service meets."""

    def cluster(self, conf: Any, draft: ClusterDraft) -> None:
        if draft.cluster.name == "cursed":
            raise ZeroDivisionError
        super().cluster(conf, draft)


async def _seen(rig: Rig, name: str) -> tuple[ProxyState, list[str]]:
    """What operators are told of a proxy."""
    delivery = await Observer(rig.hub, rig.reconciler).delivery(Key("Dataplane", "default", name))
    return delivery.presence.state, [finding.code for finding in delivery.findings]


def test_a_fault_of_ours_costs_the_part_that_meets_it_and_nothing_else() -> None:
    faulty: list[Policy[Any]] = [_Faulty() if isinstance(p, MeshTimeout) else p for p in discover()]

    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "backend"), dataplane("api", "backend"))
        async with rig.connected("web") as web, rig.connected("api") as api:
            await rig.clusters(web, bool)
            await rig.write(dataplane("web", "cursed", "other"), dataplane("api", "backend", "more"))
            await rig.clusters(api, lambda names: "more" in names)
            assert await rig.clusters(web, lambda names: "other" in names) == {"other", "localhost:80"}
            assert set(rig.reconciler.failures) == {web}
            assert await _seen(rig, "web") == (ProxyState.FAILED, ["failed"])
            assert await _seen(rig, "api") == (ProxyState.ONLINE, [])
            await rig.write(dataplane("web", "more"))
            assert await rig.clusters(web, lambda names: "more" in names) == {"more", "localhost:80"}
            assert set(rig.reconciler.failures) == set()
            assert await _seen(rig, "web") == (ProxyState.ONLINE, [])

    run(test, policies=faulty)


def checked(rig: Rig, outcome: str) -> float:
    count: float = rig.hub.metrics.self_checks.labels(outcome)._value.get()
    return count


def test_a_control_plane_that_checks_itself_serves_what_a_full_computation_gives() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "backend"))
        async with rig.connected("web") as proxy:
            await rig.clusters(proxy, bool)
            assert (checked(rig, "same") > 0, checked(rig, "different")) == (True, 0)

            forgetful = rig.reconciler.lane("default").turns.compiler
            old = forgetful.proxy
            forgetful.proxy = lambda world, dataplane: old(before, before.get(dataplane.key) or dataplane)  # type: ignore[method-assign]
            before = rig.reconciler.world
            await rig.write(dataplane("web", "more"))
            assert await rig.clusters(proxy, lambda names: "more" in names) == {"more", "localhost:80"}
            assert checked(rig, "different") == 1
            assert rig.reconciler.lane("default").turns.compiler is not forgetful

    run(test, checks_itself=True)


def test_who_reads_after_a_write_sees_it() -> None:
    async def test(rig: Rig) -> None:
        for number in range(3):
            await rig.write(MESH, dataplane(f"web-{number}"))
            world = await rig.reconciler.current()
            assert world.get(dataplane(f"web-{number}").key) is not None

    run(test, pace=Pace(quiet=0.1))


def test_who_reads_is_answered_with_what_is_in_force_when_the_store_fails() -> None:
    class Failing(MemoryStore):
        async def revision(self) -> int:
            raise Unusable("the disk is full")

    async def test(rig: Rig) -> None:
        assert (await rig.reconciler.current()).revision == 0

    run(test, store=Failing())


def test_a_world_that_does_not_come_is_not_waited_for_for_ever() -> None:
    async def test(rig: Rig) -> None:
        assert not await rig.reconciler.wait_for_revision(1, within=0.01)
        await rig.write(MESH)
        assert await rig.reconciler.wait_for_revision(1, within=10)

    run(test)


class AwayStore(MemoryStore):
    """A store that somebody says is away, or whose changes are forgotten."""

    outage = ""


def test_what_was_written_while_the_store_was_away_is_served_before_it_is_followed() -> None:
    async def test(rig: Rig) -> None:
        assert rig.reconciler.follows
        async with rig.reconciler._computing:
            rig.store.outage = "the store is away"  # type: ignore[misc]  # of `AwayStore`
            await rig.write(MESH)
            await eventually_on_loop(lambda: rig.reconciler._followed == 1)
            rig.store.outage = ""  # type: ignore[misc]  # the same
            assert not rig.reconciler.follows
        await eventually_on_loop(lambda: rig.reconciler.follows)
        assert rig.reconciler.world.revision == 1

    run(test, store=AwayStore())


class ForgottenStore(MemoryStore):
    """A store that has forgotten its changes, and is read only when that is wanted."""

    def __init__(self) -> None:
        super().__init__(limits=HistoryLimits(kept=1))
        self.may_be_read = asyncio.Event()
        self.may_be_read.set()

    async def read(self) -> Contents:
        await self.may_be_read.wait()
        return await super().read()


def test_who_reads_everything_anew_follows_when_it_is_served() -> None:
    store = ForgottenStore()

    async def test(rig: Rig) -> None:
        store.may_be_read.clear()
        for number in range(3):  # one batch: all but the last is forgotten before it is read
            store._contents.write([Put(dataplane(f"web-{number}"))], utc())
        store._news.publish()
        await eventually_on_loop(lambda: not rig.reconciler.follows)
        assert rig.reconciler.world.revision == 0
        async with rig.reconciler._computing:
            store.may_be_read.set()
            await eventually_on_loop(lambda: rig.reconciler._followed == 3)
            assert not rig.reconciler.follows
        await eventually_on_loop(lambda: rig.reconciler.follows)
        assert rig.reconciler.world.revision == 3

    run(test, store=store)


def test_it_is_known_whom_a_write_concerned() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "backend"), dataplane("api", "backend"))
        async with rig.connected("web") as web, rig.connected("api") as api:
            await rig.clusters(web, bool)
            await rig.clusters(api, bool)
            for documents, concerned in (
                ([dataplane("web", "backend", "more")], {web}),
                ([dataplane("other", "backend")], set()),
                ([dataplane("web"), dataplane("api")], {web, api}),
            ):
                revision = await rig.store.write(*map(Put, documents))
                assert await rig.reconciler.wait_for_revision(revision, within=10)
                reach = rig.reconciler.publications.audience([revision])
                assert reach.is_known
                assert set(reach.proxies) == concerned

    run(test)


def test_a_proxy_for_which_nothing_can_be_made_of_a_write_is_told_apart() -> None:
    faulty: list[Policy[Any]] = [_Faulty() if isinstance(p, MeshTimeout) else p for p in discover()]

    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "backend"))
        async with rig.connected("web") as web:
            await rig.clusters(web, bool)
            revision = await rig.store.write(Put(dataplane("web", "cursed")))
            assert await rig.reconciler.wait_for_revision(revision, within=10)
            assert rig.reconciler.publications.audience([revision]).failed == {web}

    run(test, policies=faulty)


def test_a_write_is_not_charged_with_a_failure_that_was_there_before_and_is_not_about_it() -> None:
    faulty: list[Policy[Any]] = [_Faulty() if isinstance(p, MeshTimeout) else p for p in discover()]

    async def test(rig: Rig) -> None:
        async def failed(*documents: Document) -> frozenset[str]:
            revision = await rig.store.write(*map(Put, documents))
            assert await rig.reconciler.wait_for_revision(revision, within=10)
            return rig.reconciler.publications.audience([revision]).failed

        await rig.write(MESH, dataplane("web", "cursed"))
        async with rig.connected("web") as web:
            await rig.clusters(web, bool)
            assert await failed(dataplane("api")) == frozenset()
            assert await failed(_timeout("cursed", "1s")) == {web}
            assert await failed(_timeout("cursed", "2s")) == {web}
            assert await failed(dataplane("web", "cursed", "other")) == frozenset()
            assert set(rig.reconciler.failures) == {web}
        async with rig.connected("web") as web:
            assert await failed(dataplane("api", "other")) == frozenset()
            await rig.clusters(web, bool)

    run(test, policies=faulty)


def _timeout(service: str, value: str) -> Document:
    target = {"kind": "MeshService", "name": service}
    return document(
        "MeshTimeout", "slow", spec={"to": [{"targetRef": target, "default": {"connectionTimeout": value}}]}
    )


def test_a_write_does_not_concern_who_has_just_come_and_is_given_everything() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "backend"), dataplane("api", "backend"))
        async with rig.connected("api") as api:
            await rig.clusters(api, bool)
            async with rig.connected("web") as web:
                revision = await rig.store.write(Put(dataplane("web", "more")), Put(dataplane("api", "more")))
                assert await rig.reconciler.wait_for_revision(revision, within=10)
                assert await rig.clusters(web, lambda names: "more" in names)
                assert rig.reconciler.publications.audience([revision]).proxies == {api}

    run(test, pace=Pace(quiet=0.1))


def test_a_proxy_that_connects_costs_nothing_for_those_that_are_there() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, *(dataplane(name, "backend") for name in ("web", "other")))
        async with rig.connected("web") as web:
            await rig.clusters(web, bool)
            asked = _asked(rig.reconciler)
            async with rig.connected("other") as other:
                await rig.clusters(other, bool)
        assert asked == ["other"]

    run(test)


def _asked(reconciler: Reconciler) -> list[str]:
    """The proxies that are worked out from here on."""
    asked: list[str] = []
    compiler = reconciler.lane("default").turns.compiler
    proxy = compiler.proxy

    def noted(world: World, dataplane: Resource) -> CompiledProxy:
        asked.append(dataplane.name)
        return proxy(world, dataplane)

    compiler.proxy = noted  # type: ignore[method-assign]  # the real one, counted
    return asked


def test_a_world_that_was_succeeded_is_gone_without_anybody_collecting_garbage() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "backend"))
        async with rig.connected("web") as proxy:
            await rig.clusters(proxy, bool)
            worlds = []
            for number in range(5):
                worlds.append(ref(rig.reconciler.world))
                await rig.write(dataplane("web", f"s{number}"))
                await rig.clusters(proxy, lambda names, wanted=f"s{number}": wanted in names)  # type: ignore[misc]
        assert [world() for world in worlds[:-1]] == [None] * 4

    gc.collect()
    gc.disable()
    try:
        run(test)
    finally:
        gc.enable()


def test_of_a_proxy_whose_dataplane_is_gone_nothing_is_kept_once_it_has_left_too() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "backend"), dataplane("other", "backend"))
        async with rig.connected("other"):
            async with rig.connected("web") as proxy:
                assert await rig.clusters(proxy, bool) == {"backend", "localhost:80"}
                await rig.store.write(Delete(dataplane("web").key))
                await rig.reconciler.current()
                assert rig.hub.observer.newest(proxy) is not None
            await rig.write(dataplane("other"))
            await eventually_on_loop(lambda: rig.hub.observer.newest(proxy) is None)

    run(test)


def test_what_a_proxy_was_served_is_known_until_its_dataplane_goes() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(MESH, dataplane("web", "backend"))
        async with rig.connected("web") as proxy:
            await rig.clusters(proxy, bool)
        await rig.write(dataplane("web"))
        await rig.reconciler.current()
        assert rig.hub.publisher.knows(proxy)

        await rig.store.write(Delete(dataplane("web").key))
        await rig.reconciler.current()
        assert not rig.hub.publisher.knows(proxy)

    run(test)

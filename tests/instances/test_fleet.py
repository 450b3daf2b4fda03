"""What is known of all proxies together, and that it is found out once for all who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.serving.delivery import FleetDelta, ProxyState, ProxyStatus
from cp.serving.instances import fleet as fleet_module
from cp.serving.instances.fleet import Fleet
from cp.serving.instances.observers import FleetRound

KINDS = kinds(discover())
A, B, C = (Key("Dataplane", "default", name) for name in "abc")


def dataplane(name: str, **more: object) -> Document:
    networking = {"address": "127.0.0.1", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}]}
    data = {"type": "Dataplane", "mesh": "default", "name": name, "networking": networking, **more}
    return Document(Key("Dataplane", "default", name), data)


MESH = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
BUILTIN = {"address": "127.0.0.1", "gateway": {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}}
DELEGATED = {"address": "127.0.0.1", "gateway": {"tags": {"kuma.io/service": "edge"}}}


def world(*documents: Document, revision: int = 7) -> World:
    return World.of([MESH, *documents], KINDS, revision)


def status(name: str, state: ProxyState = ProxyState.ONLINE, since: float = 1.0) -> ProxyStatus:
    return ProxyStatus(f"default.{name}", state, since, "1.36.0")


def delta(
    source: str, *statuses: ProxyStatus, version: int = 1, revision: int = 7, is_whole: bool = True
) -> FleetDelta:
    return FleetDelta(source, version, revision, is_whole, statuses)


@dataclass
class Mesh:
    """Those who serve proxies, and what they say next."""

    world: World
    deltas: Mapping[str, Sequence[FleetDelta]] = field(default_factory=dict)
    silent: Sequence[str] = ()
    asked: list[Mapping[str, int]] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, versions: Mapping[str, int]) -> FleetRound:
        self.asked.append(versions)
        await self.may_answer.wait()
        return FleetRound(self.deltas, self.silent)

    def fleet(self, pause: float = 0.0) -> Fleet:
        self.may_answer.set()
        return Fleet(self.ask, lambda: self.world, pause)


def states(fleet: Fleet) -> dict[str, ProxyState]:
    return {proxy.key.name: proxy.state for proxy in fleet.proxies()}


def changed(fleet: Fleet, version: int) -> dict[str, ProxyState | None]:
    since = fleet.since(version)
    assert since is not None
    return {key.name: None if proxy is None else proxy.state for key, proxy in since.items()}


def test_each_dataplane_has_the_worst_of_what_those_say_who_serve_it() -> None:
    async def test() -> None:
        mesh = Mesh(world(dataplane("a"), dataplane("b"), dataplane("c")))
        offline = status("a", ProxyState.OFFLINE, 9.0)
        mesh.deltas = {
            "": [delta("x", offline, status("b")), delta("y", status("b", ProxyState.REFUSED, 5.0), revision=6)],
            "peer": [delta("z", status("a"))],
        }
        fleet = mesh.fleet()
        await fleet.refreshed()

        by_name = {proxy.key.name: proxy for proxy in fleet.proxies()}
        assert states(fleet) == {"a": ProxyState.ONLINE, "b": ProxyState.REFUSED, "c": ProxyState.OFFLINE}
        assert (by_name["a"].instance, by_name["b"].since, by_name["c"].since) == ("peer", 5.0, None)
        assert fleet.revision == 6

    asyncio.run(test())


def test_what_has_changed_since_a_version_is_told_and_nothing_else() -> None:
    async def test() -> None:
        mesh = Mesh(world(dataplane("a"), dataplane("b")), {"": [delta("x", status("a"), status("b"))]})
        fleet = mesh.fleet()
        await fleet.refreshed()
        first = fleet.version
        mesh.deltas = {"": [delta("x", status("a", ProxyState.OUT_OF_SYNC), version=2, is_whole=False)]}
        await fleet.refreshed()
        second = fleet.version
        mesh.deltas, mesh.world = {"": [delta("x", version=3, is_whole=False)]}, world(dataplane("a"), dataplane("c"))
        await fleet.refreshed()

        assert mesh.asked == [{}, {"x": 1}, {"x": 2}]
        assert changed(fleet, first) == {"a": ProxyState.OUT_OF_SYNC, "b": None, "c": ProxyState.OFFLINE}
        assert changed(fleet, second) == {"b": None, "c": ProxyState.OFFLINE}
        assert changed(fleet, fleet.version) == {}
        assert fleet.since(fleet.version + 1) is None

    asyncio.run(test())


def test_where_somebody_is_silent_the_proxies_that_nobody_has_are_unknown() -> None:
    async def test() -> None:
        mesh = Mesh(world(dataplane("a"), dataplane("b"), dataplane("c")))
        own = [delta("x", status("a"))]
        mesh.deltas = {"": own, "peer": [delta("z", status("b"))]}
        fleet = mesh.fleet()
        await fleet.refreshed()
        mesh.deltas, mesh.silent = {"": [delta("x", version=2, is_whole=False)]}, ["peer"]
        await fleet.refreshed()
        assert states(fleet) == {"a": ProxyState.ONLINE, "b": ProxyState.UNKNOWN, "c": ProxyState.UNKNOWN}
        assert fleet.silent == 1

        mesh.deltas, mesh.silent = {"": [delta("x", version=3, is_whole=False)], "peer": [delta("z", status("b"))]}, ()
        await fleet.refreshed()
        assert states(fleet) == {"a": ProxyState.ONLINE, "b": ProxyState.ONLINE, "c": ProxyState.OFFLINE}
        assert mesh.asked[-1] == {"x": 2}, "what is known of who was silent is void"

    asyncio.run(test())


def test_what_is_served_is_what_all_serve_who_answer() -> None:
    async def test() -> None:
        mesh = Mesh(world(dataplane("a")), {"": [delta("x", revision=5), delta("y", revision=6)]})
        fleet = mesh.fleet()
        await fleet.refreshed()

        assert fleet.revision == 5

    asyncio.run(test())


def test_no_proxy_is_in_sync_with_what_one_serves_that_is_behind() -> None:
    async def test() -> None:
        mesh = Mesh(world(dataplane("a"), dataplane("b"), revision=7))
        mesh.deltas = {"": [delta("x", status("a"))], "peer": [delta("z", status("b"), revision=6)]}
        fleet = mesh.fleet()
        await fleet.refreshed()
        assert states(fleet) == {"a": ProxyState.ONLINE, "b": ProxyState.OUT_OF_SYNC}
        assert [proxy.since for proxy in fleet.proxies()] == [1.0, None], "nobody has said since when"

        before = fleet.version
        mesh.deltas = {"": [delta("x", is_whole=False)], "peer": [delta("z", is_whole=False, revision=7)]}
        await fleet.refreshed()
        assert changed(fleet, before) == {"b": ProxyState.ONLINE}

    asyncio.run(test())


def test_who_serves_a_write_a_moment_later_is_not_behind() -> None:
    async def test() -> None:
        mesh = Mesh(world(dataplane("a"), revision=7), {"peer": [delta("z", status("a"))]})
        fleet = mesh.fleet()
        await fleet.refreshed()
        mesh.world, mesh.deltas = world(dataplane("a"), revision=8), {"peer": [delta("z", is_whole=False)]}
        await fleet.refreshed()
        assert states(fleet) == {"a": ProxyState.ONLINE}

        impatient = Fleet(mesh.ask, lambda: mesh.world, 0.0, grace=0.0)
        mesh.deltas = {"peer": [delta("z", status("a"))]}
        await impatient.refreshed()
        assert states(impatient) == {"a": ProxyState.OUT_OF_SYNC}

    asyncio.run(test())


def test_a_proxy_is_named_for_what_it_is_and_counts_what_is_wrong_with_its_dataplane() -> None:
    async def test() -> None:
        grpc = dataplane("c", labels={"koguma.io/client": "grpc", "kuma.io/zone": "east"})
        edges = (dataplane("b", networking=BUILTIN), dataplane("d", networking=DELEGATED))
        mesh = Mesh(world(dataplane("a"), *edges, grpc))
        fleet = mesh.fleet()
        await fleet.refreshed()
        by_name = {proxy.key.name: proxy for proxy in fleet.proxies()}

        assert {name: proxy.kind for name, proxy in by_name.items()} == {
            "a": "sidecar",
            "b": "builtin gateway",
            "c": "gRPC client",
            "d": "delegated gateway",
        }
        assert by_name["c"].zone == "east"
        assert by_name["a"].findings == 0

        broken = Document(A, {**dataplane("a").data, "networking": {"address": "127.0.0.1", "nonsense": 1}})
        mesh.world = mesh.world.next({A: broken}, 8, ())
        await fleet.refreshed()
        assert {proxy.key.name: proxy.findings for proxy in fleet.proxies()}["a"] > 0

    asyncio.run(test())


def test_however_many_ask_it_is_found_out_once() -> None:
    async def test() -> None:
        mesh = Mesh(world(dataplane("a")), {"": [delta("x", status("a"))]})
        fleet = mesh.fleet(pause=60.0)
        await asyncio.gather(*(fleet.refreshed() for _ in range(50)))
        await fleet.refreshed()

        assert len(mesh.asked) == 1

    asyncio.run(test())


def test_who_asks_after_a_write_sees_it() -> None:
    async def test() -> None:
        mesh = Mesh(world(dataplane("a")), {"": [delta("x")]})
        fleet = mesh.fleet(pause=60.0)
        await fleet.refreshed()
        mesh.world = world(dataplane("a"), dataplane("b"))
        await fleet.refreshed()
        assert states(fleet).keys() == {"a"}

        await fleet.refreshed_with_world()

        assert states(fleet).keys() == {"a", "b"}

    asyncio.run(test())


def test_who_goes_away_while_it_is_found_out_takes_nothing_from_the_others() -> None:
    async def test() -> None:
        mesh = Mesh(world(dataplane("a")), {"": [delta("x", status("a"))]})
        fleet = mesh.fleet()
        mesh.may_answer.clear()
        async with asyncio.TaskGroup() as group:
            first, _ = (group.create_task(fleet.refreshed()) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.sleep(0)
            mesh.may_answer.set()

        assert states(fleet) == {"a": ProxyState.ONLINE}
        assert len(mesh.asked) == 1

    asyncio.run(test())


def test_of_what_is_gone_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "_MOST_GONE", 1)

    async def test() -> None:
        mesh = Mesh(world(dataplane("a"), dataplane("b"), dataplane("c")), {"": [delta("x")]})
        fleet = mesh.fleet()
        await fleet.refreshed()
        first = fleet.version
        for documents in ((dataplane("a"), dataplane("b")), (dataplane("a"),)):
            mesh.world = world(*documents)
            await fleet.refreshed()

        assert fleet.since(first) is None, "that c is gone is forgotten"
        assert changed(fleet, first + 1) == {"b": None}

    asyncio.run(test())


def test_who_asks_while_it_is_found_out_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "_AT_ONCE", 1)

    async def test() -> None:
        mesh = Mesh(world(dataplane("a"), dataplane("b"), dataplane("c")), {"": [delta("x")]})
        fleet = mesh.fleet()
        await fleet.refreshed()
        version, told = fleet.version, dict[str, ProxyState | None]()
        mesh.deltas = {"": [delta("x", status("a"), status("b"), status("c"), version=2)]}
        async with asyncio.TaskGroup() as group:
            refreshing = group.create_task(fleet.refreshed())
            while not refreshing.done():
                told |= changed(fleet, version)
                version = fleet.version
                await asyncio.sleep(0)
        told |= changed(fleet, version)

        assert told == dict.fromkeys("abc", ProxyState.ONLINE)

    asyncio.run(test())


def test_a_world_of_an_older_copy_of_the_store_makes_another_fleet() -> None:
    async def test() -> None:
        mesh = Mesh(world(dataplane("a")), {"": [delta("x")]})
        fleet = mesh.fleet()
        await fleet.refreshed()
        first = fleet.id
        mesh.world = world(dataplane("a"), revision=8)
        await fleet.refreshed()
        assert fleet.id == first
        mesh.world = world(dataplane("a"), revision=6)
        await fleet.refreshed()

        assert fleet.id != first

    asyncio.run(test())

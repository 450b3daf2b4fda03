"""The newest snapshot of each proxy, and nobody woken for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from cp.ads.connection import Connection, drain_time
from cp.ads.hub import REMEMBERED, Hub
from cp.ads.session.messages import Nack, NackedResource, Node, ResponseCounts, TypeStatus
from cp.model.registration import DRAIN_TIME, RESOURCE
from cp.translate.packing import CLUSTER
from cp.translate.snapshot import Snapshot
from tests.ads.content import cluster, snapshot

WITHIN = 10


class Client:
    """A session as the hub sees it."""

    def __init__(self) -> None:
        self.at: Snapshot | None = None
        self.is_settled = True
        self.nacks: tuple[Nack, ...] = ()

    @property
    def statuses(self) -> tuple[TypeStatus, ...]:
        held = tuple(NackedResource(name, nack.version, "") for nack in self.nacks for name in nack.names)
        return (TypeStatus(CLUSTER, "1", "1", self.nacks, self.at is not None, 1, 1, 1, held),)

    @property
    def tallies(self) -> tuple[ResponseCounts, ...]:
        return (ResponseCounts(CLUSTER, 3, 2, 1),)

    def has_answered_all(self, snapshot: Snapshot) -> bool:
        return self.is_at(snapshot) or len(self.nacks) > 0

    def asks_for(self, type_url: str, name: str) -> bool:
        return type_url == CLUSTER

    def is_at(self, snapshot: Snapshot) -> bool:
        return self.at is snapshot


def seat(proxy: str, client: Client | None = None, wake: Callable[[], Any] = lambda: None) -> Connection:
    return Connection(Node(proxy), "delta", client or Client(), wake)


def test_a_change_wakes_the_streams_of_its_proxy_and_no_others() -> None:
    hub, woken = Hub(), list[str]()
    with (
        hub.streams.connected(seat("a", wake=lambda: woken.append("a"))),
        hub.streams.connected(seat("a", wake=lambda: woken.append("a again"))),
        hub.streams.connected(seat("b", wake=lambda: woken.append("b"))),
    ):
        assert hub.publisher.publish("a", snapshot(cluster("x")))

    assert woken == ["a", "a again"]


def test_equal_content_wakes_nobody() -> None:
    hub, woken = Hub(), list[str]()
    with hub.streams.connected(seat("a", wake=lambda: woken.append("a"))):
        first = snapshot(cluster("x"))
        hub.publisher.publish("a", first)

        assert not hub.publisher.publish("a", snapshot(cluster("x")))
        assert hub.observer.newest("a") is first

    assert woken == ["a"]


def test_what_was_published_before_is_no_answer_to_who_comes_back_until_it_is_confirmed() -> None:
    hub, woken, first = Hub(), list[str](), snapshot(cluster("x"))
    with hub.streams.connected(seat("a")):
        hub.publisher.publish("a", first)
    with hub.streams.connected(seat("a", wake=lambda: woken.append("a"))):
        assert (hub.observer.newest("a"), hub.observer.is_in_sync("a")) == (None, False)

        hub.publisher.publish("a", snapshot(cluster("x")))

        assert hub.observer.newest("a") is first
    assert woken == ["a"]


@pytest.mark.parametrize("was_served", [True, False])
def test_what_is_published_to_who_has_left_is_no_answer_when_it_comes_back(was_served: bool) -> None:
    hub = Hub()
    with hub.streams.connected(seat("a")):
        if was_served:
            hub.publisher.publish("a", snapshot(cluster("x")))

    hub.publisher.publish("a", snapshot(cluster("y")))
    hub.publisher.confirm("a")

    with hub.streams.connected(seat("a")):
        assert hub.observer.newest("a") is None
        hub.publisher.confirm("a")
        assert hub.observer.newest("a") == snapshot(cluster("y"))


def test_who_computes_hears_who_connected_since_it_last_asked() -> None:
    async def arrivals() -> list[list[str]]:
        hub = Hub()
        with hub.streams.connected(seat("a")), hub.streams.connected(seat("b")):
            first = sorted(await hub.publisher.arrivals())
            with hub.streams.connected(seat("c")):
                return [first, sorted(await asyncio.wait_for(hub.publisher.arrivals(), WITHIN))]

    assert asyncio.run(arrivals()) == [["a", "b"], ["c"]]


def test_a_proxy_is_in_sync_when_all_its_streams_have_the_newest() -> None:
    hub, one, other = Hub(), Client(), Client()
    newest = snapshot(cluster("x"))
    assert not hub.observer.is_in_sync("a")
    with hub.streams.connected(seat("a", one)), hub.streams.connected(seat("a", other)):
        assert not hub.observer.is_in_sync("a")
        hub.publisher.publish("a", newest)
        one.at = newest
        assert not hub.observer.is_in_sync("a")

        other.at = newest
        assert hub.observer.is_in_sync("a")

    assert not hub.observer.is_in_sync("a")


def test_a_watch_wakes_when_an_answer_brings_a_proxy_in_sync() -> None:
    async def standings() -> list[bool]:
        hub, client, newest = Hub(), Client(), snapshot(cluster("x"))
        hub.publisher.publish("a", newest)
        seen = list[bool]()
        with hub.observer.watch() as watch, hub.streams.connected(seat("a", client)) as taken:
            await watch.news()
            for at in (None, newest):
                client.at = at
                hub.streams.answered(taken, CLUSTER)
                assert await watch.news() == {"a"}
                seen.append(hub.observer.is_in_sync("a"))
        return seen

    assert asyncio.run(asyncio.wait_for(standings(), WITHIN)) == [False, True]


def test_nacks_of_a_stream_are_there_to_read() -> None:
    hub, client = Hub(), Client()
    client.nacks = (Nack("1", "no", ("x",)),)
    with hub.streams.connected(seat("a", client)):
        (found,) = hub.observer.connections["a"]

    assert found.nacks == client.nacks


def test_a_proxy_that_left_in_the_middle_of_something_is_not_believed_until_it_left_in_order() -> None:
    hub, client = Hub(), Client()
    with hub.streams.connected(seat("a", client)):
        client.is_settled = False
        assert not hub.streams.trusts_versions("a")
    assert not hub.streams.trusts_versions("a")

    with hub.streams.connected(seat("a", Client())):
        pass
    assert hub.streams.trusts_versions("a")


def test_it_is_known_since_when_a_proxy_is_in_sync_and_since_when_not() -> None:
    times = iter(range(1, 10))
    hub, client, newest = Hub(clock=lambda: float(next(times))), Client(), snapshot(cluster("x"))
    assert hub.observer.since("a") is None
    with hub.streams.connected(seat("a", client)) as taken:
        assert hub.observer.since("a") == 1
        hub.publisher.publish("a", newest)
        assert hub.observer.since("a") == 2

        client.at = newest
        hub.streams.answered(taken, CLUSTER)
        assert hub.observer.since("a") == 3


def test_a_forgotten_proxy_has_no_snapshot() -> None:
    hub = Hub()
    hub.publisher.publish("a", snapshot())

    hub.publisher.forget("a")

    assert hub.observer.newest("a") is None


def observed(hub: Hub) -> float:
    (family,) = hub.metrics.change_to_ack.collect()
    return next(sample.value for sample in family.samples if sample.name.endswith("_count"))


def test_it_is_measured_how_long_a_change_takes_and_not_how_long_a_proxy_takes_to_connect() -> None:
    hub, client = Hub(), Client()
    first, second = snapshot(cluster("x")), snapshot(cluster("y"))
    with hub.streams.connected(seat("a", client)) as taken:
        hub.publisher.publish("a", first)
        client.at = first
        hub.streams.answered(taken, CLUSTER)
        assert observed(hub) == 0

        hub.publisher.publish("a", second, changed=0.0)
        hub.streams.answered(taken, CLUSTER)
        assert observed(hub) == 0
        client.at = second
        hub.streams.answered(taken, CLUSTER)
        hub.streams.answered(taken, CLUSTER)
        assert observed(hub) == 1


def test_a_change_of_which_a_proxy_needs_nothing_is_not_measured_with_the_next_one() -> None:
    hub, client = Hub(), Client()
    first, second = snapshot(cluster("x")), snapshot(cluster("y"))
    with hub.streams.connected(seat("a", client)):
        hub.publisher.publish("a", first, changed=1.0)
        client.at = first  # without a word: it was sent nothing
        hub.publisher.publish("a", second, changed=2.0)

        assert hub.publisher._state.changed_at == {"a": 2.0}


def test_proxies_are_counted_by_where_they_stand() -> None:
    hub, newest = Hub(), snapshot(cluster("x"))
    clients = {name: Client() for name in ("has it", "is behind", "refuses")}
    clients["has it"].at = newest
    clients["refuses"].nacks = (Nack("1", "no", ("x",)),)
    with ExitStack() as seats:
        for name, client in clients.items():
            hub.publisher.publish(name, newest)
            seats.enter_context(hub.streams.connected(seat(name, client)))

        assert hub.observer.standings() == {"in sync": 1, "behind": 1, "refusing": 1}
        assert hub.observer.stream_counts() == {"delta": 3}


def test_who_watches_hears_of_everybody_who_comes_goes_or_answers() -> None:
    async def heard() -> list[set[str]]:
        hub, found = Hub(), list[set[str]]()
        with hub.observer.watch() as watch:
            with hub.streams.connected(seat("a")) as taken, hub.streams.connected(seat("b")):
                found.append(set(await watch.news()))
                hub.streams.answered(taken, CLUSTER)
                found.append(set(await watch.news()))
            found.append(set(await watch.news()))
        with hub.streams.connected(seat("c")):
            assert not watch._proxies
        return found

    assert asyncio.run(asyncio.wait_for(heard(), WITHIN)) == [{"a", "b"}, {"a"}, {"a", "b"}]


def test_it_is_told_who_refused_something_since_one_last_asked() -> None:
    async def told() -> list[set[str]]:
        hub, client = Hub(), Client()
        with hub.streams.connected(seat("a", client)) as a, hub.streams.connected(seat("b")) as b:
            hub.streams.answered(b, CLUSTER)
            client.nacks = (Nack("1", "no", ("x",)),)
            hub.streams.answered(a, CLUSTER, client.nacks[0])
            first = set(await hub.observer.nacking())
            hub.streams.answered(b, CLUSTER, Nack("1", "no", ()))
            return [first, set(await hub.observer.nacking())]

    assert asyncio.run(asyncio.wait_for(told(), WITHIN)) == [{"a"}, {"b"}]


def test_a_proxy_is_behind_since_the_first_change_that_it_has_not_confirmed() -> None:
    times = iter(range(1, 20))
    hub, client = Hub(clock=lambda: float(next(times))), Client()
    first, second, third = (snapshot(cluster("x", revision=number)) for number in range(3))
    with hub.streams.connected(seat("a", client)) as taken:
        hub.publisher.publish("a", first)
        client.at = first
        hub.streams.answered(taken, CLUSTER)
        hub.publisher.publish("a", second)
        behind = hub.observer.since("a")
        hub.publisher.publish("a", third)
        assert hub.observer.since("a") == behind

        client.at = third
        hub.streams.caught_up(taken)
        hub.publisher.publish("a", first)
        assert (hub.observer.since("a") or 0) > (behind or 0)


def test_of_who_has_left_it_is_remembered_when_and_not_for_more_than_so_many() -> None:
    times = iter(range(1, 10 * REMEMBERED))
    hub = Hub(clock=lambda: float(next(times)))
    with hub.streams.connected(seat("a")):
        assert hub.observer.last_connection("a") is None
    last = hub.observer.last_connection("a")
    assert last is not None
    assert (last.since, last.until, last.tallies[0].accepted) == (1.0, 2.0, 2)

    for number in range(REMEMBERED):
        with hub.streams.connected(seat(f"p{number}")):
            pass

    assert hub.observer.last_connection("a") is None
    assert hub.observer.last_connection("p0") is not None


def test_trouble_with_a_resource_lasts_until_a_version_of_it_is_accepted() -> None:
    times = iter(range(1, 20))
    hub, client = Hub(clock=lambda: float(next(times))), Client()
    with hub.streams.connected(seat("a", client)) as taken:
        client.nacks = (Nack("1", "no", ("x",)),)
        hub.streams.answered(taken, CLUSTER, client.nacks[0])
        began = dict(taken.trouble_since)
        client.nacks = (Nack("2", "no again", ("x",)),)
        hub.streams.answered(taken, CLUSTER, client.nacks[0])
        assert taken.trouble_since == began == {(CLUSTER, "x"): 2.0}
        assert list(taken.nacked_at) == list(client.nacks)

        client.nacks = ()
        hub.streams.answered(taken, CLUSTER)
        assert not taken.trouble_since
        assert not taken.nacked_at


def test_what_is_told_of_a_connection_is_without_the_dataplane_that_it_brings() -> None:
    hub = Hub()
    node = Node("a", metadata={"version": {"kumaDp": "2.14"}, RESOURCE: "x" * 60_000})
    connection = Connection(node, "sotw", seat("a").session, lambda: None)
    with hub.streams.connected(connection):
        assert connection.record().node.metadata == {"version": {"kumaDp": "2.14"}}
        assert connection.node is node

    last = hub.observer.last_connection("a")
    assert last is not None
    assert last.node.metadata == {"version": {"kumaDp": "2.14"}}


# --- what listeners need until they have drained ---


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def clusters(hub: Hub, proxy: str = "a") -> list[str]:
    newest = hub.observer.newest(proxy)
    return [] if newest is None else sorted(newest.names(CLUSTER))


def edited(hub: Hub, client: Client, connection: Connection) -> None:
    """A proxy that called `old` calls `new`, and has ACKed that."""
    for name in ("old", "new"):
        hub.publisher.publish("a", snapshot(cluster(name)))
        client.at = hub.observer.newest("a")
        hub.streams.caught_up(connection)


def test_cluster_is_removed_once_listeners_have_drained() -> None:
    async def removed() -> list[list[str]]:
        clock, stopwatch, client, woken = Clock(), Clock(), Client(), asyncio.Event()
        hub, connection = Hub(clock, drain_time=60, stopwatch=stopwatch), seat("a", client, woken.set)
        expiry = asyncio.get_running_loop().create_task(hub.publisher.end_drains())
        with hub.streams.connected(connection):
            edited(hub, client, connection)
            kept = clusters(hub)
            assert hub.observer.is_in_sync("a")
            clock.now += 1_000_000
            (resource,) = hub.observer.draining("a")
            assert (resource.name, 60 < (resource.until or 0) - clock.now < 120) == ("old", True)
            assert hub.observer.draining_counts() == {"clusters": 1, "endpoints": 0, "routes": 0}
            woken.clear()
            stopwatch.now += 120
            await asyncio.wait_for(woken.wait(), WITHIN)
            assert not hub.observer.is_in_sync("a")
            expiry.cancel()
            return [kept, clusters(hub)]

    assert asyncio.run(removed()) == [["new", "old"], ["new"]]


def test_equal_content_is_not_published_while_something_drains() -> None:
    hub, client = Hub(drain_time=60), Client()
    connection = seat("a", client)
    with hub.streams.connected(connection):
        edited(hub, client, connection)

        assert not hub.publisher.publish("a", snapshot(cluster("new")))
    assert hub.publisher.knows("a")


@pytest.mark.parametrize(("told", "kept"), [({DRAIN_TIME: 5.0}, True), ({DRAIN_TIME: 0.0}, False), ({}, True)])
def test_node_says_whether_its_listeners_drain(told: dict[str, float], kept: bool) -> None:  # a case
    hub, client = Hub(drain_time=600), Client()
    connection = Connection(Node("a", metadata=told), "delta", client, lambda: None)
    with hub.streams.connected(connection):
        edited(hub, client, connection)

        assert clusters(hub) == (["new", "old"] if kept else ["new"])


@pytest.mark.parametrize(("said", "seconds"), [(5, 5.0), (-1, 0.0), (1e9, 3600.0), ("long", 600), (None, 600)])
def test_drain_time_of_a_node_is_bounded(said: Any, seconds: float) -> None:
    assert drain_time(Node("a", metadata={DRAIN_TIME: said}), 600) == seconds


@pytest.mark.parametrize("is_late", [False, True])
def test_nacked_cluster_is_not_kept(*, is_late: bool) -> None:
    """A proxy would otherwise go on to NACK what its operator has removed."""
    hub, client = Hub(drain_time=60), Client()
    connection, nack = seat("a", client), Nack("1", "no", ("old",))
    with hub.streams.connected(connection):
        hub.publisher.publish("a", snapshot(cluster("old")))
        client.nacks = () if is_late else (nack,)
        hub.publisher.publish("a", snapshot(cluster("new")))
        assert clusters(hub) == (["new", "old"] if is_late else ["new"])

        client.nacks = (nack,)
        hub.streams.answered(connection, CLUSTER, nack)

        assert clusters(hub) == ["new"]


def test_proxy_that_starts_again_needs_nothing_of_before() -> None:
    hub, client = Hub(drain_time=60), Client()
    connection = seat("a", client)
    with hub.streams.connected(connection):
        edited(hub, client, connection)
        with hub.streams.connected(seat("a")) as second:
            hub.streams.note_start(second)
            assert clusters(hub) == ["new", "old"], "the first one still drains"
    with hub.streams.connected(seat("a")) as restarted:
        hub.publisher.confirm("a")
        hub.streams.note_start(restarted)
        assert clusters(hub) == ["new"]


def test_proxy_that_reconnects_keeps_what_drains() -> None:
    hub, client = Hub(drain_time=60), Client()
    connection = seat("a", client)
    with hub.streams.connected(connection):
        edited(hub, client, connection)
    with hub.streams.connected(seat("a")):
        hub.publisher.publish("a", snapshot(cluster("newer")))

        assert clusters(hub) == ["new", "newer", "old"]
        hub.publisher.forget("a")
        assert hub.observer.draining("a") == ()

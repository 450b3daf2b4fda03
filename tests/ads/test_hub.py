"""The newest snapshot of each proxy, and nobody woken for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from cp.ads.hub import REMEMBERED, Connection, Hub
from cp.ads.session.messages import Nack, NackedResource, Node, ResponseCounts, TypeStatus
from cp.translate.packing import CLUSTER
from cp.translate.snapshot import Snapshot
from tests.ads.content import cluster, snapshot

WITHIN = 10


class Client:
    """A session as the hub sees it."""

    def __init__(self) -> None:
        self.at: Snapshot | None = None
        self.is_settled = True
        self.refused: tuple[Nack, ...] = ()

    @property
    def statuses(self) -> tuple[TypeStatus, ...]:
        held = tuple(NackedResource(name, nack.version, "") for nack in self.refused for name in nack.names)
        return (TypeStatus(CLUSTER, "1", "1", self.refused, self.at is not None, 1, 1, 1, held),)

    @property
    def tallies(self) -> tuple[ResponseCounts, ...]:
        return (ResponseCounts(CLUSTER, 3, 2, 1),)

    def has_answered_all(self, snapshot: Snapshot) -> bool:
        return self.is_at(snapshot) or len(self.refused) > 0

    def is_at(self, snapshot: Snapshot) -> bool:
        return self.at is snapshot


def seat(proxy: str, client: Client | None = None, wake: Callable[[], Any] = lambda: None) -> Connection:
    return Connection(Node(proxy), "delta", client or Client(), wake)


def test_a_change_wakes_the_streams_of_its_proxy_and_no_others() -> None:
    hub, woken = Hub(), list[str]()
    with (
        hub.seat(seat("a", wake=lambda: woken.append("a"))),
        hub.seat(seat("a", wake=lambda: woken.append("a again"))),
        hub.seat(seat("b", wake=lambda: woken.append("b"))),
    ):
        assert hub.publish("a", snapshot(cluster("x")))

    assert woken == ["a", "a again"]


def test_equal_content_wakes_nobody() -> None:
    hub, woken = Hub(), list[str]()
    with hub.seat(seat("a", wake=lambda: woken.append("a"))):
        first = snapshot(cluster("x"))
        hub.publish("a", first)

        assert not hub.publish("a", snapshot(cluster("x")))
        assert hub.newest("a") is first

    assert woken == ["a"]


def test_what_was_published_before_is_no_answer_to_who_comes_back_until_it_is_confirmed() -> None:
    hub, woken, first = Hub(), list[str](), snapshot(cluster("x"))
    with hub.seat(seat("a")):
        hub.publish("a", first)
    with hub.seat(seat("a", wake=lambda: woken.append("a"))):
        assert (hub.newest("a"), hub.is_in_sync("a")) == (None, False)

        hub.publish("a", snapshot(cluster("x")))

        assert hub.newest("a") is first
    assert woken == ["a"]


@pytest.mark.parametrize("was_served", [True, False])
def test_what_is_published_to_who_has_left_is_no_answer_when_it_comes_back(was_served: bool) -> None:
    hub = Hub()
    with hub.seat(seat("a")):
        if was_served:
            hub.publish("a", snapshot(cluster("x")))

    hub.publish("a", snapshot(cluster("y")))
    hub.confirm("a")

    with hub.seat(seat("a")):
        assert hub.newest("a") is None
        hub.confirm("a")
        assert hub.newest("a") == snapshot(cluster("y"))


def test_who_computes_hears_who_connected_since_it_last_asked() -> None:
    async def arrivals() -> list[list[str]]:
        hub = Hub()
        with hub.seat(seat("a")), hub.seat(seat("b")):
            first = sorted(await hub.arrivals())
            with hub.seat(seat("c")):
                return [first, sorted(await asyncio.wait_for(hub.arrivals(), WITHIN))]

    assert asyncio.run(arrivals()) == [["a", "b"], ["c"]]


def test_a_proxy_is_in_sync_when_all_its_streams_have_the_newest() -> None:
    hub, one, other = Hub(), Client(), Client()
    newest = snapshot(cluster("x"))
    assert not hub.is_in_sync("a")
    with hub.seat(seat("a", one)), hub.seat(seat("a", other)):
        assert not hub.is_in_sync("a")
        hub.publish("a", newest)
        one.at = newest
        assert not hub.is_in_sync("a")

        other.at = newest
        assert hub.is_in_sync("a")

    assert not hub.is_in_sync("a")


def test_waiting_ends_when_the_last_answer_is_there() -> None:
    async def waits() -> bool:
        hub, client, newest = Hub(), Client(), snapshot(cluster("x"))
        hub.publish("a", newest)
        with hub.seat(seat("a", client)):
            async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(hub.until(lambda: hub.is_in_sync("a")))
                await asyncio.sleep(0)
                hub.answered(hub.of("a")[0], CLUSTER)
                await asyncio.sleep(0)
                early = waiting.done()
                client.at = newest
                hub.answered(hub.of("a")[0], CLUSTER)
        return early

    assert asyncio.run(waits()) is False


def test_waiting_ends_when_who_is_waited_for_goes() -> None:
    async def waits() -> None:
        hub = Hub()
        async with asyncio.timeout(WITHIN), asyncio.TaskGroup() as tasks:
            with hub.seat(seat("a")):
                tasks.create_task(hub.until(lambda: not hub.of("a")))
                await asyncio.sleep(0)

    asyncio.run(waits())


def test_refusals_of_a_stream_are_there_to_read() -> None:
    hub, client = Hub(), Client()
    client.refused = (Nack("1", "no", ("x",)),)
    with hub.seat(seat("a", client)):
        (found,) = hub.seats["a"]

    assert found.refusals == client.refused


def test_a_proxy_that_left_in_the_middle_of_something_is_not_believed_until_it_left_in_order() -> None:
    hub, client = Hub(), Client()
    with hub.seat(seat("a", client)):
        client.is_settled = False
        assert not hub.trusts("a")
    assert not hub.trusts("a")

    with hub.seat(seat("a", Client())):
        pass
    assert hub.trusts("a")


def test_it_is_known_since_when_a_proxy_is_in_sync_and_since_when_not() -> None:
    times = iter(range(1, 10))
    hub, client, newest = Hub(clock=lambda: float(next(times))), Client(), snapshot(cluster("x"))
    assert hub.since("a") is None
    with hub.seat(seat("a", client)) as taken:
        assert hub.since("a") == 1
        hub.publish("a", newest)
        assert hub.since("a") == 2

        client.at = newest
        hub.answered(taken, CLUSTER)
        assert hub.since("a") == 3


def test_a_forgotten_proxy_has_no_snapshot() -> None:
    hub = Hub()
    hub.publish("a", snapshot())

    hub.forget("a")

    assert hub.newest("a") is None


def observed(hub: Hub) -> float:
    (family,) = hub.metrics.change_to_ack.collect()
    return next(sample.value for sample in family.samples if sample.name.endswith("_count"))


def test_it_is_measured_how_long_a_change_takes_and_not_how_long_a_proxy_takes_to_connect() -> None:
    hub, client = Hub(), Client()
    first, second = snapshot(cluster("x")), snapshot(cluster("y"))
    with hub.seat(seat("a", client)) as taken:
        hub.publish("a", first)
        client.at = first
        hub.answered(taken, CLUSTER)
        assert observed(hub) == 0

        hub.publish("a", second, changed=0.0)
        hub.answered(taken, CLUSTER)
        assert observed(hub) == 0
        client.at = second
        hub.answered(taken, CLUSTER)
        hub.answered(taken, CLUSTER)
        assert observed(hub) == 1


def test_a_change_of_which_a_proxy_needs_nothing_is_not_measured_with_the_next_one() -> None:
    hub, client = Hub(), Client()
    first, second = snapshot(cluster("x")), snapshot(cluster("y"))
    with hub.seat(seat("a", client)):
        hub.publish("a", first, changed=1.0)
        client.at = first  # without a word: it was sent nothing
        hub.publish("a", second, changed=2.0)

        assert hub._under_way == {"a": 2.0}


def test_proxies_are_counted_by_where_they_stand() -> None:
    hub, newest = Hub(), snapshot(cluster("x"))
    clients = {name: Client() for name in ("has it", "is behind", "refuses")}
    clients["has it"].at = newest
    clients["refuses"].refused = (Nack("1", "no", ("x",)),)
    with ExitStack() as seats:
        for name, client in clients.items():
            hub.publish(name, newest)
            seats.enter_context(hub.seat(seat(name, client)))

        assert hub.standings() == {"in sync": 1, "behind": 1, "refusing": 1}
        assert hub.streams() == {"delta": 3}


def test_who_watches_hears_of_everybody_who_comes_goes_or_answers() -> None:
    async def heard() -> list[set[str]]:
        hub, found = Hub(), list[set[str]]()
        with hub.watch() as watch:
            with hub.seat(seat("a")) as taken, hub.seat(seat("b")):
                found.append(set(await watch.news()))
                hub.answered(taken, CLUSTER)
                found.append(set(await watch.news()))
            found.append(set(await watch.news()))
        with hub.seat(seat("c")):
            assert not watch._proxies
        return found

    assert asyncio.run(asyncio.wait_for(heard(), WITHIN)) == [{"a", "b"}, {"a"}, {"a", "b"}]


def test_it_is_told_who_refused_something_since_one_last_asked() -> None:
    async def told() -> list[set[str]]:
        hub, client = Hub(), Client()
        with hub.seat(seat("a", client)) as a, hub.seat(seat("b")) as b:
            hub.answered(b, CLUSTER)
            client.refused = (Nack("1", "no", ("x",)),)
            hub.answered(a, CLUSTER, client.refused[0])
            first = set(await hub.refusing())
            hub.answered(b, CLUSTER, Nack("1", "no", ()))
            return [first, set(await hub.refusing())]

    assert asyncio.run(asyncio.wait_for(told(), WITHIN)) == [{"a"}, {"b"}]


def test_a_proxy_is_behind_since_the_first_change_that_it_has_not_confirmed() -> None:
    times = iter(range(1, 20))
    hub, client = Hub(clock=lambda: float(next(times))), Client()
    first, second, third = (snapshot(cluster("x", revision=number)) for number in range(3))
    with hub.seat(seat("a", client)) as taken:
        hub.publish("a", first)
        client.at = first
        hub.answered(taken, CLUSTER)
        hub.publish("a", second)
        behind = hub.since("a")
        hub.publish("a", third)
        assert hub.since("a") == behind

        client.at = third
        hub.caught_up(taken)
        hub.publish("a", first)
        assert (hub.since("a") or 0) > (behind or 0)


def test_of_who_has_left_it_is_remembered_when_and_not_for_more_than_so_many() -> None:
    times = iter(range(1, 10 * REMEMBERED))
    hub = Hub(clock=lambda: float(next(times)))
    with hub.seat(seat("a")):
        assert hub.left("a") is None
    left = hub.left("a")
    assert left is not None
    assert (left.since, left.until, left.tallies[0].accepted) == (1.0, 2.0, 2)

    for number in range(REMEMBERED):
        with hub.seat(seat(f"p{number}")):
            pass

    assert hub.left("a") is None
    assert hub.left("p0") is not None


def test_trouble_with_a_resource_lasts_until_a_version_of_it_is_accepted() -> None:
    times = iter(range(1, 20))
    hub, client = Hub(clock=lambda: float(next(times))), Client()
    with hub.seat(seat("a", client)) as taken:
        client.refused = (Nack("1", "no", ("x",)),)
        hub.answered(taken, CLUSTER, client.refused[0])
        began = dict(taken.troubled)
        client.refused = (Nack("2", "no again", ("x",)),)
        hub.answered(taken, CLUSTER, client.refused[0])
        assert taken.troubled == began == {(CLUSTER, "x"): 2.0}
        assert list(taken.refused_at) == list(client.refused)

        client.refused = ()
        hub.answered(taken, CLUSTER)
        assert not taken.troubled
        assert not taken.refused_at

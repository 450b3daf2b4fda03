"""The part of a server that one Dataplane may use, and how clients are turned away that want more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, cast

import grpc
import pytest
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest

from cp.ads.hub import Hub
from cp.ads.loop import DrainLoop
from cp.ads.proxy_shares import ProxyShare, ProxyShares, SharedStream, ShareLimits, TooMuchHeld
from cp.ads.rounds import LoopRounds
from cp.ads.server import AdsServer, ServerOptions, serving
from cp.ads.session.messages import MOST_BYTES
from cp.ads.turned_away import AT_ONCE, LONGEST, TurnedAway
from cp.model.token_buckets import TokenBucket
from cp.translate.packing import CLUSTER, ENDPOINTS, ROUTES, SECRET
from tests.ads.content import cluster, snapshot
from tests.ads.proxy import Proxy
from tests.support.waiting import eventually_on_loop

WEB = "default.web"
DELTA = "DeltaAggregatedResources"
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED

Scene = Callable[[Hub, AdsServer], Awaitable[None]]


def play(scene: Scene, **options: Any) -> None:
    async def played() -> None:
        hub = Hub()
        hub.publisher.publish(WEB, snapshot(cluster("a")))
        async with serving(hub, ServerOptions(grace=0.5, **options), lambda: 0.5) as server:
            await scene(hub, server)

    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        runner.run(played())


def delta(type_url: str, *names: str, **versions: str) -> bytes:
    request = DeltaDiscoveryRequest(
        type_url=type_url, resource_names_subscribe=names, initial_resource_versions=versions
    )
    request.node.id = WEB
    return request.SerializeToString()


def refused(hub: Hub, reason: str) -> float:
    value = hub.metrics.registry.get_sample_value("koguma_ads_streams_refused_total", {"reason": reason})
    return value or 0.0


def test_a_new_stream_ends_the_oldest_of_its_proxy() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with AsyncExitStack() as stack:
            proxies = []
            for number in range(3):
                proxies.append(await stack.enter_async_context(Proxy(server.port)))
                await proxies[-1].ask(CLUSTER)
                await proxies[-1].hear()
                assert len(hub.observer.of(WEB)) <= min(number + 1, 3)
            other = await stack.enter_async_context(Proxy(server.port, "default.other"))
            await other.ask(CLUSTER)
            code, text = await proxies[0].end()
            assert (code, "KOGUMA_MOST_STREAMS_OF_PROXY" in text) == (EXHAUSTED, True)
            await eventually_on_loop(lambda: len(hub.observer.of(WEB)) == 2)
            assert refused(hub, "too many of one proxy") == 1
            hub.publisher.publish(WEB, snapshot(cluster("b")))
            for proxy in proxies[1:]:
                assert (await proxy.hear()).resources[0].value == cluster("b").body

    play(scene, most_streams_of_proxy=2)


@pytest.mark.parametrize("kind", ["delta", "versions", "sotw"])
def test_streams_of_a_proxy_share_the_memory_of_names(kind: str) -> None:
    names = [f"{number:01000}" for number in range(80)]

    async def fill(proxy: Proxy, type_url: str) -> None:
        if kind == "sotw":
            await proxy.ask(type_url, *names)
        else:
            await proxy.say(delta(type_url, *names) if kind == "delta" else delta(type_url, **dict.fromkeys(names, "")))

    async def scene(hub: Hub, server: AdsServer) -> None:
        method = "StreamAggregatedResources" if kind == "sotw" else DELTA
        async with (
            Proxy(server.port, method=method) as first,
            Proxy(server.port, method=method) as second,
            Proxy(server.port, "default.other") as other,
        ):
            await fill(first, ENDPOINTS)
            await other.ask(ENDPOINTS, *names)
            await eventually_on_loop(lambda: bool(hub.observer.of(WEB)))
            await fill(second, SECRET)
            code, text = await second.end()
            assert (code, "KOGUMA_MOST_BYTES_OF_PROXY" in text) == (EXHAUSTED, True)
            assert refused(hub, "too much of one proxy") == 1
            assert (len(hub.observer.of(WEB)), len(hub.observer.of("default.other"))) == (1, 1)

    play(scene, most_bytes_of_proxy=128 * 1024)


@pytest.mark.parametrize("type_url", [ENDPOINTS, ROUTES, SECRET, CLUSTER])
def test_names_of_a_type_take_no_more_than_their_share(type_url: str) -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port, method=DELTA) as proxy:
            # The last one is refused: gRPC may fail to send another one with a status of its own.
            for letter in "abcdefgh":
                await proxy.say(delta(type_url, letter * (MOST_BYTES // 8)))
            code, text = await proxy.end()
        assert (code, f"{MOST_BYTES} are the most" in text) == (EXHAUSTED, True)
        assert refused(hub, "too many names") == 1

    play(scene)


def test_names_that_are_given_up_make_room() -> None:
    share = ProxyShare(ShareLimits(None, held_bytes=100), TokenBucket(1, 1), lambda: 0.0)
    first, second = SharedStream(lambda: None), SharedStream(lambda: None)
    share.add(first)
    share.add(second)
    share.hold(first, 80)
    with pytest.raises(TooMuchHeld, match="110 bytes"):
        share.hold(second, 30)
    share.hold(first, 10)
    share.hold(second, 90)


def test_a_share_is_forgotten_with_its_last_stream() -> None:
    shares = ProxyShares(ShareLimits(1), lambda: 0.0)
    ended: list[str] = []
    with (
        shares.entered("a", SharedStream(lambda: ended.append("first"))),
        shares.entered("a", SharedStream(lambda: ended.append("second"))),
        shares.entered("b", SharedStream(lambda: ended.append("b"))),
    ):
        assert ended == ["first"]
    assert not shares._shares


def test_many_requests_are_read_later() -> None:
    now = 0.0
    shares = ProxyShares(ShareLimits(None, request_bytes=100_000, request_rate=10_000), lambda: now)
    with shares.entered(WEB, SharedStream(lambda: None)) as share:
        for _ in range(19):
            share.note_request(1000)
        assert share.pause == 0
        share.note_request(10_000)
        assert 0 < share.pause < 2
    with shares.entered(WEB, SharedStream(lambda: None)) as share:
        assert share.pause > 0, "its next streams are read later too"
        now = 60.0
        assert share.pause == 0


def test_first_request_of_any_client_costs_nothing() -> None:
    """Its token is not for one Dataplane, so it could spend the budget of any."""

    async def scene(hub: Hub, server: AdsServer) -> None:
        for _ in range(3):
            async with Proxy(server.port) as proxy:
                await proxy.ask(CLUSTER, "x" * 500_000)
                await eventually_on_loop(lambda: bool(hub.observer.of(WEB)))
            await eventually_on_loop(lambda: not hub.observer.of(WEB))
        assert server._surroundings.shares._requests.bucket(WEB).used == 0

    play(scene)


def test_later_stream_pays_for_earlier_requests() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        now, shares = 0.0, server._surroundings.shares
        shares._clock = lambda: now
        shares._requests.bucket(WEB).spend(ShareLimits(None).request_bytes + 1, now)
        async with Proxy(server.port) as first, Proxy(server.port) as second, Proxy(server.port, "default.b") as other:
            await first.ask(CLUSTER)  # read, as it is not known yet whose it is
            await first.hear()
            await first.ask(ENDPOINTS, "a")
            await second.ask(CLUSTER)
            await second.hear()
            await other.ask(CLUSTER)
            await eventually_on_loop(lambda: bool(hub.observer.of("default.b")))
            assert [len(connection.session.statuses) for connection in hub.observer.of(WEB)] == [1, 1]
            now = 60.0
            await eventually_on_loop(lambda: len(hub.observer.of(WEB)[0].session.statuses) == 2)

    play(scene)


def test_a_token_has_few_streams_that_ask_for_nothing() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        server._surroundings.silent._limits = ShareLimits(1)
        async with Proxy(server.port) as first:
            await eventually_on_loop(lambda: len(server._streams) == 1)
            async with Proxy(server.port) as second:
                assert (await first.end())[0] is grpc.StatusCode.DEADLINE_EXCEEDED
                assert refused(hub, "silent") == 1
                await second.ask(CLUSTER)
                await second.hear()

    play(scene)


class ClosedRounds:
    """Rounds of the event loop that do not come until they are opened."""

    def __init__(self) -> None:
        self.waiting, self.is_open = 0, asyncio.Event()

    def has(self, waiting: int) -> bool:
        return self.waiting == waiting

    async def turn(self) -> None:
        self.waiting += 1
        await self.is_open.wait()


def test_streams_that_have_asked_make_way_for_none() -> None:
    """After a restart all proxies of a fleet ask at once, and may show one token."""

    async def scene(hub: Hub, server: AdsServer) -> None:
        rounds, server._surroundings.silent._limits = ClosedRounds(), ShareLimits(2)
        server._surroundings = replace(server._surroundings, rounds=cast("LoopRounds", rounds))
        async with AsyncExitStack() as stack:
            proxies = []
            for number in range(4):
                proxies.append(await stack.enter_async_context(Proxy(server.port)))
                await proxies[-1].ask(CLUSTER)
                await eventually_on_loop(partial(rounds.has, number + 1))
            rounds.is_open.set()
            for proxy in proxies:
                await proxy.hear()
        assert refused(hub, "silent") == 0

    play(scene)


def test_an_address_that_was_turned_away_often_is_answered_later() -> None:
    now = 0.0
    turned_away = TurnedAway(lambda: now)

    def delay(address: str) -> float:
        with turned_away.waiting(address) as seconds:
            return seconds

    assert [delay("a") for _ in range(AT_ONCE)] == [0.0] * AT_ONCE
    delays = [delay("a") for _ in range(1000)]
    assert delays == sorted(delays)
    assert (delays[0] > 0, delays[-1]) == (True, LONGEST)
    assert delay("b") == 0
    now = 2000.0
    assert delay("a") == 0


def test_a_client_that_is_turned_away_often_waits_and_others_do_not() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port) as first, AsyncExitStack() as stack:
            await first.ask(CLUSTER)
            await first.hear()
            for _ in range(AT_ONCE):
                async with Proxy(server.port, "default.second") as second:
                    assert (await second.end())[0] is EXHAUSTED
            server._surroundings.turned_away._delay = lambda address: LONGEST  # type: ignore[method-assign]
            late = await stack.enter_async_context(Proxy(server.port, "default.late"))
            await eventually_on_loop(lambda: refused(hub, "too many of one address") == AT_ONCE + 1)
            assert server._surroundings.turned_away._waiting == 1
            hub.publisher.publish(WEB, snapshot(cluster("b")))
            await first.hear()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(server.stop())  # it keeps no one who waits
                assert (await late.end())[0] in {EXHAUSTED, grpc.StatusCode.UNAVAILABLE}

    play(scene, most_streams_of_address=1)


def test_dataplane_that_was_turned_away_waits() -> None:
    turned_away = TurnedAway(lambda: 0.0)
    for _ in range(AT_ONCE):
        turned_away.note(WEB)
    assert turned_away.delay(WEB) == 0
    turned_away.note(WEB)
    assert 0 < turned_away.delay(WEB) < LONGEST
    assert turned_away.delay("default.other") == 0
    for _ in range(1000):
        turned_away.note(WEB)
    assert turned_away.delay(WEB) == LONGEST


def test_connection_has_few_streams_and_more_wait() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        names = [f"default.p{number}" for number in range(5)]
        async with AsyncExitStack() as stack:
            opened: list[Proxy] = []
            for name in names:  # streams of equal channels share a connection
                hub.publisher.publish(name, snapshot(cluster("a")))
                opened.append(await stack.enter_async_context(Proxy(server.port, name)))
                if name != names[-1]:
                    await opened[-1].ask(CLUSTER)
                    await opened[-1].hear()
            async with asyncio.TaskGroup() as group:
                group.create_task(opened[-1].ask(CLUSTER))
                async with Proxy(server.port, max_reconnect_backoff_ms=4321) as other_connection:
                    await other_connection.ask(CLUSTER)
                    await other_connection.hear()
                    assert len(server._streams) == 5
                await opened[0].hang_up()
            assert (await opened[-1].hear()).resources

    play(scene, most_streams_of_proxy=1)
    assert ServerOptions(most_streams_of_proxy=None).streams_of_connection == 100

"""The server over a real connection: what it moves, when it ends, and whom it does not let down."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest

from cp.ads.hub import Hub
from cp.ads.loop import DrainLoop
from cp.ads.server import AdsServer, ServerOptions, serving
from cp.ads.stream_limits import StreamLimits, TooManyStreams
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, PackedResource
from tests.ads.content import cluster, listener, snapshot
from tests.ads.proxy import Proxy
from tests.support.waiting import eventually_on_loop

WEB = "default.web"
Scene = Callable[[Hub, AdsServer], Coroutine[Any, Any, None]]


def chance() -> float:
    return 0.5


def play(scene: Scene, **options: Any) -> None:
    """Run a scene against a server, on the loop that production runs on."""

    async def played() -> None:
        hub = Hub()
        async with serving(hub, ServerOptions(**{"grace": 0.5, **options}), chance) as server:
            await scene(hub, server)

    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        runner.run(played())


def large(name: str, filling: bytes = b"x") -> PackedResource:
    return PackedResource.of(ENDPOINTS, name, filling * 300_000)


def test_a_proxy_gets_what_is_published_and_its_answer_is_known() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        hub.publisher.publish(WEB, snapshot(cluster("a")))
        async with Proxy(server.port) as proxy:
            await proxy.ask(CLUSTER)
            first = await proxy.hear()
            assert first.resources[0].value == cluster("a").body
            await proxy.answer(first)
            (seat,) = hub.observer.of(WEB)
            await eventually_on_loop(lambda: seat.session.statuses[0].acked == first.version_info)

            hub.publisher.publish(WEB, snapshot(cluster("b")))
            assert (await proxy.hear()).resources[0].value == cluster("b").body

    play(scene)


def test_a_proxy_that_nobody_knows_yet_is_announced_and_waits() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port) as proxy:
            await proxy.ask(CLUSTER)
            assert await hub.publisher.arrivals() == {WEB}

            hub.publisher.publish(WEB, snapshot(cluster("a")))
            assert (await proxy.hear()).resources[0].value == cluster("a").body

    play(scene)


@pytest.mark.parametrize("begins", [b"", b"PRI * HTTP/2.0\r\n"])
def test_a_connection_on_which_nobody_begins_to_speak_http_2_is_closed(begins: bytes) -> None:
    async def scene(_: Hub, server: AdsServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(begins)
        async with asyncio.timeout(20):
            with suppress(ConnectionError):
                await reader.read()  # to the end
        writer.close()

    play(scene, handshake=0.2)


def test_a_connection_that_asks_for_nothing_is_closed() -> None:
    async def scene(_: Hub, server: AdsServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")  # and no settings
        async with asyncio.timeout(20):
            await reader.read()  # to the end
        writer.close()

    play(scene, silence=0.2)


def test_a_stream_keeps_nothing_of_a_large_first_request() -> None:
    """What a proxy says of itself may fill a request. Nobody uses it, so nobody may have to keep it."""
    size = 1024 * 1024

    async def scene(hub: Hub, server: AdsServer) -> None:
        request = DiscoveryRequest(type_url=CLUSTER)
        request.node.id = WEB
        request.node.metadata["padding"] = "x" * size
        data = request.SerializeToString()
        hub.publisher.publish(WEB, snapshot(cluster("a")))  # otherwise a large request waits for that
        tracemalloc.start()
        try:
            async with Proxy(server.port) as proxy:
                await proxy.say(data)
                await eventually_on_loop(lambda: hub.observer.of(WEB))
                await eventually_on_loop(lambda: tracemalloc.get_traced_memory()[0] < size)
        finally:
            tracemalloc.stop()

    play(scene)


def test_a_stream_that_ends_takes_its_seat_along() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port) as proxy:
            await proxy.ask(CLUSTER)
            await eventually_on_loop(lambda: hub.observer.of(WEB))
        await eventually_on_loop(lambda: not hub.observer.of(WEB))

    play(scene)


def test_a_client_that_hangs_up_is_let_go() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port) as proxy:
            await proxy.ask(CLUSTER)
            await eventually_on_loop(lambda: hub.observer.of(WEB))
            await proxy.hang_up()

            assert (await proxy.end())[0] is grpc.StatusCode.OK

    play(scene)


def test_a_client_that_hangs_up_before_it_says_anything_is_let_go() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port) as proxy:
            await proxy.hang_up()

            assert (await proxy.end())[0] is grpc.StatusCode.OK
            assert not hub.observer.connections

    play(scene)


def test_a_proxy_that_does_not_say_who_it_is_is_told_so() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port, name="") as proxy:
            await proxy.ask(CLUSTER)

            code, text = await proxy.end()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "node.id" in text

    play(scene)


@pytest.mark.parametrize("begins", [True, False], ids=["at first", "later"])
def test_what_is_not_a_request_ends_the_stream_and_no_other(begins: bool) -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        hub.publisher.publish("default.other", snapshot(cluster("a")))
        async with Proxy(server.port, "default.other") as other, Proxy(server.port) as proxy:
            if not begins:
                await proxy.ask(CLUSTER)
            await proxy.say(b"\xff\xff\xff")

            assert (await proxy.end())[0] is grpc.StatusCode.INVALID_ARGUMENT
            await other.ask(CLUSTER)
            await other.hear()

    play(scene)


def test_what_happens_on_a_stream_is_logged_with_the_proxy_it_happens_to() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        hub.publisher.publish(WEB, snapshot(cluster("a")))
        async with Proxy(server.port) as proxy:
            await proxy.ask(CLUSTER)
            await proxy.answer(await proxy.hear(), error="cluster a: no")
            await eventually_on_loop(lambda: any(seat.nacks for seat in hub.observer.of(WEB)))
        await eventually_on_loop(lambda: not hub.observer.of(WEB))

    with structlog.testing.capture_logs() as logs:
        play(scene)

    assert [entry["event"] for entry in logs] == ["proxy.connected", "resources.refused", "proxy.disconnected"]
    assert all(entry["proxy"] == WEB and entry["stream"] == "sotw" for entry in logs)
    assert (logs[1]["log_level"], logs[1]["type"], logs[1]["names"]) == ("debug", "clusters", ("a",))
    assert logs[1]["reason"] == "cluster a: no"


def test_listeners_wait_for_the_answer_about_clusters_until_time_is_up() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        hub.publisher.publish(WEB, snapshot(cluster("a"), listener("in")))
        async with Proxy(server.port) as proxy:
            await proxy.ask(CLUSTER)
            await proxy.ask(LISTENER)

            assert [(await proxy.hear()).type_url for _ in range(2)] == [CLUSTER, LISTENER]

    with structlog.testing.capture_logs() as logs:
        play(scene, patience=0.05)

    assert "clusters.unanswered" in [entry["event"] for entry in logs]


def test_a_clock_that_is_no_longer_needed_does_not_go_off() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        hub.publisher.publish(WEB, snapshot(cluster("a"), listener("in")))
        async with Proxy(server.port) as proxy:
            await proxy.ask(CLUSTER)
            await proxy.ask(LISTENER)
            await proxy.answer(await proxy.hear())
            assert (await proxy.hear()).type_url == LISTENER
            (stream,) = server._streams
            assert stream._deadline is None

    play(scene)


def test_a_slow_client_gets_the_newest_and_not_everything_in_between() -> None:
    last = 200

    async def scene(hub: Hub, server: AdsServer) -> None:
        hub.publisher.publish(WEB, snapshot(large("a")))
        async with Proxy(server.port) as proxy:
            await proxy.ask(ENDPOINTS, "a")
            await proxy.hear()
            for turn in range(1, last + 1):
                hub.publisher.publish(WEB, snapshot(large("a", filling=b"%c" % turn)))
                await asyncio.sleep(0)
            newest = hub.observer.newest(WEB)
            assert newest is not None

            count, version = 0, ""
            while version != newest.version(ENDPOINTS):
                heard = await proxy.hear()
                await proxy.answer(heard, "a")
                version, count = heard.version_info, count + 1

        assert count < last / 2

    play(scene)


def test_a_client_that_reads_and_does_not_answer_gets_the_newest_once_it_does() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port) as proxy:
            await proxy.ask(CLUSTER)
            heard = []
            for turn in range(50):
                hub.publisher.publish(WEB, snapshot(cluster("a", turn)))
                for _ in range(5):
                    await asyncio.sleep(0)
                if turn < 8:
                    heard.append(await proxy.hear())
            (stream,) = server._streams
            assert stream._session.unanswered == 8

            await proxy.answer(heard[-1])
            newest = hub.observer.newest(WEB)
            assert newest is not None
            assert (await proxy.hear()).version_info == newest.version(CLUSTER)

    play(
        scene, patience=0.01
    )  # each of the eight is sent once the session stops waiting for the word on the one before


def test_a_client_that_does_not_read_delays_nobody_else() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        too_much = [large(f"t{number}") for number in range(64)]  # for what lies between server and client
        hub.publisher.publish("default.stuck", snapshot(*too_much))
        hub.publisher.publish(WEB, snapshot(large("a")))
        async with Proxy(server.port, "default.stuck") as stuck, Proxy(server.port) as proxy:
            await stuck.ask(ENDPOINTS, *(packed.name for packed in too_much))
            await eventually_on_loop(server._surroundings.slots._free.locked)
            await proxy.ask(ENDPOINTS, "a")

            assert len((await proxy.hear()).resources) == 1

    play(scene, large_at_once=1, large_patience=0.5)


def test_a_client_that_talks_without_listening_is_not_listened_to_for_ever() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        # More than gRPC takes by itself: the longer a connection lives, the more it lets wait at the client.
        names = [f"t{number}" for number in range(250)]
        hub.publisher.publish(WEB, snapshot(*map(large, names)))
        async with Proxy(server.port) as proxy:
            for name in names:
                await proxy.ask(ENDPOINTS, name)
            (stream,) = server._streams
            await eventually_on_loop(lambda: len(stream._outbox) >= 16)
            for _ in range(200):
                await asyncio.sleep(0)

            assert len(stream._outbox) == 16

    play(scene)


# --- ends ---


def test_a_stream_that_is_old_is_closed_without_an_error() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port) as proxy:
            await proxy.ask(CLUSTER)

            assert (await proxy.end())[0] is grpc.StatusCode.OK

    play(scene, max_age=0.4)


def test_streams_that_began_together_do_not_end_together() -> None:
    options = ServerOptions(max_age=100)

    assert [options.stream_age(number) for number in (0.0, 0.5, 1.0)] == [50, 75, 100]
    assert ServerOptions().stream_age(0.5) is None


def test_a_server_that_stops_finishes_what_it_has_to_say() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        hub.publisher.publish(WEB, snapshot(cluster("a")))
        async with Proxy(server.port) as proxy:
            await proxy.ask(CLUSTER)
            await proxy.answer(await proxy.hear())
            await eventually_on_loop(lambda: hub.observer.of(WEB)[0].session.is_settled)
            hub.publisher.publish(WEB, snapshot(cluster("b")))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(server.stop())
                assert (await proxy.hear()).resources[0].value == cluster("b").body
                assert (await proxy.end())[0] is grpc.StatusCode.OK

    play(scene, grace=10)


def test_a_server_that_stops_lets_streams_go_one_after_the_other_and_takes_no_new_ones() -> None:
    moments = iter([0.0, 0.0, 1.0, 0.0])  # each stream's age as it begins, then when it is to end

    async def scene(hub: Hub, server: AdsServer) -> None:
        server._chance = lambda: next(moments)
        async with Proxy(server.port, "default.a") as a, Proxy(server.port, "default.b") as b:
            for proxy in (a, b):
                await proxy.ask(CLUSTER)
            await eventually_on_loop(lambda: len(hub.observer.connections) == 2)
            async with asyncio.TaskGroup() as tasks:
                stopping = tasks.create_task(server.stop())
                await eventually_on_loop(lambda: len(hub.observer.connections) == 1)
                assert not stopping.done()
                async with Proxy(server.port, "default.late") as late:
                    assert (await late.end())[0] is grpc.StatusCode.UNAVAILABLE
            assert {(await proxy.end())[0] for proxy in (a, b)} == {grpc.StatusCode.OK}

    play(scene, drain=2)


# --- limits ---


def test_no_more_streams_than_wanted_are_served_and_whoever_comes_then_is_told_why() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        hub.publisher.publish(WEB, snapshot(cluster("a")))
        async with Proxy(server.port) as first:
            await first.ask(CLUSTER)
            await first.hear()
            async with Proxy(server.port, "default.second") as second:
                code, text = await second.end()
        assert (code, "1 streams" in text) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)

    play(scene, most_streams=1)


def test_one_address_does_not_take_all_streams() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port) as first:
            await first.ask(CLUSTER)
            await eventually_on_loop(lambda: hub.observer.of(WEB))
            async with Proxy(server.port, "default.second") as second:
                code, text = await second.end()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1 streams of this address are open" in text
        assert "KOGUMA_MOST_STREAMS_OF_ADDRESS" in text
        assert b'ads_streams_refused_total{reason="too many of one address"} 1.0' in hub.metrics.text()

    play(scene, most_streams_of_address=1)


def test_other_addresses_have_streams_of_their_own_and_each_gives_them_back() -> None:
    limits = StreamLimits(3, 1)
    with limits.counted("ipv4:10.0.0.1:4711"):
        with (
            limits.counted("ipv4:10.0.0.2:4711"),
            limits.counted("ipv6:%5B::1%5D:9"),
            pytest.raises(TooManyStreams, match="3 streams already"),
            limits.counted("ipv4:10.0.0.3:1"),
        ):
            pass
        with pytest.raises(TooManyStreams, match="of this address"), limits.counted("ipv4:10.0.0.1:4712"):
            pass
    with limits.counted("ipv4:10.0.0.1:4712"):
        pass


def test_a_request_that_is_too_large_ends_its_stream_and_no_other() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        hub.publisher.publish(WEB, snapshot(cluster("a")))
        async with Proxy(server.port) as proxy, Proxy(server.port, "default.large") as greedy:
            await greedy.ask(ENDPOINTS, *(f"{number:0100}" for number in range(1000)))
            assert (await greedy.end())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED

            await proxy.ask(CLUSTER)
            await proxy.hear()

    play(scene, request_limit=64 * 1024)


# --- ports ---


def test_a_port_that_is_taken_is_an_error() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        with pytest.raises(OSError, match=str(server.port)):
            AdsServer(hub, ServerOptions(port=server.port), chance)

    play(scene)


def test_processes_that_are_told_to_share_a_port_do() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        other = AdsServer(hub, ServerOptions(port=server.port, shares_port=True), chance)
        assert other.port == server.port
        await other.stop()

    play(scene, shares_port=True)


def test_a_server_whose_start_is_broken_off_ends(tmp_path: Path) -> None:
    path = tmp_path / "ads"

    async def enter() -> None:
        async with serving(Hub(), ServerOptions(socket=str(path), grace=0), chance):
            raise AssertionError("it was to be broken off before")

    async def scene() -> None:
        async with asyncio.TaskGroup() as group:
            start = group.create_task(enter())
            await asyncio.sleep(0)  # it has begun, and does not answer yet
            start.cancel()
        with pytest.raises((FileNotFoundError, ConnectionRefusedError)):
            await asyncio.open_unix_connection(path)

    asyncio.run(scene())

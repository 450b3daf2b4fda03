"""How large requests may be: an Envoy of a large mesh names all that it has, and no other client may send as much."""

from __future__ import annotations

from functools import lru_cache

import pytest

from cp.ads.hub import Hub
from cp.ads.server import AdsServer, ServerOptions
from cp.ads.session.messages import MOST_NAMES, TooManyNames
from cp.ads.session.request_sizes import MOST_UNEXPECTED, check_size, held_bytes
from cp.ads.stream import NO_REQUEST, Stream
from cp.translate.packing import CLUSTER, ENDPOINTS
from cp.translate.snapshot import EMPTY, Snapshot
from tests.ads.content import cluster, endpoints, snapshot
from tests.ads.proxy import Proxy
from tests.ads.test_proxy_shares import DELTA, EXHAUSTED, WEB, delta, play, refused
from tests.support.waiting import eventually_on_loop

SERVICES = 30_000


@lru_cache(maxsize=1)
def large_mesh() -> Snapshot:
    names = [f"kri_msvc_default_zone-1_namespace_backend-{number:05}_8080____" for number in range(SERVICES)]
    return snapshot(*map(cluster, names), *map(endpoints, names))


def reconnect(type_url: str, *, subscribes: bool = True) -> bytes:
    versions = {**large_mesh().versions(type_url)}
    return delta(type_url, *(versions if subscribes else ()), **versions)


@pytest.mark.parametrize("is_computed", [True, False])
def test_client_names_resources_of_large_mesh(is_computed: bool) -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        changed = snapshot(*large_mesh().of(CLUSTER), *large_mesh().of(ENDPOINTS), cluster("new"))
        if is_computed:
            hub.publisher.publish(WEB, changed)
        else:  # after a start of the control plane
            hub.publisher.forget(WEB)
        async with Proxy(server.port, method=DELTA, max_send_message_length=-1) as proxy:
            await proxy.say(reconnect(CLUSTER, subscribes=False))
            await eventually_on_loop(lambda: bool(hub.observer.of(WEB)))
            hub.publisher.publish(WEB, changed)
            await proxy.say(reconnect(ENDPOINTS))
            assert b"new" in (await proxy.hear()).SerializeToString()
            [connection] = hub.observer.of(WEB)
            await eventually_on_loop(lambda: len(connection.session.statuses) == 2)
            assert refused(hub, "too much of one proxy") == 0

    play(scene, most_bytes_of_proxy=64 * 1024)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of large requests whose streams have begun to wait for a snapshot."""
    sizes = []
    wait = Stream._wait_for_snapshot

    async def noted(stream: Stream, size: int) -> None:
        if size > MOST_UNEXPECTED:
            sizes.append(size)
        await wait(stream, size)

    monkeypatch.setattr(Stream, "_wait_for_snapshot", noted)
    return sizes


def test_large_later_request_waits_for_snapshot(waits: list[int]) -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        hub.publisher.forget(WEB)
        async with Proxy(server.port, method=DELTA, max_send_message_length=-1) as proxy:
            await proxy.say(delta(CLUSTER))
            await proxy.say(reconnect(ENDPOINTS))
            await eventually_on_loop(lambda: bool(waits))
            hub.publisher.publish(WEB, large_mesh())
            [connection] = hub.observer.of(WEB)
            await eventually_on_loop(lambda: len(connection.session.statuses) == 2)

    play(scene)


def test_returning_client_is_measured_by_newest_snapshot(waits: list[int]) -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port, method=DELTA) as proxy:
            await proxy.say(delta(CLUSTER))
            await proxy.hear()
        await eventually_on_loop(lambda: not hub.observer.of(WEB))
        assert hub.streams.newest(WEB) is None
        async with Proxy(server.port, method=DELTA, max_send_message_length=-1) as proxy:
            await proxy.say(reconnect(ENDPOINTS))
            await eventually_on_loop(lambda: bool(waits))
            hub.publisher.publish(WEB, large_mesh())
            [connection] = hub.observer.of(WEB)
            await eventually_on_loop(lambda: len(connection.session.statuses) == 1)

    play(scene)


def test_waiting_stream_makes_way_for_newer(waits: list[int]) -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        hub.publisher.forget(WEB)
        async with Proxy(server.port, method=DELTA, max_send_message_length=-1) as first, Proxy(server.port) as second:
            await first.say(reconnect(ENDPOINTS))
            await eventually_on_loop(lambda: bool(waits))
            await second.ask(CLUSTER)
            code, text = await first.end()
            assert (code, "KOGUMA_MOST_STREAMS_OF_PROXY" in text) == (EXHAUSTED, True)

    play(scene, most_streams_of_proxy=1)


@pytest.mark.parametrize("is_first", [True, False])
def test_small_mesh_takes_no_large_request(is_first: bool) -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port, method=DELTA, max_send_message_length=-1) as proxy:
            if not is_first:
                await proxy.say(delta(CLUSTER))
                await proxy.hear()
            await proxy.say(reconnect(ENDPOINTS))
            code, text = await proxy.end()
            assert (code, "by what this proxy is sent" in text) == (EXHAUSTED, True)

    play(scene)


def test_oversized_first_request_is_counted_and_logged(capsys: pytest.CaptureFixture[str]) -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port, method=DELTA) as proxy:
            await proxy.say(delta(ENDPOINTS, "x" * 100_000))
            assert (await proxy.end())[0] is EXHAUSTED
        await eventually_on_loop(lambda: refused(hub, NO_REQUEST) == 1)

    play(scene, request_limit=64 * 1024)
    out = capsys.readouterr().out
    assert "larger than KOGUMA_REQUEST_LIMIT" in out
    assert "peer=ipv4:127.0.0.1:" in out


def test_stream_without_a_request_is_counted() -> None:
    async def scene(hub: Hub, server: AdsServer) -> None:
        async with Proxy(server.port):
            await eventually_on_loop(lambda: bool(server._streams))
        await eventually_on_loop(lambda: refused(hub, NO_REQUEST) == 1)

    play(scene)


def test_request_limit_fits_what_a_large_mesh_names() -> None:
    size = len(reconnect(ENDPOINTS))
    assert MOST_UNEXPECTED < size < ServerOptions().request_limit
    assert SERVICES < MOST_NAMES
    check_size(size, large_mesh())
    with pytest.raises(TooManyNames, match=f"{size} bytes"):
        check_size(size, EMPTY)


def test_held_bytes_leave_out_given_resources() -> None:
    given = snapshot(endpoints("a"), endpoints("b"))
    version = given.versions(ENDPOINTS)["a"]

    assert held_bytes(ENDPOINTS, {"a", "b"}, {"a": version}, given) == 0
    assert held_bytes(ENDPOINTS, {"a", "c"}, {}, given) == held_bytes(ENDPOINTS, {"c"}, {}, EMPTY) > 0
    assert held_bytes(ENDPOINTS, set(), {"a": "0" * 1000}, given) > 900
    assert held_bytes(CLUSTER, {"a"}, {}, given) > 0, "it is given no such cluster"

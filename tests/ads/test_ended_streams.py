"""An ended stream is freed at once, without the garbage collector, which seldom runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import grpc
import pytest
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse

from cp.translate.packing import CLUSTER
from tests.access import forge
from tests.ads.proxy import Proxy
from tests.ads.test_admission import GOOD, OF_OTHER_MESH, WEB, Scene, bearing, played
from tests.support.garbage import cyclic_garbage, types_of
from tests.support.waiting import eventually_on_loop

DELTA: Final = "DeltaAggregatedResources"
CALL: Final = "grpc._cython.cygrpc.RPCState"
"""gRPC's call. It has kilobytes of memory that Python does not count."""

Talk = Callable[[Proxy], Awaitable[object]]


async def accept(proxy: Proxy) -> None:
    await proxy.ask(CLUSTER)
    await proxy.answer(await proxy.hear())
    await proxy.hang_up()
    await proxy.end()


async def nack(proxy: Proxy) -> None:
    await proxy.ask(CLUSTER)
    await proxy.answer(await proxy.hear(), error="no")
    await proxy.hang_up()
    await proxy.end()


async def reset(proxy: Proxy) -> None:
    await proxy.ask(CLUSTER)
    await proxy.hear()


async def break_protocol(proxy: Proxy) -> None:
    await reset(proxy)
    await proxy.say(b"\xff\xff")
    await proxy.end()


async def be_rejected(proxy: Proxy) -> None:
    with suppress(grpc.aio.AioRpcError):  # the server may not read it
        await proxy.ask(CLUSTER)
    await proxy.end()


async def ask_nothing(proxy: Proxy) -> None:
    await proxy.hang_up()
    await proxy.end()


def delta(error: str = "") -> Talk:
    async def talk(proxy: Proxy) -> None:
        request = DeltaDiscoveryRequest(type_url=CLUSTER)
        request.node.id = proxy.name
        await proxy.say(request.SerializeToString())
        response = DeltaDiscoveryResponse.FromString(await proxy._call.read())
        answer = DeltaDiscoveryRequest(type_url=CLUSTER, response_nonce=response.nonce)
        if error:
            answer.error_detail.message = error
        await proxy.say(answer.SerializeToString())
        await proxy.hang_up()
        await proxy.end()

    return talk


@pytest.mark.parametrize(
    ("talk", "token", "method"),
    [
        *((talk, GOOD, "StreamAggregatedResources") for talk in (accept, nack, reset, break_protocol, ask_nothing)),
        *((be_rejected, token, "StreamAggregatedResources") for token in ("none", OF_OTHER_MESH)),
        *((delta(error), GOOD, DELTA) for error in ("", "no")),
        (be_rejected, OF_OTHER_MESH, DELTA),
    ],
)
def test_ended_stream_leaves_nothing_to_the_collector(talk: Talk, token: str, method: str) -> None:
    kept: list[Scene] = []

    async def play(scene: Scene) -> None:
        kept.append(scene)
        async with Proxy(scene.server.port, WEB, bearing(token), method=method) as proxy:
            await talk(proxy)
        await eventually_on_loop(lambda: not scene.server._streams)

    with cyclic_garbage() as garbage:
        played(play)
    assert types_of(garbage, CALL) == set()


def test_expelled_stream_leaves_nothing_to_the_collector() -> None:
    kept: list[Scene] = []

    async def play(scene: Scene) -> None:
        kept.append(scene)
        async with Proxy(scene.server.port, WEB, bearing(GOOD)) as proxy:
            await reset(proxy)
            await scene.write(*forge.signing_keys(), without=[document.key for document in forge.signing_keys()])
            await proxy.end()
        await eventually_on_loop(lambda: not scene.server._streams)

    with cyclic_garbage() as garbage:
        played(play)
    assert types_of(garbage, CALL) == set()

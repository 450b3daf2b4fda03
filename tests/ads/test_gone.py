"""A client that goes without a word while something is written to it: no fault of ours, so nothing is raised."""

from __future__ import annotations

import asyncio

import grpc
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest

from cp.ads.hub import Hub
from cp.ads.large_messages import LargeMessageSlots
from cp.ads.proxy_shares import ProxyShares, ShareLimits
from cp.ads.refusal_log import RefusalLog
from cp.ads.rounds import LoopRounds
from cp.ads.stream import STATE_OF_THE_WORLD, Stream, StreamSurroundings
from cp.ads.stream_limits import StreamLimits
from cp.ads.turned_away import TurnedAway
from cp.ads.unknown_nodes import UnknownNodes
from cp.translate.packing import CLUSTER
from tests.ads.content import cluster, snapshot


class Gone:
    """What gRPC hands to a stream, once its client has gone; it has not told so yet."""

    def __init__(self) -> None:
        request = DiscoveryRequest(type_url=CLUSTER)
        request.node.id = "default.web"
        self._requests = [request.SerializeToString()]

    def peer(self) -> str:
        return "nowhere"

    async def read(self) -> object:
        if not self._requests:
            await asyncio.Event().wait()
        return self._requests.pop()

    async def send_initial_metadata(self, _: object) -> None:
        raise grpc.aio.InternalError("the operation failed")

    async def write(self, _: bytes) -> None:
        raise grpc.aio.InternalError("the operation failed")


def test_a_stream_to_a_client_that_has_gone_ends() -> None:
    async def scene() -> None:
        hub, context = Hub(), Gone()
        surroundings = StreamSurroundings(
            hub=hub.streams,
            slots=LargeMessageSlots(1, 1.0),
            rounds=LoopRounds(0.02, 8),
            limits=StreamLimits(None, None),
            shares=ProxyShares(ShareLimits(None), lambda: 0.0),
            silent=ProxyShares(ShareLimits(None), lambda: 0.0),
            turned_away=TurnedAway(lambda: 0.0),
            unknown_nodes=UnknownNodes(1, lambda _: True),
            refusals=RefusalLog(lambda: 0.0),
            doorkeeper=None,
            patience=1.0,
            first_request=1.0,
        )
        stream = Stream(STATE_OF_THE_WORLD, surroundings)
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(stream.serve(context))  # type: ignore[arg-type]  # what is used of it
            await hub.publisher.arrivals()
            hub.publisher.publish("default.web", snapshot(cluster("a")))
        assert not hub.observer.of("default.web")

    asyncio.run(scene())

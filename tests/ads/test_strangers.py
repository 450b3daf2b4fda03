"""Streams of proxies without a Dataplane are few, and never in the way of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import ExitStack

import grpc
import pytest

from cp.ads.hub import Hub
from cp.ads.loop import DrainLoop
from cp.ads.server import ServerOptions, serving
from cp.ads.unknown_nodes import TooManyUnknownNodes, UnknownNodes
from cp.translate.packing import CLUSTER
from tests.ads.content import cluster, snapshot
from tests.ads.proxy import Proxy
from tests.support.waiting import eventually_on_loop


def test_no_more_than_wanted_are_admitted_at_once() -> None:
    unknown_nodes = UnknownNodes(2, lambda _: False)
    with ExitStack() as stack:
        stack.enter_context(unknown_nodes.counted("a"))
        with (
            unknown_nodes.counted("a"),
            pytest.raises(TooManyUnknownNodes, match="KOGUMA_MOST_UNKNOWN"),
            unknown_nodes.counted("b"),
        ):
            pass
        with unknown_nodes.counted("b"):
            pass


def test_unknown_nodes_leave_nothing_behind() -> None:
    unknown_nodes = UnknownNodes(2, lambda _: False)
    for node in range(10):
        with unknown_nodes.counted(str(node)), unknown_nodes.counted(str(node)):
            assert len(unknown_nodes._streams) == 1

    assert not unknown_nodes._streams


def test_whose_dataplane_has_come_no_longer_counts() -> None:
    known: set[str] = set()
    unknown_nodes = UnknownNodes(1, known.__contains__)
    with unknown_nodes.counted("a"):
        known.add("a")
        with unknown_nodes.counted("b"):
            pass
    known.clear()
    with unknown_nodes.counted("a"), pytest.raises(TooManyUnknownNodes), unknown_nodes.counted("b"):
        pass


def test_who_comes_without_a_dataplane_is_turned_away_and_who_has_one_is_served() -> None:
    async def scene() -> None:
        hub = Hub()
        hub.publisher.publish("default.web", snapshot(cluster("a")))
        options = ServerOptions(grace=0.5, most_unknown=1)
        known = "default.web".__eq__
        async with (
            serving(hub, options, lambda: 0.5, known) as server,
            Proxy(server.port, "default.x") as first,
            Proxy(server.port, "default.y") as second,
            Proxy(server.port) as web,
        ):
            await first.ask(CLUSTER)
            await eventually_on_loop(lambda: bool(hub.observer.of("default.x")))
            await second.ask(CLUSTER)
            status, reason = await second.end()
            assert (status, "without a Dataplane" in reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
            await web.ask(CLUSTER)
            assert (await web.hear()).resources[0].value == cluster("a").body

    run(scene)


def run(scene: Callable[[], Coroutine[None, None, None]]) -> None:
    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        runner.run(scene())

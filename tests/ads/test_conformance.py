"""The questions of the public conformance suite for xDS servers (github.com/ii/xds-test-harness), in our words.

Each runs on a stream of its own and next to subscriptions to all other types. The services for one type alone, such as
`ClusterDiscoveryService`, are not served, so that the stream is that of `AggregatedDiscoveryService` in both cases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import pytest

from cp.ads.hub import Hub
from cp.ads.loop import DrainLoop
from cp.ads.server import ServerOptions, serving
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, RUNTIME
from tests.ads.xds_client import Heard, Target, XdsClient

Question: TypeAlias = Callable[[XdsClient, Target, str], Awaitable[None]]

TYPES: Final = {"CDS": CLUSTER, "LDS": LISTENER, "RDS": ROUTES, "EDS": ENDPOINTS}
WILDCARD: Final = ("CDS", "LDS")
NAMED: Final = ("RDS", "EDS")
OTHER: Final = {CLUSTER: LISTENER, LISTENER: CLUSTER, ROUTES: ENDPOINTS, ENDPOINTS: ROUTES}


def contents(responses: list[Heard]) -> list[tuple[dict[str, int], set[str]]]:
    return [(heard.revisions, set(heard.removed)) for heard in responses]


async def expect(client: XdsClient, target: Target, *expected: dict[str, int], removed: str = "") -> None:
    """These responses come and no others, in particular none to their ACKs."""
    responses = await client.read_rest(target)
    assert contents(responses) == [(revisions, set(removed)) for revisions in expected]


# --- subscribing, state of the world ---


async def wildcard_gets_everything_in_one_response(client: XdsClient, target: Target, kind: str) -> None:
    target.put(kind, *"ABC")
    await client.subscribe(kind)
    await expect(client, target, {"A": 1, "B": 1, "C": 1})


async def wildcard_gets_everything_after_a_change(client: XdsClient, target: Target, kind: str) -> None:
    await wildcard_gets_everything_in_one_response(client, target, kind)
    target.put(kind, "A", revision=2)
    await expect(client, target, {"A": 2, "B": 1, "C": 1})


async def wildcard_gets_everything_after_an_addition(client: XdsClient, target: Target, kind: str) -> None:
    await wildcard_gets_everything_in_one_response(client, target, kind)
    target.put(kind, "D", revision=2)
    await expect(client, target, {"A": 1, "B": 1, "C": 1, "D": 2})


async def names_get_these_resources_alone(client: XdsClient, target: Target, kind: str) -> None:
    target.put(kind, *"ABCD")
    await client.subscribe(kind, "B", "D")
    await expect(client, target, {"B": 1, "D": 1})


async def names_get_all_of_these_after_a_change(client: XdsClient, target: Target, kind: str) -> None:
    await names_get_these_resources_alone(client, target, kind)
    target.put(kind, "B", revision=2)
    await expect(client, target, {"B": 2, "D": 1})


async def names_get_the_changed_resource_alone(client: XdsClient, target: Target, kind: str) -> None:
    await names_get_these_resources_alone(client, target, kind)
    target.put(kind, "B", revision=2)
    await expect(client, target, {"B": 2})


async def missing_names_get_all_once_they_exist(client: XdsClient, target: Target, kind: str) -> None:
    target.put(kind, *"ABC")
    await client.subscribe(kind, "A", "Z")
    await expect(client, target, {"A": 1})
    target.put(kind, "Z", revision=2)
    await expect(client, target, {"A": 1, "Z": 2})


async def missing_names_get_the_new_resource_once_it_exists(client: XdsClient, target: Target, kind: str) -> None:
    target.put(kind, *"ABC")
    await client.subscribe(kind, "A", "Z")
    await expect(client, target, {"A": 1})
    target.put(kind, "Z", revision=2)
    await expect(client, target, {"Z": 2})


async def two_types_share_a_stream(client: XdsClient, target: Target, kind: str) -> None:
    for each in (kind, OTHER[kind]):
        target.put(each, *"ABC")
        await client.subscribe(each, "B")
        await expect(client, target, {"B": 1})
    for each in (kind, OTHER[kind]):
        target.put(each, "B", revision=2)
        await expect(client, target, {"B": 2})


# --- unsubscribing, state of the world ---


async def dropped_names_are_no_longer_sent(client: XdsClient, target: Target, kind: str) -> None:
    target.put(kind, *"ABCD")
    await client.subscribe(kind, *"ABC")
    await expect(client, target, {"A": 1, "B": 1, "C": 1})
    await client.unsubscribe(kind, "B", "C")
    await expect(client, target)
    target.put(kind, "A", "B", revision=2)
    await expect(client, target, {"A": 2})


async def dropping_all_names_ends_the_responses(client: XdsClient, target: Target, kind: str) -> None:
    target.put(kind, *"ABCD")
    await client.subscribe(kind, "A", "B")
    await expect(client, target, {"A": 1, "B": 1})
    await client.unsubscribe(kind, "A", "B")
    await expect(client, target)
    target.put(kind, "B", revision=2)
    await expect(client, target)


# --- delta ---


async def names_are_requested_one_after_the_other(client: XdsClient, target: Target, kind: str) -> None:
    target.put(kind, *"ABC")
    for name in "AB":
        await client.subscribe(kind, name)
        await expect(client, target, {name: 1})


async def missing_name_is_reported_and_sent_once_it_exists(client: XdsClient, target: Target, kind: str) -> None:
    target.put(kind, "A")
    await client.subscribe(kind, "A", "B")
    await expect(client, target, {"A": 1}, removed="B")
    target.put(kind, "B")
    await expect(client, target, {"B": 1})


async def removed_resource_is_named_and_sent_once_it_is_back(client: XdsClient, target: Target, kind: str) -> None:
    target.put(kind, *"AB")
    await client.subscribe(kind, "A", "B")
    await expect(client, target, {"A": 1, "B": 1})
    target.remove(kind, "B")
    await expect(client, target, {}, removed="B")
    target.put(kind, "B", revision=2)
    await expect(client, target, {"B": 2})


async def unsubscribed_names_are_no_longer_sent(client: XdsClient, target: Target, kind: str) -> None:
    target.put(kind, *"AB")
    await client.subscribe(kind, "A", "B")
    await expect(client, target, {"A": 1, "B": 1})
    for name in ("B", "A"):
        await client.unsubscribe(kind, name)
        await expect(client, target)
        target.put(kind, name, revision=2)
        await expect(client, target)


async def unsubscribing_next_to_wildcard_is_answered(client: XdsClient, target: Target, kind: str) -> None:
    """It is not in the suite, but the protocol demands it."""
    target.put(kind, *"AB")
    await client.subscribe(kind, "*", "A", "missing")
    await client.read_rest(target)
    await client.unsubscribe(kind, "A", "missing")
    (response,) = await client.read_rest(target)
    assert (response.revisions, response.removed) == ({"A": 1}, frozenset({"missing"}))


SOTW: Final[dict[Question, tuple[str, ...]]] = {
    wildcard_gets_everything_in_one_response: WILDCARD,
    wildcard_gets_everything_after_a_change: WILDCARD,
    wildcard_gets_everything_after_an_addition: WILDCARD,
    names_get_these_resources_alone: (*WILDCARD, *NAMED),
    names_get_all_of_these_after_a_change: WILDCARD,
    names_get_the_changed_resource_alone: NAMED,
    missing_names_get_all_once_they_exist: WILDCARD,
    missing_names_get_the_new_resource_once_it_exists: NAMED,
    two_types_share_a_stream: ("CDS", "RDS"),
    dropped_names_are_no_longer_sent: (*WILDCARD, *NAMED),
    dropping_all_names_ends_the_responses: (*WILDCARD, *NAMED),
}
DELTA: Final[dict[Question, tuple[str, ...]]] = {
    names_get_these_resources_alone: (*WILDCARD, *NAMED),
    names_are_requested_one_after_the_other: (*WILDCARD, *NAMED),
    names_get_the_changed_resource_alone: (*WILDCARD, *NAMED),
    missing_name_is_reported_and_sent_once_it_exists: (*WILDCARD, *NAMED),
    removed_resource_is_named_and_sent_once_it_is_back: (*WILDCARD, *NAMED),
    unsubscribed_names_are_no_longer_sent: (*WILDCARD, *NAMED),
    two_types_share_a_stream: (*WILDCARD, *NAMED),
    unsubscribing_next_to_wildcard_is_answered: WILDCARD,
}


def ask(question: Question, kind: str, *, is_delta: bool, is_crowded: bool) -> None:
    async def asked() -> None:
        hub = Hub()
        async with serving(hub, ServerOptions(grace=0.5), lambda: 0.5) as server:
            target = Target(hub)
            async with XdsClient(server.port, is_delta=is_delta) as client:
                if is_crowded:
                    await subscribe_to_others(client, target, {kind, OTHER[kind]})
                await question(client, target, kind)

    with asyncio.Runner(loop_factory=DrainLoop) as runner:
        runner.run(asked())


async def subscribe_to_others(client: XdsClient, target: Target, without: set[str]) -> None:
    for other in {*TYPES.values(), RUNTIME} - without:
        target.put(other, "other")
        await client.subscribe(other, "other")
        await expect(client, target, {"other": 1})


@pytest.mark.parametrize("is_crowded", [False, True], ids=["alone", "next to others"])
@pytest.mark.parametrize(
    ("question", "short"), [(question, short) for question, kinds in SOTW.items() for short in kinds]
)
def test_state_of_the_world_conforms(question: Question, short: str, is_crowded: bool) -> None:
    ask(question, TYPES[short], is_delta=False, is_crowded=is_crowded)


@pytest.mark.parametrize("is_crowded", [False, True], ids=["alone", "next to others"])
@pytest.mark.parametrize(
    ("question", "short"), [(question, short) for question, kinds in DELTA.items() for short in kinds]
)
def test_delta_conforms(question: Question, short: str, is_crowded: bool) -> None:
    ask(question, TYPES[short], is_delta=True, is_crowded=is_crowded)

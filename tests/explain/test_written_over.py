"""What one policy sets and another one writes over is not told to hold, nor is anything that patches may have set."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cp.insight.explain import CallQuery, ProxyValues, explain
from cp.insight.explain.model import Explanation, FieldValue
from cp.insight.inspect import affected_proxies
from cp.resources.world import World
from cp.translate.compiler import Compiler
from tests.explain.served import DecodedSnapshot, row_fields
from tests.rules.edge import EDGE
from tests.rules.worlds import SELF_CALLING, dataplane, world_of
from tests.snapshots import policies

PATCH: Final = """---
type: MeshProxyPatch
mesh: default
name: patch
spec: {default: {appendModifications: [%s]}}
"""

OF_MESH: Final = """---
type: %s
mesh: default
name: p
spec: {to: [{targetRef: {kind: Mesh}, default: %s}]}
"""

TIMEOUT_OF_ROW: Final = (
    "{virtualHost: {operation: Patch, jsonPatches: [{op: replace, path: /routes/0/route/timeout, value: 77s}]}}"
)
TIMEOUT_OF_CLUSTER: Final = "{cluster: {operation: Patch, value: 'connectTimeout: 8s'}}"
RETRIES: Final = "{virtualHost: {operation: Patch, value: 'retryPolicy: {retryOn: 5xx, numRetries: 4}'}}"
WRITTEN_OVER: Final = "has no effect: a MeshProxyPatch writes another value in its place"


def patched(change: str, more: str = "") -> World:
    return world_of(SELF_CALLING + PATCH % change + more)


def explained(world: World) -> Explanation:
    call = CallQuery("GET", "127.0.0.1", 1001, "/")
    return explain(Compiler(policies()), policies(), world, dataplane(world), call)


def of_field(explanation: Explanation, path: str) -> FieldValue | None:
    values = (*explanation.values, *(value for backend in explanation.backends for value in backend.values))
    return next((value for value in values if value.path == path), None)


@pytest.mark.parametrize(
    ("change", "path", "more"),
    [
        pytest.param(TIMEOUT_OF_ROW, "http.requestTimeout", "", id="a default of a route"),
        pytest.param(TIMEOUT_OF_CLUSTER, "connectionTimeout", "", id="a default of a cluster"),
        pytest.param(
            TIMEOUT_OF_CLUSTER,
            "connectionTimeout",
            OF_MESH % ("MeshTimeout", "{connectionTimeout: 3s}"),
            id="a value of a policy",
        ),
    ],
)
def test_a_value_that_a_patch_writes_over_is_not_told_as_one_that_holds(change: str, path: str, more: str) -> None:
    value = of_field(explained(patched(change, more)), path)

    assert value is not None
    assert (value.served_in, value.note) == ("", WRITTEN_OVER)


def test_a_value_beside_a_patch_holds() -> None:
    value = of_field(explained(patched(TIMEOUT_OF_ROW)), "connectionTimeout")

    assert value is not None
    assert (value.served_in, value.note) == ("cluster", "")


@pytest.mark.parametrize("change", [TIMEOUT_OF_ROW, TIMEOUT_OF_CLUSTER])
def test_a_patch_that_changes_what_a_call_meets_makes_a_difference(change: str) -> None:
    value = of_field(explained(patched(change)), "appendModifications[0]")

    assert value is not None
    assert (bool(value.served_in), value.note) == (True, "")


def test_the_limit_that_a_patch_sets_is_not_taken_for_none() -> None:
    """The inbound is served the same patch. What it limits is not among the fields of policies."""
    (hop,) = explained(patched(TIMEOUT_OF_ROW)).hops

    assert "a request" not in {limit.subject for limit in hop.limits}
    assert "silence within it" in {limit.subject for limit in hop.limits}


def test_what_a_patch_may_have_set_is_not_told_as_unlimited() -> None:
    assert of_field(explained(patched(TIMEOUT_OF_ROW)), "http.requestHeadersTimeout") is None
    assert of_field(explained(world_of(SELF_CALLING)), "http.requestHeadersTimeout") is not None


def test_retries_of_a_virtual_host_are_those_of_its_rows() -> None:
    explanation = explained(patched(RETRIES))

    value = of_field(explanation, "http.numRetries")
    assert value is not None
    assert (value.winner.value, value.winner.level) == (4, "envoy")
    assert explanation.outcome.forward is not None
    assert explanation.outcome.forward.retry is not None


def test_what_servers_do_is_told_with_what_patches_do_there() -> None:
    (server,) = explained(patched(TIMEOUT_OF_ROW)).servers

    assert "appendModifications[0]" in {value.path for value in server.values}


def test_of_two_policies_that_write_one_field_the_later_is_told_to_hold() -> None:
    check = OF_MESH % ("MeshHealthCheck", "{http: {}, healthyPanicThreshold: 50}")
    breaker = OF_MESH % (
        "MeshCircuitBreaker",
        "{outlierDetection: {healthyPanicThreshold: 30, detectors: {totalFailures: {}}}}",
    )
    explanation = explained(world_of(SELF_CALLING + check + breaker))

    held = of_field(explanation, "outlierDetection.healthyPanicThreshold")
    lost = of_field(explanation, "healthyPanicThreshold")
    assert held is not None
    assert held.served_in == "cluster"
    assert lost is not None
    assert lost.note == "has no effect: a MeshCircuitBreaker writes another value in its place"


def test_a_legacy_policy_that_writes_over_a_value_is_named_as_what_it_is() -> None:
    template = """---
type: ProxyTemplate
mesh: default
name: template
selectors: [{match: {kuma.io/service: '*'}}]
conf: {modifications: [{cluster: {operation: patch, value: "connectTimeout: 78s"}}]}
"""
    timeout = OF_MESH % ("MeshTimeout", "{connectionTimeout: 3s}")
    world = world_of(SELF_CALLING + template + timeout)
    lost = of_field(explained(world), "connectionTimeout")
    policy = next(policy for policy in world.table("MeshTimeout", "default"))
    (reason,) = {effect.idle_reason for proxy in affected_proxies(world, policy) for effect in proxy.effects}

    assert lost is not None
    assert lost.note == "has no effect: a ProxyTemplate writes another value in its place"
    assert reason == lost.note


def test_a_value_of_a_cluster_is_the_health_check_s_where_the_breaker_says_nothing_of_it() -> None:
    check = OF_MESH % ("MeshHealthCheck", "{http: {}, healthyPanicThreshold: 50}")
    breaker = OF_MESH % ("MeshCircuitBreaker", "{connectionLimits: {maxRetries: 3}}")
    value = of_field(explained(world_of(SELF_CALLING + check + breaker)), "healthyPanicThreshold")

    assert value is not None
    assert (value.served_in, value.note) == ("cluster", "")


OVER: Final = """---
type: MeshRetry
mesh: default
name: a-%s
spec: {to: [{targetRef: {kind: Mesh}, default: {http: {retryOn: %s, numRetries: 2}}}]}
"""


@pytest.mark.parametrize(("weaker", "note"), [("", "makes no difference"), (OVER % ("z", "[5xx]"), "on the default ")])
def test_a_value_that_is_as_good_as_none_makes_a_difference_over_a_weaker_one(weaker: str, note: str) -> None:
    """An empty list stands for the default conditions. Without it those of the weaker policy would count."""
    value = of_field(explained(world_of(SELF_CALLING + OVER % ("a", "[]") + weaker)), "http.retryOn")

    assert value is not None
    assert value.winner.value == []
    assert value.note.startswith(note)
    assert bool(value.served_in) is bool(weaker)


def test_the_values_of_an_outbound_are_told_the_same_way() -> None:
    world = patched(TIMEOUT_OF_ROW)
    told: dict[str, Any] = ProxyValues(Compiler(policies()), policies(), world, dataplane(world)).outbound(
        "127.0.0.1:1001"
    )
    (route,) = told["routes"]

    by_path = {value["path"]: value for value in route["values"]}
    assert by_path["http.requestTimeout"]["note"] == WRITTEN_OVER
    assert by_path["appendModifications[0]"]["at"] == "route"


@pytest.mark.parametrize(("change", "note"), [("", ""), (PATCH % TIMEOUT_OF_ROW, WRITTEN_OVER)])
def test_a_timeout_of_a_gateway_that_a_patch_writes_over_is_not_told_as_one_that_holds(change: str, note: str) -> None:
    world = world_of(EDGE + change)
    call = CallQuery("GET", "shop.example", None, "/cart")
    explanation = explain(Compiler(policies()), policies(), world, dataplane(world, "edge"), call)

    value = of_field(explanation, "http.requestTimeout")
    assert value is not None
    assert (bool(value.served_in), value.note) == (not note, note)


def test_so_it_is_served() -> None:
    """The judge of this file: the patch is in the route table."""
    world = patched(TIMEOUT_OF_ROW)
    snapshot = DecodedSnapshot(Compiler(policies()).snapshot(world, dataplane(world)))
    manager: Any = snapshot.listener("127.0.0.1", 1001)

    assert row_fields(snapshot.row(manager, 0), "http")["MeshTimeout", "http.requestTimeout"] == "1m17s"

"""Which kinds may stand where, and what each of them may have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cp.model.target import RANK, TargetRef
from cp.policies import Policy, discover
from cp.resources.schema import wire_names
from cp.resources.targets import target
from tests.resources.reading import accepted, policy, refused, warned

WITH: dict[str, str] = {"Mesh": "", "Dataplane": "", "MeshSubset": ""}


def item(kind: str, conf: str) -> str:
    return f"{{to: [{{targetRef: {{kind: {kind}, name: a}}, default: {conf}}}]}}"


@pytest.mark.parametrize("kind", RANK)
def test_each_kind_is_known_and_may_be_refused(kind: str) -> None:
    ref = TargetRef(kind=kind, name=None if kind in WITH else "a")

    assert list(target(ref, (kind,))) == []
    assert [found.path for found in target(ref, ())] == ["kind"]


@pytest.mark.parametrize(
    ("ref", "paths"),
    [
        (TargetRef(kind="Mesh", name="a", tags={"b": "c"}, section_name="d"), {"name", "tags", "sectionName"}),
        (TargetRef(kind="Mesh", proxy_types=[]), set()),
        (TargetRef(kind="Mesh", proxy_types=["Sidecars"]), {"proxyTypes[0]"}),
        (TargetRef(kind="MeshSubset", tags={"a": "*", "b!": "c", "d": ""}), {'tags["a"]', 'tags["b!"]', 'tags["d"]'}),
        (TargetRef(kind="MeshService"), {""}),
        (TargetRef(kind="MeshService", name="A"), {"name"}),
        (TargetRef(kind="MeshService", name="a", labels={"b": "c"}), {"labels"}),
        (TargetRef(kind="MeshService", labels={"b": "c"}, section_name="http"), set()),
        (TargetRef(kind="MeshServiceSubset", tags={"a": "*"}), {"name"}),
        (TargetRef(kind="MeshHTTPRoute", name="a", section_name="b", mesh="c"), {"sectionName", "mesh"}),
        (TargetRef(kind="MeshGateway", name="a", tags={"b": "c"}), {"tags"}),
        (TargetRef(kind="MeshExternalService", name="a", namespace="b"), set()),
    ],
)
def test_what_each_kind_may_have(ref: TargetRef, paths: set[str]) -> None:
    assert {found.path for found in target(ref, (ref.kind,))} == paths


def test_only_the_system_s_policies_may_be_for_a_gateway() -> None:
    spec = "{targetRef: {kind: MeshGateway, name: a}, to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1h}}]}"

    accepted(policy("MeshTimeout", spec))
    consumer = policy("MeshTimeout", spec, labels="{kuma.io/policy-role: consumer}")
    assert refused(consumer) == ["spec.targetRef.kind"]


def test_a_policy_for_a_gateway_is_for_all_services() -> None:
    to = "[{targetRef: {kind: MeshService, name: a}, default: {idleTimeout: 1h}}]"

    assert refused(policy("MeshTimeout", f"{{targetRef: {{kind: MeshGateway, name: a}}, to: {to}}}")) == [
        "spec.to[0].targetRef.kind"
    ]


def test_a_section_of_a_dataplane_has_inbounds_alone() -> None:
    top = "targetRef: {kind: Dataplane, labels: {a: b}, sectionName: http}"
    conf = "default: {idleTimeout: 1h}"

    accepted(policy("MeshTimeout", f"{{{top}, rules: [{{{conf}}}]}}"))
    assert refused(policy("MeshTimeout", f"{{{top}, to: [{{targetRef: {{kind: Mesh}}, {conf}}}]}}")) == [
        "spec.targetRef.sectionName"
    ]


@pytest.mark.parametrize(
    ("kind", "route", "conf", "paths"),
    [
        ("MeshTimeout", "MeshHTTPRoute", "{http: {requestTimeout: 1s, streamIdleTimeout: 0s}}", []),
        ("MeshTimeout", "MeshHTTPRoute", "{idleTimeout: 1s, http: {requestTimeout: 1s}}", ["idleTimeout"]),
        (
            "MeshTimeout",
            "MeshHTTPRoute",
            "{http: {requestTimeout: 1s, requestHeadersTimeout: 1s}}",
            ["http.requestHeadersTimeout"],
        ),
        ("MeshTimeout", "MeshTCPRoute", "{idleTimeout: 1s}", []),
        ("MeshTimeout", "MeshTCPRoute", "{connectionTimeout: 1s, http: {}}", ["connectionTimeout", "http"]),
        ("MeshRetry", "MeshHTTPRoute", "{http: {numRetries: 0}, grpc: {numRetries: 1}}", []),
        ("MeshRetry", "MeshHTTPRoute", "{tcp: {maxConnectAttempt: 1}}", ["tcp"]),
        ("MeshRetry", "MeshTCPRoute", "{tcp: {maxConnectAttempt: 1}}", []),
        ("MeshRetry", "MeshTCPRoute", "{http: {numRetries: 1}}", ["http"]),
        ("MeshAccessLog", "MeshHTTPRoute", "{backends: []}", []),
        ("MeshAccessLog", "MeshTCPRoute", "{backends: []}", []),
        (
            "MeshLoadBalancingStrategy",
            "MeshTCPRoute",
            "{hashPolicies: [{type: Connection, connection: {sourceIP: true}}, {type: Header, header: {name: a}}]}",
            ["hashPolicies[1].type"],
        ),
        ("MeshLoadBalancingStrategy", "MeshHTTPRoute", "{localityAwareness: {}}", ["localityAwareness"]),
    ],
)
def test_a_route_carries_what_it_can(kind: str, route: str, conf: str, paths: list[str]) -> None:
    assert refused(policy(kind, item(route, conf))) == [f"spec.to[0].default.{path}" for path in paths]


@pytest.mark.parametrize(
    ("kind", "conf", "paths"),
    [
        ("MeshTimeout", "{http: {requestTimeout: 1s, streamIdleTimeout: 0s}}", []),
        ("MeshTimeout", "{connectionTimeout: 1s, idleTimeout: 1s}", ["connectionTimeout", "idleTimeout"]),
        (
            "MeshTimeout",
            "{http: {requestTimeout: 1s, requestHeadersTimeout: 1s, maxStreamDuration: 1s}}",
            ["http.requestHeadersTimeout", "http.maxStreamDuration"],
        ),
        ("MeshRetry", "{http: {numRetries: 0}, grpc: {numRetries: 1}}", []),
        ("MeshRetry", "{http: {numRetries: 0}, tcp: {maxConnectAttempt: 1}}", ["tcp"]),
    ],
)
def test_a_route_at_the_top_carries_no_more(kind: str, conf: str, paths: list[str]) -> None:
    spec = f"{{targetRef: {{kind: MeshHTTPRoute, name: a}}, to: [{{targetRef: {{kind: Mesh}}, default: {conf}}}]}}"

    assert refused(policy(kind, spec)) == [f"spec.to[0].default.{path}" for path in paths]


@pytest.mark.parametrize("kind", ["MeshTimeout", "MeshRetry"])
@pytest.mark.parametrize("route", ["MeshHTTPRoute", "MeshTCPRoute"])
def test_a_policy_with_a_route_at_the_top_has_no_items_for_routes(kind: str, route: str) -> None:
    """The conf would hold for the route at the top, whatever the item names."""
    conf = "{http: {requestTimeout: 1s}}" if kind == "MeshTimeout" else "{http: {numRetries: 1}}"
    to = f"[{{targetRef: {{kind: {route}, name: b}}, default: {conf}}}]"
    spec = f"{{targetRef: {{kind: MeshHTTPRoute, name: a}}, to: {to}}}"

    assert refused(policy(kind, spec)) == ["spec.to[0].targetRef.kind"]


CONF_OF_ROUTE = {
    "MeshTimeout": "{http: {requestTimeout: 1s}}",
    "MeshRetry": "{http: {numRetries: 1}}",
    "MeshAccessLog": "{backends: []}",
    "MeshLoadBalancingStrategy": "{hashPolicies: []}",
}


@pytest.mark.parametrize("kind", CONF_OF_ROUTE)
def test_a_policy_for_a_gateway_may_be_for_a_route(kind: str) -> None:
    """For each of the policies that document 000 names (record 0024)."""
    to = f"[{{targetRef: {{kind: MeshHTTPRoute, name: a}}, default: {CONF_OF_ROUTE[kind]}}}]"

    accepted(policy(kind, f"{{targetRef: {{kind: MeshGateway, name: a}}, to: {to}}}"))


@pytest.mark.parametrize(
    ("kind", "conf"),
    [
        ("MeshCircuitBreaker", "{connectionLimits: {maxConnections: 1}}"),
        ("MeshHealthCheck", "{interval: 5s, timeout: 1s, tcp: {}}"),
    ],
)
def test_of_a_route_that_cannot_stand_there_nothing_further_is_told(kind: str, conf: str) -> None:
    assert refused(policy(kind, item("MeshHTTPRoute", conf))) == ["spec.to[0].targetRef.kind"]


def test_the_old_way_to_mean_a_route_is_accepted_with_a_warning() -> None:
    spec = (
        "{targetRef: {kind: MeshHTTPRoute, name: a},"
        " to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 1s}}}]}"
    )

    assert warned(policy("MeshTimeout", spec)) == ["spec.targetRef.kind"]


@pytest.mark.parametrize("policy_", discover(), ids=lambda one: one.kind.name)
def test_every_field_that_a_route_can_carry_is_one(policy_: Policy[Any]) -> None:
    carried = {*policy_.targets.http_route, *policy_.targets.tcp_route}

    schema: Any = policy_.conf
    assert not carried - set(wire_names(schema))


@pytest.mark.parametrize("policy_", discover(), ids=lambda one: one.kind.name)
def test_the_table_and_the_shape_of_a_policy_agree(policy_: Policy[Any]) -> None:
    shape = policy_.kind.policy
    assert shape is not None
    assert (shape.to, shape.from_) == (bool(policy_.targets.to), bool(policy_.targets.from_))
    fields = {field.encode_name for field in msgspec.structs.fields(policy_.kind.schema)}
    assert shape.rules == ("rules" in fields)
    assert shape.single == ("default" in fields)

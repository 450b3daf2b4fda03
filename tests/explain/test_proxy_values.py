"""The values of a proxy are those that an explanation of a call has: at its inbounds, and for each route."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cp.insight.explain import AmbiguousCall, ProxyValues, explain
from cp.insight.explain.model import ENVOY
from cp.insight.simulate import UnsimulatedFeature
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import TYPES
from tests.explain.test_served import calls
from tests.random_mesh import CALLS, Mesh, for_meshes
from tests.rules.edge import EDGE
from tests.rules.worlds import dataplane, world_of
from tests.snapshots import policies

TIMEOUT = """---
type: MeshTimeout
mesh: default
name: t
spec:
  targetRef: {kind: MeshGateway, name: edge}
  to: [{targetRef: {kind: MeshHTTPRoute, name: shop}, default: {http: {requestTimeout: 3s}}}]
"""

RETRIES = """\
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web-1
networking:
  address: 127.0.0.1
  inbound: [{port: 8080, tags: {kuma.io/service: web}}]
  outbound: [{port: 10080, backendRef: {kind: MeshService, name: shop, port: 80}}]
---
type: MeshService
mesh: default
name: shop
spec: {ports: [{port: 80, appProtocol: http}]}
---
type: MeshRetry
mesh: default
name: r
spec: {to: [{targetRef: {kind: Mesh}, default: {http: {perTryTimeout: 7s}}}]}
"""

ZONES = """\
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web-1
networking:
  address: 127.0.0.1
  inbound: [{port: 8080, tags: {kuma.io/service: web, TAG}}]
  outbound: [{port: 10080, tags: {kuma.io/service: bank}}]
---
type: ExternalService
mesh: default
name: bank-east
networking: {address: "127.0.0.2:443"}
tags: {kuma.io/service: bank, kuma.io/zone: east, kuma.io/protocol: http}
---
type: ExternalService
mesh: default
name: bank-west
networking: {address: "127.0.0.3:443"}
tags: {kuma.io/service: bank, kuma.io/zone: west, kuma.io/protocol: http}
---
type: MeshLoadBalancingStrategy
mesh: default
name: zones
spec:
  to:
  - targetRef: {kind: Mesh}
    default: {localityAwareness: CONF}
"""


def values_of(compiler: Compiler, world: World, proxy: Resource) -> ProxyValues:
    return ProxyValues(compiler, policies(), world, proxy)


def acting(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those with an effect, without the notes and what Envoy does by itself: both depend on the call."""
    return [value | {"note": ""} for value in values if value["at"] and value["said"]["level"] != ENVOY]


@for_meshes(CALLS, times=0.25)
def test_a_route_has_the_values_that_are_explained_for_a_call_by_it(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for proxy, address, call in calls(world, Random(mesh.seed)):
        try:
            explained = explain(compiler, policies(), world, proxy, call).as_json()
        except (AmbiguousCall, UnsimulatedFeature):
            continue
        told = values_of(compiler, world, proxy).outbound(f"{address.address}:{address.port}")
        row = next((row for row in explained["rows"] if row["taken"]), None)
        if explained["outcome"]["forward"] is None:
            continue
        # A connection for which no route has a rule is explained without a row, and its values have one.
        (route,) = [each for each in told["routes"] if row is None or each["row"]["index"] == row["index"]]
        backends = {backend["cluster"]: backend["values"] for backend in told["backends"]}

        assert route["row"]["owner"] == (None if row is None else row["owner"])
        assert route["row"]["place"] == (None if row is None else row["place"])
        assert acting(route["values"]) == acting(explained["values"])
        for backend in explained["backends"]:
            assert backends.get(backend["cluster"], []) == backend["values"]


def test_inbounds_have_their_values_and_each_part_names_its_envoy_resources() -> None:
    compiler, world = Compiler(policies()), world_of(EDGE)
    web = next(proxy for proxy in world.table("Dataplane", "default") if not proxy.spec.is_builtin_gateway)
    (inbound,) = values_of(compiler, world, web).listed()["inbounds"]
    snapshot = compiler.snapshot(world, web)
    served = {packed.name for type_url in TYPES for packed in snapshot.of(type_url)}

    assert {value["policy"] for value in inbound["values"]} >= {"MeshTimeout"}
    assert {resource["type"] for resource in inbound["resources"]} >= {"listeners"}
    assert {resource["name"] for resource in inbound["resources"]} <= served


def test_a_builtin_gateway_has_values_at_its_listeners() -> None:
    compiler, world = Compiler(policies()), world_of(EDGE + TIMEOUT)
    listed = values_of(compiler, world, dataplane(world, "edge")).listed()

    (timeout,) = [
        value
        for part in listed["listeners"]
        for value in part["values"]
        if value["path"] == "http.requestTimeout" and value["said"]["policy"] is not None
    ]
    assert (timeout["said"]["value"], timeout["said"]["policy"]["name"]) == ("3s", "t")
    assert listed["inbounds"] == []


def test_an_outbound_that_is_not_there_is_answered_with_those_that_are() -> None:
    world = world_of(EDGE)

    with pytest.raises(AmbiguousCall, match=r"has no outbound `127\.0\.0\.1:1`; there is none"):
        values_of(Compiler(policies()), world, dataplane(world, "edge")).outbound("127.0.0.1:1")


def test_a_route_has_the_conditions_of_retries_that_no_policy_sets() -> None:
    world = world_of(RETRIES)
    values = values_of(Compiler(policies()), world, dataplane(world, "web-1")).outbound("127.0.0.1:10080")

    (route,) = values["routes"]
    retried = {value["path"]: value["said"] for value in route["values"] if value["policy"] == "MeshRetry"}
    assert retried["http.perTryTimeout"]["value"] == "7s"
    assert retried["http.retryOn"]["value"] == ["gateway-error", "connect-failure", "refused-stream"]
    assert retried["http.retryOn"]["level"] == "built-in"
    assert "http.numRetries" not in retried  # it is what Envoy does by itself


@pytest.mark.parametrize(
    ("tag", "conf", "acting_paths"),
    [
        ("kuma.io/zone: east", "{disabled: true}", {"localityAwareness.disabled"}),
        ("team: red", "{localZone: {affinityTags: [{key: team}]}}", set()),
    ],
)
def test_external_services_are_arranged_by_zone_alone(tag: str, conf: str, acting_paths: set[str]) -> None:
    world = world_of(ZONES.replace("TAG", tag).replace("CONF", conf))
    values = values_of(Compiler(policies()), world, dataplane(world, "web-1")).outbound("127.0.0.1:10080")

    (backend,) = values["backends"]
    locality = {value["path"] for value in backend["values"] if value["path"].startswith("localityAwareness")}
    assert locality == acting_paths

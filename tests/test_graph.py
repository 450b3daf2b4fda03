"""The graph of a mesh is what its proxies are served, and no larger than what they are served alike."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cp.insight.graph import CallerGroup, GraphMaker, GraphPoint, MeshGraph
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import CLUSTER
from tests.random_mesh import EDGE, LEGACY, Mesh, for_meshes
from tests.snapshots import policies
from tests.support.uncompilable import cannot_compile

BESIDE_CALLS = ("localhost", "collector", "inbound", "outbound", "koguma")
"""What the clusters are called that are for no call: inbounds, what passes through, and where logs and traces go."""

SHOP = """\
type: Mesh
name: default
meshServices: {mode: Everywhere}
---
type: MeshService
mesh: default
name: cart
labels: {kuma.io/display-name: cart}
spec:
  selector: {dataplaneTags: {kuma.io/service: cart}}
  ports: [{name: main, port: 80, targetPort: 8080, appProtocol: http}]
---
type: MeshService
mesh: default
name: cart-next
spec:
  selector: {dataplaneTags: {kuma.io/service: cart-next}}
  ports: [{name: main, port: 80, targetPort: 8080, appProtocol: http}]
---
type: MeshHTTPRoute
mesh: default
name: split
spec:
  to:
    - targetRef: {kind: MeshService, name: cart}
      rules:
        - matches: [{path: {type: PathPrefix, value: /new}}]
          default:
            backendRefs:
              - {kind: MeshService, name: cart, port: 80, weight: 90}
              - {kind: MeshService, name: cart-next, port: 80, weight: 10}
        - matches: [{path: {type: PathPrefix, value: /gone}}]
          default:
            backendRefs: [{kind: MeshService, name: nowhere, port: 80}]
"""


EVERYWHERE = """\
type: MeshMultiZoneService
mesh: default
name: cart-everywhere
spec:
  selector: {meshService: {matchLabels: {kuma.io/display-name: cart}}}
  ports: [{port: 80, appProtocol: http}]
---
type: MeshExternalService
mesh: default
name: bank
spec:
  match: {type: HostnameGenerator, port: 443, protocol: tcp}
  endpoints: [{address: bank.example, port: 443}]
"""
OUTSIDE = """\
type: ExternalService
mesh: default
name: post
tags: {kuma.io/service: post}
networking: {address: "post.example:443"}
"""


def dataplane(name: str, service: str, *called: str) -> dict[str, Any]:
    outbound = [
        {"port": 10000 + number, "backendRef": {"kind": "MeshService", "name": name, "port": 80}}
        for number, name in enumerate(called)
    ]
    inbound = [{"port": 8080, "name": "main", "tags": {"kuma.io/service": service}}]
    networking = {"address": "127.0.0.1", "inbound": inbound, "outbound": outbound}
    return {"type": "Dataplane", "mesh": "default", "name": name, "networking": networking}


def graph_of(*dataplanes: dict[str, Any], more: str = "") -> MeshGraph:
    data = [*yaml.safe_load_all(SHOP), *yaml.safe_load_all(more), *dataplanes]
    keys = (Key(each["type"], each.get("mesh", ""), each["name"]) for each in data)
    documents = [Document(key, each) for key, each in zip(keys, data, strict=True)]
    world = World.of(documents, kinds(policies()))
    assert not list(world.findings)
    return GraphMaker(Compiler(policies())).graph(world, "default")


def judge(mesh: Mesh) -> None:
    """The clusters to which each proxy's calls lead are those that it is served, worked out anew."""
    world = mesh.world()
    graph = GraphMaker(Compiler(policies())).graph(world, "default")
    clusters = {key: _clusters(group) for group in graph.groups for key in group.proxies}
    for proxy in world.table("Dataplane", "default"):
        served = {packed.name for packed in Compiler(policies()).snapshot(world, proxy).of(CLUSTER)}
        assert {name for name in served if not name.startswith(BESIDE_CALLS)} == clusters[proxy.key], proxy.key


def _clusters(group: CallerGroup) -> set[str]:
    return {cluster for call in group.calls for cluster in call.clusters}


@for_meshes()
def test_the_edges_are_what_each_proxy_is_served(mesh: Mesh) -> None:
    judge(mesh)


@for_meshes(EDGE, times=0.5)
def test_the_edges_of_gateways_are_what_they_are_served(mesh: Mesh) -> None:
    judge(mesh)


@for_meshes(LEGACY, times=0.5)
def test_the_edges_of_a_mesh_with_legacy_policies_are_what_each_proxy_is_served(mesh: Mesh) -> None:
    judge(mesh)


COPIED = """\
type: MeshService
mesh: default
name: audit
spec:
  ports: [{port: 80, appProtocol: http}]
---
type: MeshHTTPRoute
mesh: default
name: copied
spec:
  to:
    - targetRef: {kind: MeshService, name: cart}
      rules:
        - matches: [{path: {type: Exact, value: /copied}}]
          default:
            filters:
              - type: RequestMirror
                requestMirror: {percentage: 20, backendRef: {kind: MeshService, name: audit, port: 80, WEIGHT}}
"""


@pytest.mark.parametrize("weight", ["", "weight: 0"])  # which has no meaning for copies
def test_a_route_has_the_services_that_receive_copies(weight: str) -> None:
    graph = graph_of(dataplane("web-1", "web", "cart"), more=COPIED.replace("WEIGHT", weight))

    (group,) = [group for group in graph.groups if group.calls]
    (call,) = group.calls
    (route,) = [route for route in call.routes if route.copies]
    assert [(copy.point, copy.section, copy.percentage) for copy in route.copies] == [
        (GraphPoint("MeshService", "audit"), "80", 20.0)
    ]
    assert {copy.cluster for copy in route.copies} < set(call.clusters)


def test_a_route_has_the_shares_of_its_backends_and_why_it_answers_with_an_error() -> None:
    graph = graph_of(
        dataplane("web-1", "web", "cart"), dataplane("cart-1", "cart"), dataplane("cart-next-1", "cart-next")
    )

    (group,) = [group for group in graph.groups if group.calls]
    (call,) = group.calls
    assert group.callers == (GraphPoint("kuma.io/service", "web"),)
    assert (call.called, call.section, call.protocol) == (GraphPoint("MeshService", "cart"), "main", "http")
    shares = {
        route.path: [(split.point and split.point.name, split.weight) for split in route.splits]
        for route in call.routes
    }
    assert shares == {"/new": [("cart", 90), ("cart-next", 10)], "/gone": [(None, 1)], "/": [("cart", 1)]}
    assert [bool(route.reason) for route in call.routes] == [route.path == "/gone" for route in call.routes]


def test_a_service_has_its_proxies_and_protocol_and_is_there_without_any() -> None:
    graph = graph_of(dataplane("web-1", "web", "cart"), dataplane("cart-1", "cart"), dataplane("cart-2", "cart"))

    services = {service.point.name: service for service in graph.services}
    assert {name: [proxy.name for proxy in service.proxies] for name, service in services.items()} == {
        "cart": ["cart-1", "cart-2"],
        "cart-next": [],
        "web": ["web-1"],
    }
    assert services["cart"].protocols == ("http",)


def proxies_of(graph: MeshGraph) -> dict[tuple[str, str], list[str]]:
    points = ((service.point, service.proxies) for service in graph.services)
    return {(point.kind, point.name): [proxy.name for proxy in proxies] for point, proxies in points}


def test_a_service_of_several_zones_has_the_proxies_of_those_of_which_it_is_made() -> None:
    graph = graph_of(dataplane("cart-1", "cart"), dataplane("cart-2", "cart"), more=EVERYWHERE)

    assert proxies_of(graph)["MeshMultiZoneService", "cart-everywhere"] == ["cart-1", "cart-2"]


def test_a_tag_beside_a_mesh_service_has_its_proxies_too() -> None:
    caller = dataplane("web-1", "web")
    caller["networking"]["outbound"] = [{"port": 10000, "tags": {"kuma.io/service": "cart"}}]

    graph = graph_of(caller, dataplane("cart-1", "cart"))

    assert proxies_of(graph)["kuma.io/service", "cart"] == ["cart-1"]
    assert proxies_of(graph)["MeshService", "cart"] == ["cart-1"]


def test_what_is_outside_the_mesh_says_so() -> None:
    caller = dataplane("web-1", "web")
    caller["networking"]["outbound"] = [{"port": 10000, "tags": {"kuma.io/service": "post"}}]

    graph = graph_of(caller, more=f"{EVERYWHERE}---\n{OUTSIDE}")

    assert {service.point.name for service in graph.services if service.is_outside} == {"bank", "post"}


def test_proxies_that_are_served_the_same_calls_are_one_group() -> None:
    callers = [dataplane(f"web-{number}", f"web-{number % 3}", "cart", "cart-next") for number in range(30)]

    graph = graph_of(*callers, dataplane("cart-1", "cart"))

    (group,) = [group for group in graph.groups if group.calls]
    assert (len(group.proxies), len(group.callers), len(group.calls)) == (30, 3, 2)


def test_a_proxy_that_cannot_be_compiled_is_named_and_all_others_are_in_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cannot_compile(monkeypatch, "web-2")
    graph = graph_of(dataplane("web-1", "web", "cart"), dataplane("web-2", "web", "cart"))

    assert [key.name for key in graph.failed] == ["web-2"]
    assert [[key.name for key in group.proxies] for group in graph.groups if group.calls] == [["web-1"]]

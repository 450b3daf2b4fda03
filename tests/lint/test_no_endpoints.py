"""What is told of calls to which nobody answers is what becomes of them: 503, an end, or an answer of others."""

from __future__ import annotations

from typing import Final

import pytest

from cp.insight.explain import CallQuery, explain
from cp.insight.lint import lint
from cp.translate.compiler import Compiler
from tests.rules.worlds import dataplane, world_of
from tests.snapshots import policies

MESH: Final = """
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  outbound:
    - {port: 1001, OUTBOUND}
---
type: Dataplane
mesh: default
name: shop-v1
networking:
  address: 10.0.0.2
  inbound: [{port: 80, tags: {kuma.io/service: shop-v1, kuma.io/protocol: http}}]
  outbound: []
---
type: MeshService
mesh: default
name: shop
spec:
  selector: {dataplaneTags: {kuma.io/service: shop}}
  ports: [{port: 80, appProtocol: PROTOCOL}]
"""

HTTP_ROUTE: Final = """---
type: MeshHTTPRoute
mesh: default
name: moved
spec:
  to:
    - targetRef: {kind: MeshService, name: shop}
      rules:
        - matches: [{path: {type: PathPrefix, value: PATH}}]
          default: DEFAULT
"""

TCP_ROUTE: Final = """---
type: MeshTCPRoute
mesh: default
name: moved
spec:
  to:
    - targetRef: {kind: MeshService, name: shop}
      rules: [{default: {backendRefs: [{kind: MeshService, name: shop-v1}]}}]
"""

BY_REFERENCE: Final = "backendRef: {kind: MeshService, name: shop, port: 80}"
BY_TAG: Final = "tags: {kuma.io/service: shop}"
TO_V1: Final = "{backendRefs: [{kind: MeshService, name: shop-v1}]}"


def mesh_with(protocol: str = "http", outbound: str = BY_REFERENCE, more: str = "") -> str:
    return MESH.replace("PROTOCOL", protocol).replace("OUTBOUND", outbound) + more


def http_route(path: str, default: str = TO_V1) -> str:
    return HTTP_ROUTE.replace("PATH", path).replace("DEFAULT", default)


def told(text: str, code: str) -> list[str]:
    return [finding.message for finding in lint(policies(), world_of(text)) if finding.code == code]


def endpoints(text: str) -> list[str]:
    """Those to which a call is explained to go."""
    world = world_of(text)
    call = CallQuery("GET", "127.0.0.1", 1001, "/")
    explanation = explain(Compiler(policies()), policies(), world, dataplane(world), call)
    return [endpoint for backend in explanation.backends for endpoint in backend.endpoints]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(mesh_with(), ["calls to it are answered with 503"], id="requests"),
        pytest.param(mesh_with("tcp"), ["connections to it are closed"], id="connections"),
        pytest.param(mesh_with(more=http_route("/")), [], id="all requests go elsewhere"),
        pytest.param(mesh_with(more=http_route("/new")), ["calls to it are answered with 503"], id="some go elsewhere"),
        pytest.param(mesh_with("tcp", more=TCP_ROUTE), [], id="connections go elsewhere"),
    ],
)
def test_of_a_port_behind_which_nobody_is_it_is_told_what_becomes_of_calls(text: str, expected: list[str]) -> None:
    assert told(text, "no-endpoints") == [f"no inbound serves port 80: {effect}" for effect in expected]
    assert bool(endpoints(text)) is not bool(expected)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param("", ["no inbound has the tags of shop: connections to it are closed"], id="nobody is there"),
        pytest.param(TCP_ROUTE, [], id="connections go elsewhere"),
    ],
)
def test_of_an_outbound_by_tags_that_nobody_has_it_is_told_what_becomes_of_calls(
    more: str, expected: list[str]
) -> None:
    """Nobody says what is spoken there, so the outbound takes connections."""
    text = mesh_with(outbound=BY_TAG, more=more)

    of_outbound = [message for message in told(text, "no-endpoints") if "has the tags" in message]
    assert (of_outbound, bool(endpoints(text))) == (expected, not expected)


REDIRECT: Final = "{type: RequestRedirect, requestRedirect: {hostname: else.where}}"


def test_a_backend_that_is_missing_fails_no_request_that_is_redirected() -> None:
    route = http_route("/", f"{{filters: [{REDIRECT}], backendRefs: [{{kind: MeshService, name: gone, port: 80}}]}}")
    text = mesh_with(more=route)

    assert told(text, "target-missing") == ["there is no MeshService gone, which gets nothing yet"]
    assert told(text, "refers-to-nothing") == []


def test_no_request_that_is_redirected_is_sent_to_a_backend_as_http() -> None:
    default = f"{{filters: [{REDIRECT}], backendRefs: [{{kind: MeshService, name: redis, port: 80}}]}}"
    redis = "---\ntype: MeshService\nmesh: default\nname: redis\nspec: {ports: [{port: 80}]}\n"

    assert told(mesh_with(more=http_route("/", default) + redis), "backend-not-http") == []


@pytest.mark.parametrize(
    ("selected", "labels", "expected"),
    [
        pytest.param("{kind: Mesh}", "{}", ["refers-to-nothing"], id="everybody"),
        pytest.param("{kind: Dataplane, name: gone}", "{}", ["target-missing"], id="nobody"),
        pytest.param("{kind: Mesh}", "{kuma.io/effect: shadow}", ["target-missing"], id="a shadow"),
    ],
)
def test_a_backend_that_is_missing_fails_no_request_by_a_route_that_nobody_has(
    selected: str, labels: str, expected: list[str]
) -> None:
    route = http_route("/", "{backendRefs: [{kind: MeshService, name: gone, port: 80}]}")
    route = route.replace("spec:", f"labels: {labels}\nspec:\n  targetRef: {selected}")
    of_route = [finding.code for finding in lint(policies(), world_of(mesh_with(more=route)))]

    assert [code for code in of_route if code in {"refers-to-nothing", "target-missing"}] == expected


@pytest.mark.parametrize(("weight", "is_told"), [("0", True), ("null", False), ("1", False)])
def test_a_weight_that_is_null_is_none_that_is_zero(weight: str, is_told: bool) -> None:
    text = mesh_with(more=http_route("/", f"{{backendRefs: [{{kind: MeshService, name: shop-v1, weight: {weight}}}]}}"))

    assert (bool(told(text, "zero-weights")), bool(endpoints(text))) == (is_told, not is_told)


RETRIED: Final = """---
type: MeshRetry
mesh: default
name: r
spec: {to: [{targetRef: {kind: Mesh}, default: {http: {numRetries: 3}}}]}
"""


@pytest.mark.parametrize(
    ("outbound", "expected"),
    [(BY_TAG, "the tag `kuma.io/protocol` of its inbounds"), (BY_REFERENCE, "`appProtocol` of its port")],
)
def test_it_is_told_where_a_protocol_is_said(outbound: str, expected: str) -> None:
    text = mesh_with("tcp", outbound, http_route("/") + RETRIED)

    hints = [finding.hint for finding in lint(policies(), world_of(text)) if finding.code == "no-meaning"]
    assert len(hints) > 1
    assert all(f"say so in {expected}" in hint for hint in hints)

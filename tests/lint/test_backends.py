"""What is told of the backends of routes: those that do not speak HTTP, and rewrites of hosts that do nothing."""

from __future__ import annotations

from typing import Final

import pytest

from cp.insight.lint import lint
from cp.model.violation import Finding
from tests.rules.edge import EDGE
from tests.rules.worlds import world_of
from tests.snapshots import policies

NOT_HTTP: Final = "backend-not-http"
BACKEND: Final = "{kind: MeshService, name: web, port: 80}"
FLAG: Final = "spec.to[0].rules[0].default.filters[0].urlRewrite.hostToBackendHostname"


def told(text: str, code: str) -> list[Finding]:
    return [finding for finding in lint(policies(), world_of(text)) if finding.code == code]


def test_at_a_gateway_a_backend_whose_port_speaks_tcp_is_told() -> None:
    (finding,) = told(EDGE.replace("appProtocol: http", "appProtocol: tcp"), NOT_HTTP)

    assert (str(finding.resource), finding.path) == (
        "MeshHTTPRoute default/shop",
        "spec.to[0].rules[0].default.backendRefs[0]",
    )
    assert finding.message.startswith("requests are sent to MeshService web as HTTP, and its protocol is tcp")
    assert "`appProtocol` of its port" in finding.hint


@pytest.mark.parametrize("protocol", ["http", "http2", "grpc"])
def test_a_backend_that_speaks_some_http_is_not_told(protocol: str) -> None:
    assert not told(EDGE.replace("appProtocol: http", f"appProtocol: {protocol}"), NOT_HTTP)


def test_a_backend_without_a_port_is_judged_by_the_tag() -> None:
    by_tag = EDGE.replace(BACKEND, "{kind: MeshService, name: web}")

    assert not told(by_tag, NOT_HTTP)
    (finding,) = told(by_tag.replace(", kuma.io/protocol: http", ""), NOT_HTTP)
    assert "the tag `kuma.io/protocol` of its inbounds" in finding.hint


def test_a_backend_outside_of_the_mesh_is_judged_by_its_match() -> None:
    outside = EDGE.replace(BACKEND, "{kind: MeshExternalService, name: out, port: 443}", 1) + OUTSIDE

    (finding,) = told(outside % "tcp", NOT_HTTP)
    assert "`match.protocol`" in finding.hint
    assert not told(outside % "http", NOT_HTTP)


def test_a_backend_that_gets_nothing_is_not_told() -> None:
    other = "{kind: MeshService, name: web, port: 80, weight: 0}, {kind: MeshService, name: api, port: 80}"
    text = EDGE.replace("appProtocol: http", "appProtocol: tcp").replace(BACKEND, other, 1)

    assert not told(text, NOT_HTTP)


CALLER: Final = """---
type: Dataplane
mesh: default
name: caller
networking:
  address: 10.0.0.8
  inbound: [{port: 8090, tags: {kuma.io/service: caller, kuma.io/protocol: http}}]
  outbound: [{port: 1080, backendRef: {kind: MeshService, name: api, port: 80}}]
---
type: MeshService
mesh: default
name: api
spec:
  selector: {dataplaneTags: {kuma.io/service: web}}
  ports: [{port: 80, targetPort: 8080, appProtocol: %s}]
---
type: MeshHTTPRoute
mesh: default
name: moved
spec:
  to:
    - targetRef: {kind: MeshService, name: api}
      rules:
        - matches: [{path: {type: PathPrefix, value: /}}]
          default: {backendRefs: [{kind: MeshService, name: web, port: 80}]}
"""


@pytest.mark.parametrize(("spoken", "is_told"), [("http", True), ("tcp", False)])
def test_for_sidecars_it_is_told_where_the_route_is_in_force(spoken: str, is_told: bool) -> None:
    text = EDGE.replace("appProtocol: http", "appProtocol: tcp") + CALLER % spoken

    named = {str(finding.resource) for finding in told(text, NOT_HTTP)}
    assert ("MeshHTTPRoute default/moved" in named) is is_told


OUTSIDE: Final = """---
type: MeshExternalService
mesh: default
name: out
spec:
  match: {type: HostnameGenerator, port: 443, protocol: %s}
  endpoints: [{address: shop.example.com, port: 443}]
"""
REWRITE: Final = "{filters: [{type: URLRewrite, urlRewrite: {hostToBackendHostname: %s}}], backendRefs: "


def with_rewrite(backends: str = BACKEND, value: str = "true") -> str:
    return EDGE.replace(f"{{backendRefs: [{BACKEND}", f"{REWRITE % value}[{backends}", 1) + OUTSIDE % "http"


def of_rewrites(text: str) -> list[Finding]:
    return [finding for finding in told(text, "does-not-apply") if finding.path == FLAG]


def test_the_host_of_a_backend_in_the_mesh_is_none_that_a_rewrite_could_take() -> None:
    (finding,) = of_rewrites(with_rewrite())

    assert str(finding.resource) == "MeshHTTPRoute default/shop"
    assert finding.message.startswith("this has no effect: no backend has a host name of its own")
    assert "`hostname`" in finding.hint


def test_a_rewrite_that_is_not_asked_for_is_not_told() -> None:
    assert not of_rewrites(with_rewrite(value="false"))


@pytest.mark.parametrize("beside", ["", f"{BACKEND}, "])
def test_a_rewrite_to_a_host_outside_of_the_mesh_has_an_effect(beside: str) -> None:
    assert not of_rewrites(with_rewrite(f"{beside}{{kind: MeshExternalService, name: out, port: 443}}"))


def test_of_a_rewrite_to_a_backend_that_is_missing_nothing_is_told() -> None:
    assert not of_rewrites(with_rewrite(f"{BACKEND}, {{kind: MeshService, name: gone, port: 80}}"))


STRONGER: Final = """---
type: MeshHTTPRoute
mesh: default
name: a-stronger
spec:
  targetRef: {kind: MeshGateway, name: edge, tags: {at: http}}
  to:
    - targetRef: {kind: Mesh}
      hostnames: [shop.example]
      rules:
        - matches: [{path: {type: PathPrefix, value: /cart}}]
          default: {backendRefs: [{kind: MeshExternalService, name: out, port: 443}]}
"""


def test_a_rewrite_is_judged_with_the_backends_of_a_stronger_route() -> None:
    assert not of_rewrites(with_rewrite() + STRONGER)

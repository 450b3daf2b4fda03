"""The limits of both proxies, and which of them is reached first."""

from __future__ import annotations

import pytest

from cp.insight.explain import explain, parse_call
from cp.translate.compiler import Compiler
from tests.rules.worlds import dataplane, world_of
from tests.snapshots import policies

MESH = """
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  outbound: [{port: 10080, tags: {kuma.io/service: backend}}]
---
type: Dataplane
mesh: default
name: backend
networking:
  address: 10.0.0.2
  inbound: [{port: 8080, tags: {kuma.io/service: backend, kuma.io/protocol: http}}]
---
type: MeshTimeout
mesh: default
name: of-client
spec:
  to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: CLIENT}}}]
---
type: MeshTimeout
mesh: default
name: of-server
spec:
  rules: [{default: {http: {requestTimeout: SERVER}}}]
"""


@pytest.mark.parametrize(
    ("client", "server", "binding"),
    [
        ("2s", "3s", {("client", 2)}),
        ("3s", "2s", {("server", 2)}),
        ("2s", "2s", {("client", 2), ("server", 2)}),
        ("0s", "2s", {("server", 2)}),
        ("0s", "0s", set()),
    ],
)
def test_smallest_limit_above_zero_is_binding(client: str, server: str, binding: set[tuple[str, float]]) -> None:
    world = world_of(MESH.replace("CLIENT", client).replace("SERVER", server))
    call = parse_call("http://backend/")
    (hop,) = explain(Compiler(policies()), policies(), world, dataplane(world, "web"), call).as_json()["hops"]
    limits = [limit for limit in hop["limits"] if limit["of"] == "a request"]

    assert {limit["side"] for limit in limits} == {"client", "server"}
    assert {(limit["side"], limit["seconds"]) for limit in limits if limit["binding"]} == binding

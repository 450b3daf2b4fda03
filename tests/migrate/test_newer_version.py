"""What Kuma 3.0 does not have any more: each use is told with its path, and nothing is told of what stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from cp.insight.migrate import gone_uses
from cp.policies import kinds
from cp.resources.world import World
from tests.random_mesh.words import Data, document_of
from tests.snapshots import policies

BACKEND: Final = {"kuma.io/service": "backend"}
ANY: Final = [{"match": {"kuma.io/service": "*"}}]
INBOUND: Final = {"port": 80, "protocol": "http"}


def of(kind: str, **fields: Any) -> Data:
    return {"type": kind, "mesh": "default", "name": "all", **fields}


def policy(kind: str, target: Data | None = None, **fields: Any) -> Data:
    return of(kind, spec={"targetRef": target or {"kind": "Mesh"}, **fields})


def to(target: Data, **default: Any) -> Data:
    return policy("MeshTimeout", to=[{"targetRef": target, "default": default or {"idleTimeout": "3s"}}])


def dataplane(**networking: Any) -> Data:
    return of("Dataplane", networking={"address": "127.0.0.1", "inbound": [INBOUND], **networking})


def route(**default: Any) -> Data:
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "default": default}
    service = {"kind": "MeshService", "labels": {"app": "backend"}}
    return policy("MeshHTTPRoute", to=[{"targetRef": service, "rules": [rule]}])


TRACED: Final = {"backends": [{"type": "Zipkin", "zipkin": {"url": "http://127.0.0.1:9411/api/v2/spans"}}]}
SUBSET: Final = {"kind": "MeshServiceSubset", "name": "backend", "tags": {"version": "v2"}}
MIRROR: Final = {"type": "RequestMirror", "requestMirror": {"backendRef": SUBSET}}
REDIRECTED: Final = {"redirectPortInbound": 15006, "redirectPortOutbound": 15001}
METRICS: Final = {"enabledBackend": "p", "backends": [{"name": "p", "type": "prometheus"}]}
CONSTRAINTS: Final = {"dataplaneProxy": {"requirements": [{"tags": {"team": "a"}}]}}

USES: Final[Mapping[str, tuple[Data, str]]] = {
    "legacy policy": (of("Timeout", sources=ANY, destinations=ANY, conf={"connectTimeout": "1s"}), ""),
    "service outside": (of("ExternalService", tags=BACKEND, networking={"address": "127.0.0.1:80"}), ""),
    "subset at the top": (
        policy("MeshTrace", {"kind": "MeshSubset", "tags": {"app": "web"}}, default=TRACED),
        "spec.targetRef.kind",
    ),
    "name at the top": (
        policy("MeshTrace", {"kind": "Dataplane", "name": "web"}, default=TRACED),
        "spec.targetRef.name",
    ),
    "name of a destination": (to({"kind": "MeshService", "name": "backend"}), "spec.to[0].targetRef.name"),
    "subset behind a route": (
        route(backendRefs=[{"kind": "MeshService", "labels": {"app": "backend"}}, SUBSET]),
        "spec.to[0].rules[0].default.backendRefs[1].kind",
    ),
    "subset that is shown requests": (
        route(filters=[MIRROR]),
        "spec.to[0].rules[0].default.filters[0].requestMirror.backendRef.kind",
    ),
    "tags of an inbound": (dataplane(inbound=[{**INBOUND, "tags": BACKEND}]), "networking.inbound[0].tags"),
    "protocol of a tag": (dataplane(inbound=[{"port": 80}]), "networking.inbound[0]"),
    "tags of a gateway": (
        dataplane(inbound=[], gateway={"type": "DELEGATED", "tags": BACKEND}),
        "networking.gateway.tags",
    ),
    "outbound by a tag": (dataplane(outbound=[{"port": 1000, "tags": BACKEND}]), "networking.outbound[0]"),
    "advertised address": (dataplane(advertisedAddress="192.0.2.1"), "networking.advertisedAddress"),
    "reachable services": (
        dataplane(transparentProxying={**REDIRECTED, "reachableServices": ["backend"]}),
        "networking.transparentProxying.reachableServices",
    ),
    "list of clients": (
        of("MeshTimeout", spec={"from": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "3s"}}]}),
        "spec.from",
    ),
    "gateway": (of("MeshGateway", selectors=ANY, conf={"listeners": [{"port": 80, "protocol": "HTTP"}]}), ""),
    "authority": (
        {"type": "Mesh", "name": "default", "mtls": {"backends": [{"name": "ca", "type": "builtin"}]}},
        "mtls",
    ),
    "passthrough": (
        {"type": "Mesh", "name": "default", "networking": {"outbound": {"passthrough": True}}},
        "networking",
    ),
    "routing": ({"type": "Mesh", "name": "default", "routing": {"localityAwareLoadBalancing": True}}, "routing"),
    "mode": ({"type": "Mesh", "name": "default", "meshServices": {"mode": "Everywhere"}}, "meshServices"),
    "metrics": ({"type": "Mesh", "name": "default", "metrics": METRICS}, "metrics"),
    "membership": ({"type": "Mesh", "name": "default", "constraints": CONSTRAINTS}, "constraints"),
    "first policies": (
        {"type": "Mesh", "name": "default", "skipCreatingInitialPolicies": ["*"]},
        "skipCreatingInitialPolicies",
    ),
}

KEPT: Final[Mapping[str, Data]] = {
    "labels at the top": policy("MeshTrace", {"kind": "Dataplane", "labels": {"app": "web"}}, default=TRACED),
    "labels of a destination": to({"kind": "MeshService", "labels": {"app": "backend"}}),
    "service behind a route": route(backendRefs=[{"kind": "MeshService", "labels": {"app": "backend"}}]),
    "inbound with its protocol": dataplane(),
    "reachable backends": dataplane(
        transparentProxying={
            **REDIRECTED,
            "reachableBackends": {"refs": [{"kind": "MeshService", "labels": {"app": "backend"}}]},
        }
    ),
}


def uses(data: Data) -> list[str]:
    mesh = {"type": "Mesh", "name": "default"}
    documents = [data] if data["type"] == "Mesh" else [mesh, data]
    world = World.of(map(document_of, documents), kinds(policies()))
    assert not [str(finding) for finding in world.findings if finding.severity == "error"]
    return [use.path for use in gone_uses(world, "default")]


@pytest.mark.parametrize("use", USES)
def test_what_is_gone_is_told_with_its_path(use: str) -> None:
    data, path = USES[use]

    assert uses(data) == [path]


@pytest.mark.parametrize("kept", KEPT)
def test_nothing_is_told_of_what_stays(kept: str) -> None:
    assert uses(KEPT[kept]) == []

"""What lint says of policies for gRPC clients without a proxy."""

from __future__ import annotations

from typing import Any

import pytest

from cp.insight.lint import lint
from cp.policies import kinds
from cp.resources.world import World
from tests.random_mesh import MESH, document
from tests.snapshots import policies

CLIENT = document("Dataplane", "c", labels={"koguma.io/client": "grpc"}, networking={"address": "10.0.0.1"})
TAGS = {"kuma.io/service": "a", "kuma.io/protocol": "grpc"}
SERVER = document("Dataplane", "s", networking={"address": "10.0.0.2", "inbound": [{"port": 80, "tags": TAGS}]})
TO_CLIENTS = {"kind": "Dataplane", "labels": {"koguma.io/client": "grpc"}}
LOG = {"backends": [{"type": "File", "file": {"path": "/tmp/log"}}]}  # noqa: S108  # nobody writes to it


def codes(kind: str, default: dict[str, Any]) -> set[str]:
    spec = {"targetRef": TO_CLIENTS, "to": [{"targetRef": {"kind": "Mesh"}, "default": default}]}
    world = World.of([MESH, CLIENT, SERVER, document(kind, "p", spec=spec)], kinds(policies()))
    assert not list(world.findings)
    return {finding.code for finding in lint(policies(), world) if finding.resource and finding.resource.name != "s"}


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("MeshTimeout", {"http": {"requestTimeout": "1s"}}, set[str]()),
        ("MeshAccessLog", LOG, {"does-not-apply"}),
        ("MeshHealthCheck", {"http": {"path": "/"}, "interval": "1s", "timeout": "1s"}, {"does-not-apply"}),
    ],
)
def test_only_what_they_do_something_of_has_an_effect(kind: str, default: dict[str, Any], expected: set[str]) -> None:
    assert codes(kind, default) == expected

"""Lint costs in proportion to the policies of a mesh, also where all of them have one target."""

from __future__ import annotations

from typing import Any

from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.world import World
from tests.growth import MOST, growth
from tests.snapshots import policies


def document(kind: str, name: str, **fields: Any) -> Document:
    mesh = "" if kind == "Mesh" else "default"
    return Document(Key(kind, mesh, name), {"type": kind, **({"mesh": mesh} if mesh else {}), "name": name, **fields})


def many_timeouts(count: int) -> World:
    """Timeouts for one service, of which the last holds."""
    ports = [{"port": 80, "targetPort": 8080, "appProtocol": "http"}]
    outbound = [{"port": 10_000, "backendRef": {"kind": "MeshService", "name": "web", "port": 80}}]
    inbound = [{"port": 8080, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}]
    target = {"kind": "MeshService", "name": "web"}
    timeouts = (
        document(
            "MeshTimeout",
            f"t{number}",
            spec={"to": [{"targetRef": target, "default": {"http": {"requestTimeout": f"{number + 1}s"}}}]},
        )
        for number in range(count)
    )
    return World.of(
        (
            document("Mesh", "default"),
            document(
                "MeshService", "web", spec={"selector": {"dataplaneTags": {"kuma.io/service": "web"}}, "ports": ports}
            ),
            document(
                "Dataplane", "web-1", networking={"address": "127.0.0.1", "inbound": inbound, "outbound": outbound}
            ),
            *timeouts,
        ),
        kinds(policies()),
    )


def test_policies_of_one_target_are_judged_in_one_pass() -> None:
    assert growth(many_timeouts, lambda world: lint(policies(), world), 60) < MOST

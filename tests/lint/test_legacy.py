"""Who is told to hold nowhere changes nothing: the mesh is worked out once more without it."""

from __future__ import annotations

from typing import Final

from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import Finding
from cp.policies import kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.legacy.selectors import selectors_of
from tests.lint.test_told import served, without
from tests.random_mesh import LEGACY, LEGACY_EDGE, MESH, Mesh, document, for_meshes, mesh_of
from tests.snapshots import policies

NOWHERE = "holds nowhere"
ASKING: Final[Document] = document(
    "RateLimit",
    "asking",
    sources=[{"match": {"kuma.io/service": "web"}}],
    destinations=[{"match": {"kuma.io/service": "nobody-has-it"}}],
    conf={"http": {"requests": 1, "interval": "1s"}},
)
"""It holds nowhere, and for its sake callers say who they are. Beside it, policies for some clients can be compared as
all others: what callers say is the same without them."""


def world_of(mesh: Mesh) -> World:
    return mesh.world().next({ASKING.key: ASKING}, 1)


def told(world: World) -> dict[Key, Finding]:
    """What holds nowhere, and is compared."""
    findings = [finding for finding in lint(policies(), world) if finding.message.startswith(NOWHERE)]
    return {
        finding.resource: finding
        for finding in findings
        if finding.resource is not None and finding.resource != ASKING.key
    }


@for_meshes(LEGACY, also=(324,))
def test_proxies_are_served_the_same_without_what_holds_nowhere(mesh: Mesh) -> None:
    assert_nothing_is_served_of_it(mesh)


@for_meshes(LEGACY_EDGE)
def test_gateways_are_served_the_same_without_what_holds_nowhere(mesh: Mesh) -> None:
    assert_nothing_is_served_of_it(mesh)


def assert_nothing_is_served_of_it(mesh: Mesh) -> None:
    world = world_of(mesh)
    before = served(world)
    for key in told(world):
        assert served(without(world, key)) == before, key


def test_some_of_each_sort_are_compared() -> None:
    """Or nothing would be."""
    codes: set[str] = set()
    for_some: set[str] = set()
    for seed in range(60):
        world = world_of(mesh_of(seed, LEGACY))
        compared = told(world)
        codes |= {finding.code for finding in compared.values()}
        for_some |= {key.type for key in compared if is_for_some_clients(world.get(key))}

    assert codes >= {"selects-no-proxy", "selects-no-inbound", "overridden", "not-called", "mtls-off"}
    assert for_some == {"RateLimit", "FaultInjection"}


def is_for_some_clients(policy: Resource | None) -> bool:
    if policy is None or policy.type not in {"RateLimit", "FaultInjection"}:
        return False
    return any(value != "*" for selector in selectors_of(policy.data, "sources") for value in selector.values())


def test_a_limit_for_those_who_call_a_service_outside_holds_somewhere() -> None:
    tags = {"kuma.io/service": "outside", "kuma.io/protocol": "http"}
    service = document("ExternalService", "outside", tags=tags, networking={"address": "outside.example:80"})
    limits = [
        document(
            "RateLimit",
            name,
            sources=[{"match": {"kuma.io/service": "*"}}],
            destinations=[{"match": {"kuma.io/service": name}}],
            conf={"http": {"requests": 1, "interval": "1s"}},
        )
        for name in ("outside", "nowhere")
    ]
    inbound = {"port": 80, "tags": {"kuma.io/service": "web"}}
    web = document("Dataplane", "web", networking={"address": "127.0.0.1", "inbound": [inbound]})
    world = World.of([MESH, web, service, *limits], kinds(policies()))
    assert [key.name for key in told(world)] == ["nowhere"]

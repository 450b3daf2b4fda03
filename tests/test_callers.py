"""Endpoints depend on who calls: on the zone, and on those tags that some policy looks at, and on nothing else."""

from __future__ import annotations

from cp.model.document import Document
from cp.policies import kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import ENDPOINTS, PackedResource
from tests.random_mesh import MESH, document
from tests.snapshots import policies

BACKEND = document(
    "MeshService",
    "backend",
    spec={"selector": {"dataplaneTags": {"kuma.io/service": "backend"}}, "ports": [{"port": 80}]},
)
NEAR = document(
    "MeshLoadBalancingStrategy",
    "near",
    spec={
        "to": [
            {
                "targetRef": {"kind": "Mesh"},
                "default": {"localityAwareness": {"localZone": {"affinityTags": [{"key": "rack"}]}}},
            }
        ]
    },
)


def serving(name: str, number: int, **tags: str) -> Document:
    inbound = {"port": 80, "tags": {"kuma.io/service": "backend", **tags}}
    return document("Dataplane", name, networking={"address": f"127.0.1.{number}", "inbound": [inbound]})


def calling(name: str, **tags: str) -> Document:
    outbound = {"port": 10000, "backendRef": {"kind": "MeshService", "name": "backend", "port": 80}}
    inbound = {"port": 80, "tags": {"kuma.io/service": "web", **tags}}
    networking = {"address": "127.0.0.1", "inbound": [inbound], "outbound": [outbound]}
    return document("Dataplane", name, networking=networking)


EAST = {"kuma.io/zone": "east"}
WEST = {"kuma.io/zone": "west"}
IN_BOTH = (serving("east", 1, **EAST, rack="1"), serving("west", 2, **WEST, rack="2"))


def world(*documents: Document) -> World:
    return World.of([MESH, BACKEND, *documents], kinds(policies()))


def endpoints(compiler: Compiler, seen: World, caller: Document) -> PackedResource:
    dataplane = seen.get(caller.key)
    assert dataplane is not None
    (found,) = compiler.snapshot(seen, dataplane).of(ENDPOINTS)
    return found


def test_callers_of_two_zones_get_endpoints_in_another_order() -> None:
    compiler, one, other = Compiler(policies()), calling("one", **EAST), calling("other", **WEST)
    seen = world(*IN_BOTH, one, other)

    assert endpoints(compiler, seen, one) != endpoints(compiler, seen, other)


def test_callers_of_one_zone_share_everything_whatever_their_tags() -> None:
    compiler, one, other = Compiler(policies()), calling("one", **EAST, rack="1"), calling("other", **EAST, rack="2")
    seen = world(*IN_BOTH, one, other)

    assert endpoints(compiler, seen, one) is endpoints(compiler, seen, other)
    assert compiler.class_count == 1


def test_a_tag_counts_once_a_policy_looks_at_it() -> None:
    compiler, one, other = Compiler(policies()), calling("one", **EAST, rack="1"), calling("other", **EAST, rack="2")
    seen = world(*IN_BOTH, one, other, NEAR)

    assert endpoints(compiler, seen, one) != endpoints(compiler, seen, other)
    assert compiler.class_count == 2


def test_endpoints_that_are_the_same_for_all_zones_are_built_once() -> None:
    compiler, one, other = Compiler(policies()), calling("one", **EAST), calling("other", **WEST)
    seen = world(serving("north", 1, **{"kuma.io/zone": "north"}), one, other)

    assert endpoints(compiler, seen, one) is endpoints(compiler, seen, other)


def test_a_caller_that_moves_gets_the_endpoints_of_its_new_zone() -> None:
    compiler, stayed, moved = Compiler(policies()), calling("stayed", **WEST), calling("moved", **EAST)
    seen = world(*IN_BOTH, stayed, moved)
    before = endpoints(compiler, seen, moved)
    after = seen.next({moved.key: calling("moved", **WEST)}, 1)

    assert endpoints(compiler, after, moved) != before
    assert endpoints(compiler, after, moved) == endpoints(compiler, after, stayed)

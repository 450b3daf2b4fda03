"""A plan takes no more than a multiple of what it tells, and tells each changed value once."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from cp.api.envoy_json import decoded
from cp.api.work import json_of
from cp.insight.comparison import MOST_FIELDS
from cp.insight.plan import Plan, PlanScope, mesh_plans, plan_data
from cp.model.checkpoint import Allowance, Stopped, TooLarge, never_stopped
from cp.model.document import Document
from cp.policies import kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import PackedResource
from tests.random_mesh import MESH, document
from tests.snapshots import policies

MIB = 1024 * 1024
TAGS = 1000


def trace(tags: int, word: str) -> Document:
    """A MeshTrace with a list, which is merged as one value."""
    backend = {"type": "Zipkin", "zipkin": {"url": "http://127.0.0.1:9411/api/v2/spans"}}
    conf = {"backends": [backend], "tags": [{"name": f"{word}{n}", "literal": f"{word}{n}"} for n in range(tags)]}
    return document("MeshTrace", "t", spec={"targetRef": {"kind": "Mesh"}, "default": conf})


def patches(count: int, word: str) -> Document:
    """A MeshProxyPatch with a list of which each element is a value by itself."""
    modifications = [
        {"cluster": {"operation": "Patch", "value": f"metadata: {{filterMetadata: {{a{n}: {{x: {word}{n}}}}}}}"}}
        for n in range(count)
    ]
    return document(
        "MeshProxyPatch",
        "p",
        spec={"targetRef": {"kind": "Mesh"}, "default": {"appendModifications": modifications}},
    )


def proxies(count: int) -> Iterator[Document]:
    inbound = [{"port": 80, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}]
    for number in range(count):
        networking: dict[str, Any] = {"address": f"127.0.0.{number + 1}", "inbound": inbound}
        yield document("Dataplane", f"web-{number}", networking=networking)


def scope_of(before: Document, after: Document, count: int = 2) -> PlanScope:
    world = World.of([MESH, *proxies(count), before], kinds(policies()))
    planned = world.next({after.key: after}, 1)
    assert planned.get(after.key) is not None, [str(finding) for finding in planned.findings]
    return PlanScope(world, planned, {after.key: after}, ["default"])


def told(scope: PlanScope) -> bytes:
    meshes = tuple(mesh_plans(scope, Compiler(policies()), decoded))
    return json_of(plan_data(Plan((), meshes)), never_stopped)


def differences(answer: bytes) -> list[dict[str, Any]]:
    (mesh,) = json.loads(answer)["meshes"]
    of_mesh: list[dict[str, Any]] = mesh["differences"]
    return of_mesh


@pytest.mark.long
def test_a_list_of_a_thousand_elements_is_told_once() -> None:
    scope = scope_of(trace(TAGS, "a"), trace(TAGS, "b"))
    tracemalloc.start()
    try:
        answer = told(scope)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 200 * MIB
    assert len(answer) < 2 * MIB
    changed = differences(answer)
    assert changed
    for difference in changed:
        ((value,),) = difference["values"]
        assert value["field"] == "tags"
        assert len(value["after"]["value"]) == TAGS
        assert {tuple(field["values"]) for field in difference["fields"]} == {(0,)}
        assert len(difference["fields"]) == MOST_FIELDS
        assert difference["moreFields"] == 2 * TAGS - MOST_FIELDS, "a name and a value of each tag"


def test_so_is_one_of_which_each_element_is_a_value() -> None:
    (difference, *_) = differences(told(scope_of(patches(300, "a"), patches(300, "b"), 1)))

    (values,) = difference["values"]
    assert len(values) == 300
    assert {tuple(field["values"]) for field in difference["fields"]} == {(0,)}
    assert len(difference["fields"]) == 300


def test_a_plan_that_becomes_too_large_ends_before_all_of_it_is_made() -> None:
    scope, read = scope_of(trace(TAGS, "a"), trace(TAGS, "b"), 8), 0

    def decode(packed: PackedResource) -> Any:
        nonlocal read
        read += 1
        return decoded(packed)

    with pytest.raises(TooLarge):
        list(mesh_plans(scope, Compiler(policies()), decode, never_stopped, Allowance(MIB // 12)))
    assert 0 < read < 8


def test_a_plan_that_nobody_waits_for_ends_while_fields_are_told() -> None:
    scope, passed = scope_of(trace(TAGS, "a"), trace(TAGS, "b"), 1), 0

    def checkpoint() -> None:
        nonlocal passed
        passed += 1
        if passed > 100:
            raise Stopped

    with pytest.raises(Stopped):
        list(mesh_plans(scope, Compiler(policies()), decoded, checkpoint))

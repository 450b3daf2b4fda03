"""The list of a mesh's policies, each with how many proxies it selects."""

from __future__ import annotations

from typing import Any

from cp.insight.inspect import selected_proxies, selection_counts
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.world import World
from tests.api.conftest import KINDS, FixedState, Unit
from tests.api.samples import dataplane, timeout
from tests.random_mesh import LEGACY, Mesh, for_meshes


def world() -> World:
    named = {**timeout("named")}
    named["spec"] = {**named["spec"], "targetRef": {"kind": "Dataplane", "name": "web-1"}}
    documents = [
        Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"}),
        *(Document(Key("Dataplane", "default", name), dataplane(name)) for name in ("web-1", "web-2")),
        Document(Key("MeshTimeout", "default", "all"), timeout("all")),
        Document(Key("MeshTimeout", "default", "named"), named),
    ]
    return World.of(documents, KINDS, revision=7)


def test_each_policy_says_whom_it_is_for_and_how_many_it_selects(start: Unit) -> None:
    data = start(state=FixedState(world())).get("/meshes/default/_policies").json()

    items: dict[str, Any] = {item["name"]: item for item in data["items"]}
    assert data["revision"] == 7
    assert items["named"] == {
        "type": "MeshTimeout",
        "plural": "meshtimeouts",
        "mesh": "default",
        "name": "named",
        "targetRef": {"kind": "Dataplane", "name": "web-1"},
        "proxies": 1,
    }
    assert (items["all"]["proxies"], items["all"]["targetRef"]) == (2, {"kind": "Mesh"})


def judge(mesh: Mesh) -> None:
    of_mesh = mesh.world()
    counts = selection_counts(of_mesh, "default")
    for kind in KINDS.values():
        for policy in of_mesh.table(kind.name, "default") if kind.policy is not None or kind.legacy is not None else ():
            assert counts.get(policy.key, 0) == len(list(selected_proxies(of_mesh, policy))), policy.key


@for_meshes(times=0.5)
def test_as_many_are_counted_as_are_listed(mesh: Mesh) -> None:
    judge(mesh)


@for_meshes(LEGACY, times=0.5)
def test_as_many_are_counted_as_are_listed_of_legacy_policies(mesh: Mesh) -> None:
    judge(mesh)

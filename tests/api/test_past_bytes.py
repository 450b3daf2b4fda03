"""What is exported and applied again, or rolled back, comes to the same bytes for every proxy of random meshes."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import yaml

from cp.insight.comparison import mesh_comparison
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import is_trust_record
from cp.resources.world import World
from cp.store.port import Delete, Put
from tests.api.conftest import Api
from tests.random_mesh import EVERY, LEGACY, Mesh, for_meshes, mesh_of
from tests.snapshots import policies

_SEED = 100_000


def filled(runner: asyncio.Runner, mesh: Mesh) -> Api:
    """An API with the documents of a mesh, each made a little later than the one before."""
    api = Api(runner)
    for document in chosen(mesh):
        runner.run(api.store.write(Put(document)))
    return api


def chosen(mesh: Mesh) -> list[Document]:
    """Those that people may write."""
    return [document for document in mesh.read() if not is_trust_record(document.key)]


def must_be_equal(before: World, after: World) -> None:
    comparison = mesh_comparison((before, after), "default", policies())
    assert (comparison.added, comparison.removed, comparison.differences) == ((), (), ())
    assert comparison.in_both


def exported_and_applied(mesh: Mesh) -> None:
    with asyncio.Runner() as runner:
        api, other = filled(runner, mesh), Api(runner)
        resources = api.get("/_export?reveal=true").json()["resources"]
        texts = [{"text": yaml.safe_dump(resource)} for resource in resources]  # by name, so their ages must come along
        other.post("/_apply", json={"resources": texts}).raise_for_status()
        must_be_equal(api.world(), other.world())


def edited_and_rolled_back(mesh: Mesh) -> None:
    with asyncio.Runner() as runner:
        api, chance = filled(runner, mesh), Random(mesh.seed)
        before, revision = api.world(), runner.run(api.store.revision())
        for document in chosen(mesh):
            if document.key.type != "Mesh" and chance.random() < 0.5:
                runner.run(api.store.write(Delete(document.key)))
        for document in chosen(mesh_of(_SEED + (mesh.seed or 0))):
            if document.key.type != "Mesh":
                runner.run(api.store.write(Put(document)))
        answer = api.post("/_rollback", json={"revision": revision})
        assert answer.raise_for_status().json()["leftOut"] == []
        must_be_equal(before, api.world())


@for_meshes(EVERY, times=0.3)
def test_what_is_exported_and_applied_is_served_as_before(mesh: Mesh) -> None:
    exported_and_applied(mesh)


@for_meshes(LEGACY, times=0.3)
def test_legacy_policies_that_are_exported_and_applied_are_served_as_before(mesh: Mesh) -> None:
    exported_and_applied(mesh)


@for_meshes(EVERY, times=0.3)
def test_what_is_edited_and_rolled_back_is_served_as_before(mesh: Mesh) -> None:
    edited_and_rolled_back(mesh)


@for_meshes(LEGACY, times=0.3)
def test_legacy_policies_that_are_edited_and_rolled_back_are_served_as_before(mesh: Mesh) -> None:
    edited_and_rolled_back(mesh)


def legacy_timeout(name: str, seconds: int) -> dict[str, Any]:
    every = [{"match": {"kuma.io/service": "*"}}]
    conf = {"connectTimeout": f"{seconds}s"}
    return {"type": "Timeout", "mesh": "default", "name": name, "sources": every, "destinations": every, "conf": conf}


INBOUND = {"port": 8080, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}
OUTBOUND = {"port": 18201, "tags": {"kuma.io/service": "web"}}
ALIKE = Mesh(
    (
        {"type": "Mesh", "name": "default", "policyEngine": "Legacy"},
        {
            "type": "Dataplane",
            "mesh": "default",
            "name": "web-1",
            "networking": {"address": "127.0.0.1", "inbound": [INBOUND], "outbound": [OUTBOUND]},
        },
        legacy_timeout("older", 1),
        legacy_timeout("newer", 2),
    ),
    seed=3,
)
"""Of two policies that select the same the newer one holds, whatever they are called."""


def test_of_policies_that_are_alike_the_newer_one_holds_where_they_are_applied() -> None:
    exported_and_applied(ALIKE)


def test_of_policies_that_are_alike_the_newer_one_holds_after_a_rollback() -> None:
    with asyncio.Runner() as runner:
        api = filled(runner, ALIKE)
        before, revision = api.world(), runner.run(api.store.revision())
        runner.run(api.store.write(*(Delete(Key("Timeout", "default", name)) for name in ("older", "newer"))))
        api.post("/_rollback", json={"revision": revision}).raise_for_status()
        must_be_equal(before, api.world())

"""Who is told of whom, where MeshTrafficPermissions say what proxies reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from bench import reachability as crowd
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.view.reachability import Reach, reach_of
from tests.growth import MOST, growth
from tests.random_mesh import MESH, document
from tests.snapshots import policies
from tests.view.meshes import called, dataplane, external, redirected, service
from tests.view.test_named_addresses import external as outside


def world(*documents: Document, derives: bool = True) -> World:
    made = World.of([MESH, *documents], kinds(policies(), derives_reachability=derives))
    assert not [finding for finding in made.findings if finding.severity == "error"]
    return made


def permission(name: str, action: str, client: dict[str, Any], target: dict[str, Any] | None = None) -> Document:
    item = {"targetRef": client, "default": {"action": action}}
    spec = {"targetRef": target or {"kind": "Mesh"}, "from": [item]}
    return document("MeshTrafficPermission", name, spec=spec)


def of(kind: str, name: str) -> dict[str, Any]:
    return {"kind": kind, "name": name}


EVERYBODY = {"kind": "Mesh"}
CLIENT, SERVER = redirected(), redirected("server", address="10.0.0.2", tag="server")
TO_SERVER = permission("to-server", "Allow", of("MeshService", "client"), of("MeshService", "server"))


def test_nothing_is_derived_unless_a_setting_says_so() -> None:
    assert called(world(CLIENT, SERVER, derives=False)) == {"client", "server"}
    assert called(world(CLIENT, SERVER)) == set()


@pytest.mark.parametrize(("action", "reached"), [("Allow", True), ("AllowWithShadowDeny", True), ("Deny", False)])
def test_a_tag_is_reached_that_lets_the_caller_in(action: str, reached: bool) -> None:  # a value of a table
    to_server = permission("to-server", action, of("MeshService", "client"), of("MeshService", "server"))
    made = world(CLIENT, SERVER, to_server)

    assert called(made) == ({"server"} if reached else set())
    assert called(made, "server") == set()


def test_a_mesh_service_is_reached_whose_inbounds_let_the_caller_in() -> None:
    services = external("e"), service("server", 8080), service("client", 8080)
    made = world(CLIENT, SERVER, *services, TO_SERVER)

    assert called(made) == {"server", "MeshService server:8080", "MeshExternalService e:443"}


def test_an_external_service_is_reached_if_a_permission_is_for_its_tag() -> None:
    to_pay = permission("to-pay", "Allow", of("MeshService", "client"), of("MeshService", "pay"))
    made = world(CLIENT, outside("pay", "pay.example:443"), outside("mail", "mail.example:25"), to_pay)

    assert called(made) == {"pay"}


def test_what_a_dataplane_lists_comes_before_what_is_derived() -> None:
    listing = redirected(reachableServices=["server"])

    assert called(world(listing, SERVER)) == {"server"}


def test_permissions_for_names_of_clients_leave_a_service_reachable() -> None:
    rules = [{"default": {"allow": [{"spiffeID": {"type": "Exact", "value": "spiffe://default/client"}}]}}]
    spec = {"targetRef": {"kind": "Dataplane"}, "rules": rules}

    assert called(world(CLIENT, SERVER, document("MeshTrafficPermission", "names", spec=spec))) == {"client", "server"}


def test_what_is_reached_changes_with_permissions_alone() -> None:
    before = world(CLIENT, SERVER, TO_SERVER)
    compiler = Compiler(policies())
    compiler.snapshot(before, dataplane(before))
    key = Key("MeshTrafficPermission", "default", "to-server")

    after = before.next({key: None}, 1)
    assert called(after) == set()
    assert compiler.snapshot(after, dataplane(after)) == Compiler(policies()).snapshot(
        after.afresh(), dataplane(after.afresh())
    )


@dataclass(frozen=True)
class Crowd:
    """A mesh of many proxies and services, in which everybody was asked whom they reach."""

    world: World
    edited: Document

    @classmethod
    def of(cls, size: int) -> Crowd:
        before = World.of(crowd.documents(size), kinds(policies(), derives_reachability=True))
        reaches(before)
        return cls(before, crowd.permission(crowd.EDITED, size, crowd.one_more(size)))

    def edit(self) -> dict[str, Reach | None]:
        return reaches(self.world.next({self.edited.key: self.edited}, self.world.revision + 1))


def reaches(world: World) -> dict[str, Reach | None]:
    return {dataplane.name: reach_of(world, dataplane) for dataplane in world.table("Dataplane", "default")}


def test_an_edit_of_a_permission_asks_not_every_caller_about_every_service() -> None:
    """Which would cost the square of the mesh."""
    assert growth(Crowd.of, Crowd.edit, size=50) < MOST


def test_an_edit_of_a_permission_leaves_those_alone_whom_it_is_not_for() -> None:
    mesh = Crowd.of(20)
    before, after = reaches(mesh.world), mesh.edit()

    assert [name for name, reach in after.items() if reach is not before[name]] == [f"p{crowd.EDITED}"]

"""What lint says of permissions is so where they also say of whom proxies are told."""

from __future__ import annotations

from collections.abc import Iterator

from cp.insight.enforcement import parts_without_effect
from cp.insight.lint import lint
from cp.model.violation import Finding
from cp.policies import kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from tests.lint.test_told import is_about_all, served
from tests.random_mesh import REACHED, Mesh, for_meshes, mesh_of
from tests.snapshots import policies

PERMISSION = "MeshTrafficPermission"


def world_of(mesh: Mesh) -> World:
    return World.of(mesh.read(), kinds(policies(), derives_reachability=True))


def permissions(world: World) -> Iterator[tuple[Resource, list[Finding], bool]]:
    """Each permission, what is said of it as a whole, and whether everybody would be served the same without it."""
    findings, before = lint(policies(), world), served(world)
    for permission in world.table(PERMISSION, "default"):
        without = world.next({permission.key: None}, world.revision + 1)
        told = [each for each in findings if each.resource == permission.key and is_about_all(each)]
        yield permission, told, served(without) == before


@for_meshes(REACHED, times=0.5)
def test_a_permission_has_no_effect_if_nobody_is_served_something_else_for_it(mesh: Mesh) -> None:
    for permission, told, is_same in permissions(world_of(mesh)):
        assert is_same or not told, f"{permission.key}: {told}"


@for_meshes([kind for kind in REACHED if kind != "Mesh"], times=0.5)
def test_without_mtls_a_permission_has_no_effect_unless_somebody_is_told_of_more_or_less(mesh: Mesh) -> None:
    if "mtls" in mesh.documents[0]:
        return
    world = world_of(mesh)
    for permission, told, is_same in permissions(world):
        assert bool(told) == is_same, f"{permission.key}: {told}"
        assert not parts_without_effect(world, permission)


def test_permissions_of_both_sorts_are_drawn() -> None:
    """Or the comparison would be of nothing."""
    drawn = [is_same for seed in range(20) for _, _, is_same in permissions(world_of(mesh_of(seed, REACHED)))]

    assert drawn.count(True) > 5
    assert drawn.count(False) > 5

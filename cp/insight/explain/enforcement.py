"""Warnings about parts of resources that have no effect: those of the mesh and of both ends of a call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cp.insight.enforcement import parts_without_effect
from cp.resources.capabilities import warning
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.matching import match


def enforcement_warnings(
    world: World, client: Resource, servers: Iterable[Resource], gateways: Iterable[Resource] = ()
) -> Iterator[str]:
    """The warnings about the mesh, the Dataplanes of client and servers, the policies that select these,
    and MeshGateways."""
    mesh = world.mesh(client.mesh)
    meshes = () if mesh is None else (mesh,)
    for resource in dict.fromkeys([*meshes, *gateways, *_resources_of_call(world, (client, *servers))]):
        for part in parts_without_effect(world, resource):
            yield f"{resource.key}: {warning(part, resource.kind.root)}"


def _resources_of_call(world: World, dataplanes: Iterable[Resource]) -> Iterator[Resource]:
    for dataplane in dataplanes:
        yield dataplane
        for _, matched in sorted(match(world, dataplane).items()):
            yield from (matched_policy.policy for matched_policy in matched)

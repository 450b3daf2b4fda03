"""Dataplanes and services that cannot work as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cp.lint.codes import Reason, found
from cp.lint.scene import Scene
from cp.model.names import Destination
from cp.model.violation import Finding
from cp.model.yaml import step
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.view.dataplanes import SERVICE_TAG
from cp.view.proxies import unresolved
from cp.view.services import destination_of, endpoints_of, exists


def outbounds(scene: Scene) -> Iterator[Finding]:
    """Outbounds that lead nowhere, and workloads without any."""
    for proxy in scene.proxies:
        lost = unresolved(scene.world, proxy.dataplane)
        yield from (replace(one, hint="correct the reference, or remove the outbound") for one in lost)
        yield from _to_nobody(scene.world, proxy.dataplane)
        net = proxy.dataplane.spec.net
        if not net.outbound and net.transparent_proxying is None and net.gateway is None and not net.listeners:
            text = "has neither outbounds nor transparent proxying: its workload calls nobody through its proxy"
            hint = "give it `networking.outbound`, unless it only serves"
            yield found(proxy.dataplane, Reason("no-outbounds", text, "networking", hint))


def services(scene: Scene) -> Iterator[Finding]:
    """Ports of MeshServices behind which there is nobody."""
    for service in scene.world:
        if service.type != "MeshService" or service.mesh not in scene.meshes:
            continue
        for index, port in enumerate(service.spec.ports or ()):
            if not endpoints_of(scene.world, service.mesh, destination_of(service, port)).endpoints:
                path = step("spec.ports", index)
                text = f"no inbound serves port {port.port}: calls to it are answered with 503"
                hint = "compare `selector` with tags and labels, and `targetPort` with ports and names of inbounds"
                yield found(service, Reason("no-endpoints", text, path, hint))


def no_dataplanes(scene: Scene) -> Iterator[Finding]:
    """Meshes that have policies and no Dataplane."""
    with_policies = {one.mesh for one in scene.world if one.kind.policy is not None}
    for mesh in scene.world.table("Mesh"):
        if mesh.name in with_policies - scene.meshes:
            text = "there is no Dataplane in this mesh, so what its policies do is not judged"
            yield found(mesh, Reason("no-dataplanes", text, "", "give `koguma lint` the Dataplanes too"))


def _to_nobody(world: World, dataplane: Resource) -> Iterator[Finding]:
    """Outbounds by tags that no inbound has."""
    for index, outbound in enumerate(dataplane.spec.net.outbound or ()):
        tags = dict(outbound.tags or {})
        service = tags.pop(SERVICE_TAG, "")
        destination = Destination(service, tags=tuple(sorted(tags.items())))
        if service and not exists(world, dataplane.mesh, destination):
            path = f"{step('networking.outbound', index)}.tags"
            text = f"no inbound has the tags of {service}: calls to it are answered with 503"
            yield found(dataplane, Reason("no-endpoints", text, path, "correct the tags, or register who serves them"))

"""Dataplanes and services that cannot work as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeAlias

import msgspec

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.model.names import Destination
from cp.model.paths import step
from cp.model.violation import Finding
from cp.resources.client import is_grpc_client
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.view.proxies import unresolved
from cp.translate.view.redirected import redirection
from cp.translate.view.services import destination_of, endpoints_of, exists

_Written: TypeAlias = tuple[bytes, str, str, str]

_LOST: Final = "correct the reference, or remove the outbound"


def outbounds(survey: MeshSurvey) -> Iterator[Finding]:
    """Outbounds that lead nowhere, and workloads without any."""
    fine: set[_Written] = set()
    for proxy in survey.proxies:
        dataplane = proxy.dataplane
        written = dataplane.derived(_written)
        if written not in fine:  # most proxies have written the same as others
            lost = [*unresolved(survey.world, dataplane), *_to_nobody(survey.world, dataplane)]
            yield from (finding if finding.hint else replace(finding, hint=_LOST) for finding in lost)
            fine |= set() if lost else {written}
        yield from _calls_nobody(dataplane)


def services(survey: MeshSurvey) -> Iterator[Finding]:
    """Ports of MeshServices behind which there is nobody."""
    for service in survey.world.of_type("MeshService"):
        if service.mesh not in survey.meshes:
            continue
        for index, port in enumerate(service.spec.ports or ()):
            if not endpoints_of(survey.world, service.mesh, destination_of(service, port)).endpoints:
                path = step("spec.ports", index)
                text = f"no inbound serves port {port.port}: calls to it are answered with 503"
                hint = "compare `selector` with tags and labels, and `targetPort` with ports and names of inbounds"
                yield finding_about(service, FindingReason("no-endpoints", text, path, hint))


def no_dataplanes(survey: MeshSurvey) -> Iterator[Finding]:
    """Meshes that have policies and no Dataplane."""
    with_policies = {resource.mesh for resource in survey.world if resource.kind.policy is not None}
    for mesh in survey.world.table("Mesh"):
        if mesh.name in with_policies - survey.meshes:
            text = "there is no Dataplane in this mesh, so what its policies do is not judged"
            yield finding_about(mesh, FindingReason("no-dataplanes", text, "", "give `koguma lint` the Dataplanes too"))


def _written(dataplane: Resource) -> _Written:
    """All on which it depends what a dataplane's outbounds lead to, beside the World."""
    networking = dataplane.data.get("networking") or {}
    listed = networking.get("outbound") or (), networking.get("transparentProxying")
    return msgspec.json.encode(listed), dataplane.mesh, dataplane.zone, dataplane.namespace


def _calls_nobody(dataplane: Resource) -> Iterator[Finding]:
    net = dataplane.spec.net
    if is_grpc_client(dataplane):
        return
    if net.outbound is None and net.transparent_proxying is None and net.gateway is None and not net.listeners:
        text = "has neither outbounds nor transparent proxying: its workload calls nobody through its proxy"
        hint = "give it `networking.outbound`; `[]` says that it only serves"
        yield finding_about(dataplane, FindingReason("no-outbounds", text, "networking", hint))


def _to_nobody(world: World, dataplane: Resource) -> Iterator[Finding]:
    """Outbounds by tags that no inbound has."""
    if redirection(dataplane) is not None:
        return
    for index, outbound in enumerate(dataplane.spec.net.outbound or ()):
        tags = dict(outbound.tags or {})
        service = tags.pop(SERVICE_TAG, "")
        destination = Destination(service, tags=tuple(sorted(tags.items())))
        if service and not exists(world, dataplane.mesh, destination):
            path = f"{step('networking.outbound', index)}.tags"
            text = f"no inbound has the tags of {service}: calls to it are answered with 503"
            yield finding_about(
                dataplane, FindingReason("no-endpoints", text, path, "correct the tags, or register who serves them")
            )

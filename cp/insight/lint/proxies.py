"""Dataplanes and services that cannot work as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
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
from cp.translate.compiler import CompiledProxy
from cp.translate.view.backends import reached
from cp.translate.view.proxies import unresolved
from cp.translate.view.redirected import redirection
from cp.translate.view.services import destination_of, endpoints_of, exists, protocol_of

_Written: TypeAlias = tuple[bytes, str, str, str]

_LOST: Final = "correct the reference, or remove the outbound"
_FAILING_REQUESTS: Final = "calls to it are answered with 503"
_FAILING_CONNECTIONS: Final = "connections to it are closed"


def outbounds(survey: MeshSurvey) -> Iterator[Finding]:
    """Outbounds that lead nowhere, and workloads without any."""
    fine: set[_Written] = set()
    for proxy in survey.proxies:
        dataplane = proxy.dataplane
        written = dataplane.derived(_written)
        if written not in fine:  # most proxies have written the same as others
            lost, to_nobody = [*unresolved(survey.world, dataplane)], dict(_to_nobody(survey.world, dataplane))
            yield from (finding if finding.hint else replace(finding, hint=_LOST) for finding in lost)
            yield from (_nobody_there(proxy, *at) for at in to_nobody.items() if at[1] in proxy.proxy_class.backends)
            fine |= set() if lost or to_nobody else {written}
        yield from _calls_nobody(dataplane)


def services(survey: MeshSurvey) -> Iterator[Finding]:
    """Ports of MeshServices behind which there is nobody, unless routes lead all calls elsewhere."""
    elsewhere = _led_elsewhere(survey)
    for service in survey.world.of_type("MeshService"):
        if service.mesh not in survey.meshes:
            continue
        for index, port in enumerate(service.spec.ports or ()):
            destination = destination_of(service, port)
            is_empty = not endpoints_of(survey.world, service.mesh, destination).endpoints
            if is_empty and destination not in elsewhere:
                path, is_http = step("spec.ports", index), protocol_of(survey.world, service.mesh, destination).is_http
                text = f"no inbound serves port {port.port}: {_FAILING_REQUESTS if is_http else _FAILING_CONNECTIONS}"
                hint = "compare `selector` with tags and labels, and `targetPort` with ports and names of inbounds"
                yield finding_about(service, FindingReason("no-endpoints", text, path, hint))


def _led_elsewhere(survey: MeshSurvey) -> AbstractSet[Destination]:
    """What is called, and to which no route of anybody leads: the routes of all who call it lead elsewhere."""
    called: set[Destination] = set()
    reached_by_some: set[Destination] = set()
    for outbounds in survey.outbounds:
        called |= {result.address.destination for result in outbounds.callable_outbounds}
        reached_by_some |= set(map(reached, outbounds.proxy_class.backends))
    return called - reached_by_some


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


def _to_nobody(world: World, dataplane: Resource) -> Iterator[tuple[int, Destination]]:
    """Outbounds by tags that no inbound has, by their indexes."""
    if redirection(dataplane) is not None:
        return
    for index, outbound in enumerate(dataplane.spec.net.outbound or ()):
        tags = dict(outbound.tags or {})
        service = tags.pop(SERVICE_TAG, "")
        destination = Destination(service, tags=tuple(sorted(tags.items())))
        if service and not exists(world, dataplane.mesh, destination):
            yield index, destination


def _nobody_there(proxy: CompiledProxy, index: int, destination: Destination) -> Finding:
    """Nobody says what is spoken there, so it is taken for connections."""
    path = f"{step('networking.outbound', index)}.tags"
    text = f"no inbound has the tags of {destination.service}: {_FAILING_CONNECTIONS}"
    hint = "correct the tags, or register who serves them"
    return finding_about(proxy.dataplane, FindingReason("no-endpoints", text, path, hint))

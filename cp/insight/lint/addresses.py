"""Addresses and ports that several want.

See record 0042.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.model.names import Key
from cp.model.violation import Finding
from cp.resources.addresses import Address, AddressConflict, address_of, conflicts, not_served, owners
from cp.resources.resource import Resource
from cp.translate.compiler import CompiledProxy
from cp.translate.packing import LISTENER
from cp.translate.view.dataplanes import ports_of
from generators.envoy.names import metrics_listener

_METRIC: Final = "MeshMetric"


def addresses(survey: MeshSurvey) -> Iterator[Finding]:
    """Of several listeners of one Dataplane the first is served. Of several Dataplanes at one address all are."""
    owners_of_addresses: dict[tuple[str, Address], Resource] = {}
    for proxy in survey.proxies:
        dataplane = proxy.dataplane
        yield from (finding_about(dataplane, _within(conflict)) for conflict in dataplane.derived(conflicts))
        for path, address in inbound_addresses(dataplane):
            owner = owners_of_addresses.setdefault((dataplane.mesh, address), dataplane)
            if owner is not dataplane:
                yield finding_about(dataplane, _of_another(owner, path, address))


def metrics(survey: MeshSurvey) -> Iterator[Finding]:
    """Ports of MeshMetrics at which a proxy already listens for something else; each once."""
    seen: set[tuple[Key, str]] = set()
    for proxy in survey.proxies:
        listened_at = {**proxy.dataplane.derived(owners), **dict(_ports_of_gateway(proxy))}
        for address, policy, path in _metrics_listeners(proxy):
            resource = survey.world.get(policy)
            if address in listened_at and resource is not None and (policy, path) not in seen:
                seen.add((policy, path))
                yield finding_about(resource, _of_metrics(proxy.dataplane, listened_at[address], path, address))


def _ports_of_gateway(proxy: CompiledProxy) -> Iterator[tuple[Address, str]]:
    """Where a builtin gateway listens, with the place in its MeshGateway."""
    result = proxy.proxy_class.gateway
    for port in () if result is None else result.served.ports:
        listener = f"conf.listeners[{port.listeners[0].index}] of its MeshGateway"
        yield address_of(proxy.dataplane.spec.net.address or "", port.port), listener


def _metrics_listeners(proxy: CompiledProxy) -> Iterator[tuple[Address, Key, str]]:
    """Where a proxy listens for those who collect its metrics, with who wrote that, and where."""
    conf = proxy.sidecar.effective.get(_METRIC)
    names = {packed.name for packed in proxy.sidecar.fragment if packed.type_url == LISTENER}
    for index, backend in enumerate(conf.value.get("backends") or () if conf is not None else ()):
        port = (backend.get("prometheus") or {}).get("port")
        address = proxy.dataplane.spec.net.address or ""
        if conf is not None and port is not None and metrics_listener(address, port) in names:
            field, path = conf.written(f"backends[{index}].prometheus.port")
            yield address_of(address, port), field.winner.origin.policy, path


def inbound_addresses(dataplane: Resource) -> Iterator[tuple[str, Address]]:
    """Where others reach it, port by port."""
    taken = not_served(dataplane, "inbound")
    for port in ports_of(dataplane):
        if port.inbound.state != "Ignored" and port.index not in taken:
            yield f"networking.inbound[{port.index}]", (port.address, port.inbound.port)


def _within(conflict: AddressConflict) -> FindingReason:
    at = shown_address(conflict.address)
    if conflict.same_workload:
        text = f"{conflict.owner} has {at} too: calls are taken by that one, with its protocol and its policies"
        return FindingReason(
            "address-shared", text, conflict.path, "give each its own `port`; `servicePort` may be the same"
        )
    text = f"is not served: {conflict.owner} has {at} already, and the first has it"
    return FindingReason("address-taken", text, conflict.path, "give it another port, or remove one of the two")


def _of_another(owner: Resource, path: str, address: Address) -> FindingReason:
    text = f"Dataplane {owner.name} has {shown_address(address)} too: calls for either reach whoever listens there"
    return FindingReason("address-shared", text, path, "remove the Dataplane that is gone, or correct its address")


def _of_metrics(dataplane: Resource, owner: str, path: str, address: Address) -> FindingReason:
    at = shown_address(address)
    text = f"{owner} of Dataplane {dataplane.name} has {at} already: Envoy takes one of the two listeners"
    return FindingReason("address-taken", text, path, "give one of the two another port")


def shown_address(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

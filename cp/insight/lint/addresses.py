"""Addresses and ports that several want.

See record 0042.
"""

from __future__ import annotations

from collections.abc import Iterator

from cp.insight.lint.codes import FindingReason, found
from cp.insight.lint.survey import MeshSurvey
from cp.model.violation import Finding
from cp.resources.addresses import Address, AddressConflict, conflicts, not_served
from cp.resources.resource import Resource
from cp.translate.view.dataplanes import ports_of


def addresses(scene: MeshSurvey) -> Iterator[Finding]:
    """Within one Dataplane, where the first has it; and in several, which cannot all be there."""
    owners: dict[tuple[str, Address], Resource] = {}
    for proxy in scene.proxies:
        dataplane = proxy.dataplane
        yield from (found(dataplane, _within(one)) for one in dataplane.derived(conflicts))
        for path, address in _inbounds(dataplane):
            owner = owners.setdefault((dataplane.mesh, address), dataplane)
            if owner is not dataplane:
                yield found(dataplane, _of_another(owner, path, address))


def _inbounds(dataplane: Resource) -> Iterator[tuple[str, Address]]:
    """Where others reach it, port by port."""
    taken = not_served(dataplane, "inbound")
    for port in ports_of(dataplane):
        if port.inbound.state != "Ignored" and port.index not in taken:
            yield f"networking.inbound[{port.index}]", (port.address, port.inbound.port)


def _within(conflict: AddressConflict) -> FindingReason:
    at = _shown(conflict.address)
    if conflict.same_workload:
        text = f"{conflict.owner} has {at} too: calls are taken by that one, with its protocol and its policies"
        return FindingReason(
            "address-shared", text, conflict.path, "give each its own `port`; `servicePort` may be the same"
        )
    text = f"is not served: {conflict.owner} has {at} already, and the first has it"
    return FindingReason("address-taken", text, conflict.path, "give it another port, or remove one of the two")


def _of_another(owner: Resource, path: str, address: Address) -> FindingReason:
    text = f"Dataplane {owner.name} has {_shown(address)} too: calls for either reach whoever listens there"
    return FindingReason("address-shared", text, path, "remove the Dataplane that is gone, or correct its address")


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

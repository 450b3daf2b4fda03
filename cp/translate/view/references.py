"""The services that a dataplane's document names."""

from __future__ import annotations

from typing import Any

from cp.model.names import Identity
from cp.resources.resource import Resource
from cp.resources.world import World


def referred(world: World, dataplane: Resource, reference: Any) -> tuple[Resource, ...]:
    """Those with the labels, or the one of that name: the dataplane's own zone first, then any of this name."""
    table = world.table(reference.kind, dataplane.mesh)
    if reference.labels:
        return table.labelled(reference.labels)
    namespace = reference.namespace or dataplane.namespace
    for zone in dict.fromkeys((dataplane.zone, "")):
        identity = Identity(reference.kind, dataplane.mesh, reference.name, zone, namespace)
        if (service := table.by_identity.get(identity)) is not None:
            return (service,)
    service = None if reference.namespace else table.get(reference.name)
    return () if service is None else (service,)

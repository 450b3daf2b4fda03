"""The services that references in a dataplane name."""

from __future__ import annotations

from typing import Any

from cp.model.names import Identity
from cp.resources.resource import Resource
from cp.resources.world import World


def referred(world: World, dataplane: Resource, reference: Any) -> tuple[Resource, ...]:
    """The services with the labels, or the one of the name: first in the dataplane's own zone, then in any."""
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

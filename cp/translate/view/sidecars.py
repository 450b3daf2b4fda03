"""What is said of a proxy in its configuration: in logs, and to those that it calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cp.resources.caller import Caller
from cp.resources.resource import Resource
from cp.translate.view.dataplanes import SERVICE_TAG, ZONE_TAG
from generators.proxy import Sidecar

_WORKLOAD_LABEL = "kuma.io/workload"


def sidecar_of(dataplane: Resource) -> Sidecar:
    """All that there is to say about a proxy."""
    networking = dataplane.spec.networking
    gateway = networking.gateway.tags if networking.gateway is not None else None
    carried = [tags for tags in (gateway, *(inbound.tags for inbound in networking.inbound or ())) if tags]
    first = carried[0] if carried else {}
    return Sidecar(
        mesh=dataplane.mesh,
        zone=first.get(ZONE_TAG) or dataplane.zone,
        service=first.get(SERVICE_TAG) or dataplane.display_name,
        workload=dataplane.labels.get(_WORKLOAD_LABEL, ""),
        address=networking.address or "",
        tags=tuple(sorted({tag for tags in carried for tag in tags.items()})),
    )


def told(dataplane: Resource, names: Iterable[str]) -> tuple[tuple[str, Any], ...]:
    """Some of it, by the names of its fields."""
    whole = dataplane.derived(sidecar_of)
    return tuple((name, getattr(whole, name)) for name in sorted(names))


def told_of(caller: Caller) -> Sidecar:
    """What is said of a caller."""
    fields: dict[str, Any] = dict(caller.told)
    return Sidecar(**fields)

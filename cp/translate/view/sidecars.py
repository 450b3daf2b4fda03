"""What Envoy configuration says about a proxy itself: in its access logs, and to the services that it calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cp.resources.caller import Caller
from cp.resources.dataplane import SERVICE_TAG, ZONE_TAG
from cp.resources.labels import WORKLOAD_LABEL
from cp.resources.resource import Resource
from generators.proxy import Sidecar


def sidecar_of(dataplane: Resource) -> Sidecar:
    """The sidecar of a dataplane, with all of its fields."""
    networking = dataplane.spec.networking
    gateway = networking.gateway.tags if networking.gateway is not None else None
    carried = [tags for tags in (gateway, *(inbound.tags for inbound in networking.inbound or ())) if tags]
    first = carried[0] if carried else {}
    return Sidecar(
        mesh=dataplane.mesh,
        zone=first.get(ZONE_TAG) or dataplane.zone,
        service=first.get(SERVICE_TAG) or dataplane.display_name,
        workload=dataplane.labels.get(WORKLOAD_LABEL, ""),
        address=networking.address or "",
        tags=tuple(sorted({tag for tags in carried for tag in tags.items()})),
    )


def sidecar_fields(dataplane: Resource, names: Iterable[str]) -> tuple[tuple[str, Any], ...]:
    """The values of some fields of the sidecar of a dataplane, by their names."""
    whole = dataplane.derived(sidecar_of)
    return tuple((name, getattr(whole, name)) for name in sorted(names))


def sidecar_of_caller(caller: Caller) -> Sidecar:
    """A sidecar with only the fields that the caller was asked for."""
    fields: dict[str, Any] = dict(caller.sidecar_fields)
    return Sidecar(**fields)

"""Ports by their one name: a port is called by its name or, if it has none, by its number.

See docs/concepts/matching-and-merging.md#ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cp.resources.resource import Resource


def port_name(port: Mapping[str, Any]) -> str:
    return port.get("name") or str(port.get("port", ""))


def section_of(service: Resource, written: str) -> str | None:
    """The name of the port that is written as a name or a number; None if the service has no such port."""
    names = [port_name(port) for port in _ports(service)]
    if written in names:
        return written
    return next((port_name(port) for port in _ports(service) if str(port.get("port")) == written), None)


def has_sections(service: Resource) -> bool:
    """A MeshExternalService has one port, and nobody calls it by a name."""
    return service.type in {"MeshService", "MeshMultiZoneService"}


def _ports(service: Resource) -> Iterable[Mapping[str, Any]]:
    return service.data.get("ports") or ()

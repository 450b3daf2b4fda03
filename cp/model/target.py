"""`TargetRef`: the reference by which a policy names proxies, destinations or clients."""

from __future__ import annotations

from typing import Final

import msgspec

from cp.model.numbers import Integer

REAL: Final = frozenset(
    {
        "Mesh",
        "Dataplane",
        "MeshGateway",
        "MeshService",
        "MeshExternalService",
        "MeshMultiZoneService",
        "MeshHTTPRoute",
        "MeshTCPRoute",
    }
)
"""The kinds that name resources, and not tags alone."""

RANK: Final = {
    "Mesh": 1,
    "Dataplane": 2,
    "MeshSubset": 3,
    "MeshGateway": 4,
    "MeshService": 5,
    "MeshExternalService": 6,
    "MeshMultiZoneService": 7,
    "MeshServiceSubset": 8,
    "MeshHTTPRoute": 9,
    "MeshTCPRoute": 10,
}
"""How specific a kind is: of two policies the one with the higher rank wins."""


class TargetRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A reference to proxies, destinations or clients, depending on where it stands."""

    kind: str = ""
    name: str | None = None
    mesh: str | None = None
    namespace: str | None = None
    section_name: str | None = None
    tags: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    proxy_types: list[str] | None = None


class BackendRef(TargetRef, frozen=True):
    """A reference to where requests go, with its share of them."""

    weight: Integer | None = None
    port: Integer | None = None


EVERYTHING: Final = TargetRef(kind="Mesh")
"""The target of a policy that has none."""

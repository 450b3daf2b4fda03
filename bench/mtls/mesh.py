"""The mesh of a run with mTLS, the same without it, and the documents that are edited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from bench.serving import mesh
from cp.model.document import Document

AUTHORITY: Final = "ca-1"
NEXT_AUTHORITY: Final = "ca-2"
DAY: Final = "24h"


def documents(proxies: int, services: int, *, has_mtls: bool) -> Iterator[Document]:
    """Everybody may call everybody, which takes a permission where there is mTLS, and none where there is not."""
    for document in mesh.documents(proxies, services):
        yield mesh.of(secured(AUTHORITY)) if has_mtls and document.key.type == "Mesh" else document
    yield mesh.of(permission_for_all("nobody"))
    yield mesh.of(permission_for_one("nobody"))


def secured(authority: str, lifetime: str = DAY) -> dict[str, Any]:
    """The Mesh with an authority, and how long certificates of proxies are valid."""
    rotation = {"rotation": {"expiration": lifetime}}
    backend = {"name": authority, "type": "builtin", "mode": "STRICT", "dpCert": rotation}
    return mesh.of_mesh({"mtls": {"enabledBackend": authority, "backends": [backend]}})


def permission_for_all(denied: str) -> dict[str, Any]:
    """Everybody may call everybody, except for one service that may call nobody."""
    return _permission("for-all", {"kind": "Mesh"}, denied)


def permission_for_one(denied: str) -> dict[str, Any]:
    """One service may not call another one."""
    return _permission("for-one", {"kind": "MeshSubset", "tags": {"kuma.io/service": "s1"}}, denied)


def certificate_names(number: int, services: int) -> frozenset[str]:
    """All names in the certificate of a proxy."""
    service = f"s{number % services}"
    return frozenset(
        {f"spiffe://{mesh.MESH}/{service}", f"kuma://kuma.io/service/{service}", "kuma://kuma.io/protocol/http"}
    )


def _permission(name: str, top: dict[str, Any], denied: str) -> dict[str, Any]:
    everybody = {"spiffeID": {"type": "Prefix", "value": f"spiffe://{mesh.MESH}/"}}
    one = {"spiffeID": {"type": "Exact", "value": f"spiffe://{mesh.MESH}/{denied}"}}
    rule = {"default": {"allow": [everybody], "deny": [one]}}
    spec = {"targetRef": top, "rules": [rule]}
    return {"type": "MeshTrafficPermission", "mesh": mesh.MESH, "name": name, "spec": spec}

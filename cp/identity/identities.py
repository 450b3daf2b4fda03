"""Who a proxy is: what its certificate says, and who signs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from cp.model.memo import Memo
from cp.resources.dataplane import SERVICE_TAG, Dataplane
from cp.resources.mesh import CaBackend
from cp.resources.resource import Resource
from cp.resources.world import World


@dataclass(frozen=True, slots=True)
class AuthorityRef:
    """Which authority signs."""

    kind: Literal["Mesh", "MeshIdentity"]
    mesh: str
    name: str
    """Of the backend of the Mesh, or of the MeshIdentity."""


@dataclass(frozen=True, slots=True)
class ProxyIdentity:
    """What the certificate of a proxy says, and who signs it."""

    uris: tuple[str, ...]
    authority: AuthorityRef
    lifetime: float
    """Seconds."""

    key: Literal["EC", "RSA2048"]


def identity_of(world: World, dataplane: Resource) -> ProxyIdentity | None:
    """Who a proxy is; None if it is nobody: mTLS is off, or nothing is known by which it could be called."""
    return world.recall(_Identities, dataplane)


class _Identities(Memo[World, Resource, ProxyIdentity | None]):
    def is_alive(self, generation: World, key: Resource) -> bool:
        return generation.get(key.key) is key

    def basis(self, source: World, key: Resource) -> Resource | None:
        return source.mesh(key.mesh)

    def work_out(self, source: World, key: Resource) -> ProxyIdentity | None:
        mesh = source.mesh(key.mesh)
        backend: CaBackend | None = None if mesh is None else mesh.spec.authority
        uris = key.derived(_uris)
        if backend is None or not uris:
            return None
        authority = AuthorityRef("Mesh", key.mesh, backend.name or "")
        return ProxyIdentity(uris, authority, backend.leaf_lifetime, "RSA2048" if backend.wants_rsa else "EC")


def _uris(dataplane: Resource) -> tuple[str, ...]:
    """A SPIFFE ID for each service, and a name for each tag, by which permissions know it."""
    tags = _tags(dataplane.spec)
    services = (f"spiffe://{dataplane.mesh}/{service}" for service in tags.get(SERVICE_TAG, ()))
    others = (f"kuma://{name}/{value}" for name, values in tags.items() for value in values)
    return (*services, *others)


def _tags(dataplane: Dataplane) -> Mapping[str, Iterable[str]]:
    """The values of each tag, sorted."""
    net = dataplane.net
    groups = [inbound.tags for inbound in net.inbound or ()]
    if net.gateway is not None:
        groups.append(net.gateway.tags)
    tags: dict[str, set[str]] = {}
    for name, value in (item for group in groups for item in (group or {}).items()):
        tags.setdefault(name, set()).add(value)
    return {name: sorted(values) for name, values in sorted(tags.items())}

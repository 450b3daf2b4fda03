"""mTLS of a mesh, as far as it follows from the World: who is trusted, and who speaks TLS."""

from __future__ import annotations

from dataclasses import dataclass

from cp.identity.trust import trust_of
from cp.model.memo import Memo
from cp.model.secret_names import trust_key
from cp.resources.resource import Resource
from cp.resources.world import World


@dataclass(frozen=True, slots=True)
class TrustBundle:
    """Who signs for one trust domain."""

    domain: str
    """`default`: the host of `spiffe://default/...`."""

    certificates: str
    """In PEM: one or more roots, old and new ones during a rotation."""


@dataclass(frozen=True, slots=True)
class MeshSecurity:
    """mTLS of one mesh."""

    is_permissive: bool
    """Whether inbounds also take plain text."""

    bundles: tuple[TrustBundle, ...]
    """Nobody can be verified where there are none yet, so there inbounds wait."""

    callers_use_tls: bool
    """Whether callers speak TLS already: not right after PERMISSIVE was switched on."""


def security_of(world: World, mesh: str) -> MeshSecurity | None:
    """mTLS of a mesh; None where it is off. Equal in the next World is the same object there."""
    return world.recall(_Securities, mesh)


class _Securities(Memo[World, str, MeshSecurity | None]):
    def basis(self, source: World, key: str) -> tuple[Resource | None, Resource | None]:
        return source.mesh(key), source.get(trust_key(key))

    def work_out(self, source: World, key: str) -> MeshSecurity | None:
        mesh = source.mesh(key)
        authority = None if mesh is None else mesh.spec.authority
        if authority is None:
            return None
        record = trust_of(source.get(trust_key(key)))
        is_permissive = authority.mode == "PERMISSIVE"
        bundles = (TrustBundle(key, record.certificates),) if record.roots else ()
        return MeshSecurity(is_permissive, bundles, record.callers or not is_permissive)

"""Whose a trust domain is: a MeshIdentity does not sign for one that is another mesh's.

Domains are told apart by name alone, so the same one in two meshes would be two authorities for the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.identity.trust import TrustRecord, trust_of
from cp.identity.workloads import KIND, domain_of, record_of
from cp.model.names import Key
from cp.model.secret_names import trust_key
from cp.model.violation import Violation
from cp.resources.resource import Resource
from cp.resources.world import World

_PLACE: Final = "spec.spiffeID.trustDomain"
_HINT: Final = "leave it out, or give both the same authority"


def fault_of_rival(world: World, identity: Resource, fingerprint: str) -> Violation | None:
    """Why an authority may not sign for the domain of a MeshIdentity; None if it may.

    It may where the other mesh trusts it itself.
    """
    for rival, record in _rivals(world, identity.mesh, identity.derived(domain_of)):
        if record.root(fingerprint) is None:
            text = f"leads to `{identity.derived(domain_of)}`, which is the trust domain of {rival}"
            return Violation(_PLACE, text, _HINT)
    return None


def _rivals(world: World, mesh: str, domain: str) -> Iterator[tuple[Key, TrustRecord]]:
    """Those of other meshes who have a trust domain, and before this mesh, each with whom it trusts."""
    for other in world.table("Mesh"):
        if other.name == mesh:
            continue
        if other.name == domain:
            yield other.key, trust_of(world.get(trust_key(other.name)))
        if _claim(other.name, domain) < _claim(mesh, domain):
            identities = world.table(KIND, other.name)
            same = (identity for identity in identities if identity.derived(domain_of) == domain)
            yield from ((identity.key, record_of(world, identity)) for identity in same)


def _claim(mesh: str, domain: str) -> tuple[int, str]:
    """What comes first has it: the mesh whose name is in front, the longest, so that nobody takes it from there."""
    is_own = domain == mesh or domain.startswith(f"{mesh}.")
    return -len(mesh) if is_own else 0, mesh

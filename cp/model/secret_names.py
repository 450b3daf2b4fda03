"""The Secrets of a mesh that the control plane writes for itself. Those of an authority have Kuma's names."""

from __future__ import annotations

from typing import Final

from cp.model.names import Key

_SECRET: Final = "Secret"  # noqa: S105  # a kind of resource
_BUILT_IN: Final = ".ca-builtin-"


def trust_key(mesh: str) -> Key:
    """Which authorities the mesh trusts, and who signs."""
    return Key(_SECRET, mesh, f"{mesh}.ca-trust")


def identity_trust_key(mesh: str, identity: str) -> Key:
    """Which authorities of a MeshIdentity the mesh trusts, and who of them signs."""
    return Key(_SECRET, mesh, f"{identity}.identity-trust")


def authority_certificate_key(mesh: str, backend: str) -> Key:
    """The certificate of a built-in authority."""
    return Key(_SECRET, mesh, f"{mesh}{_BUILT_IN}cert-{backend}")


def authority_private_key(mesh: str, backend: str) -> Key:
    """The key of a built-in authority."""
    return Key(_SECRET, mesh, f"{mesh}{_BUILT_IN}key-{backend}")


def is_of_authority(key: Key) -> bool:
    """Whether it is one of these."""
    return key.type == _SECRET and (key == trust_key(key.mesh) or key.name.startswith(f"{key.mesh}{_BUILT_IN}"))

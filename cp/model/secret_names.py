"""The Secrets of a mesh that the control plane writes for itself. Those of an authority have Kuma's names."""

from __future__ import annotations

from typing import Final

from cp.model.document import Document
from cp.model.made_here import is_labelled_made_here
from cp.model.names import Key

_SECRET: Final = "Secret"  # noqa: S105  # a kind of resource
_BUILT_IN: Final = ".ca-builtin-"
_OF_IDENTITY: Final = ".identity-trust"
_ROOT_OF_IDENTITY: Final = "-root-ca"
_KEY_OF_IDENTITY: Final = "-private-key"
LONGEST_OF_IDENTITY: Final = len(_OF_IDENTITY)
"""By how much the name of such a Secret is longer than that of its MeshIdentity."""


def trust_key(mesh: str) -> Key:
    """Which authorities the mesh trusts, and who signs."""
    return Key(_SECRET, mesh, f"{mesh}.ca-trust")


def identity_trust_key(mesh: str, identity: str) -> Key:
    """Which authorities of a MeshIdentity the mesh trusts, and who of them signs."""
    return Key(_SECRET, mesh, f"{identity}{_OF_IDENTITY}")


def identity_of_trust(name: str) -> str | None:
    """The MeshIdentity whose record a Secret with this name is; None if it is another Secret."""
    identity = name.removesuffix(_OF_IDENTITY)
    return None if identity in {name, ""} else identity


def identity_certificate_key(mesh: str, identity: str) -> Key:
    """The certificate of the authority that the control plane made for a MeshIdentity."""
    return Key(_SECRET, mesh, f"{identity}{_ROOT_OF_IDENTITY}")


def identity_private_key(mesh: str, identity: str) -> Key:
    """The key of the authority that the control plane made for a MeshIdentity."""
    return Key(_SECRET, mesh, f"{identity}{_KEY_OF_IDENTITY}")


def authority_certificate_key(mesh: str, backend: str) -> Key:
    """The certificate of a built-in authority."""
    return Key(_SECRET, mesh, f"{mesh}{_BUILT_IN}cert-{backend}")


def authority_private_key(mesh: str, backend: str) -> Key:
    """The key of a built-in authority."""
    return Key(_SECRET, mesh, f"{mesh}{_BUILT_IN}key-{backend}")


def is_of_authority(document: Document) -> bool:
    """Whether a document is one of these, made by a control plane: people may name their Secrets like them."""
    key = document.key
    of_mesh = key == trust_key(key.mesh) or key.name.startswith(f"{key.mesh}{_BUILT_IN}")
    of_identity = key.name.endswith((_OF_IDENTITY, _ROOT_OF_IDENTITY, _KEY_OF_IDENTITY))
    return key.type == _SECRET and (of_mesh or of_identity) and is_labelled_made_here(document)

"""The Secrets of a mesh that the control plane writes for itself. Those of an authority have Kuma's names."""

from __future__ import annotations

from typing import Final

from cp.model.document import Document
from cp.model.made_here import is_labelled_made_here
from cp.model.names import Key
from cp.model.violation import Violation

_SECRET: Final = "Secret"  # noqa: S105  # a kind of resource
_BUILT_IN: Final = ".ca-builtin-"
_OF_IDENTITY: Final = ".identity-trust"
_ROOT_OF_IDENTITY: Final = "-root-ca"
_KEY_OF_IDENTITY: Final = "-private-key"
_OF_TOKENS: Final = ("dataplane-token-signing-key-", "dataplane-token-revocations-")
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


def is_trust_record(key: Key) -> bool:
    """Whether a name is one under which the control plane notes whom proxies trust."""
    return key.type == _SECRET and (key == trust_key(key.mesh) or identity_of_trust(key.name) is not None)


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


def kept_from(secret: Document, reader: Key) -> Violation | None:
    """Why a document may not have in it what a Secret says that it names; None if it may.

    Who may write the document need not have any right to Secrets, and what it comes to is sent to proxies.
    """
    if not is_own(secret) or secret.key in _of_reader(secret.key, reader):
        return None
    text = f"the Secret `{secret.key.name}` is the control plane's own, and is given to nobody"
    return Violation("", text, "name a Secret that you have stored")


def is_own(secret: Document) -> bool:
    """Whether a Secret is the control plane's. Names that people may choose too count where it has made the Secret."""
    key = secret.key
    starts = (f"{key.mesh}{_BUILT_IN}", *_OF_TOKENS)
    is_named = is_trust_record(key) or key.name.startswith(starts)
    return key.type == _SECRET and (is_named or is_labelled_made_here(secret))


def _of_reader(secret: Key, reader: Key) -> tuple[Key, ...]:
    """What of the control plane's Secrets belongs to a Mesh or a MeshIdentity, which may name it."""
    if reader.type == "MeshIdentity":
        return identity_certificate_key(reader.mesh, reader.name), identity_private_key(reader.mesh, reader.name)
    is_built_in = secret.mesh == reader.name and secret.name.startswith(f"{reader.name}{_BUILT_IN}")
    return (secret,) if reader.type == "Mesh" and is_built_in else ()

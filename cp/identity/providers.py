"""Where the authority of a MeshIdentity is: in Secrets that the control plane made, or wherever the identity says.

See record 0057.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from cp.identity.authority import Authority, KeyPair, authority, new_pair
from cp.identity.backends import ReadFile, content_of_file, content_of_secret, made_authority
from cp.identity.workloads import domain_of
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import identity_certificate_key, identity_private_key
from cp.model.violation import Violation
from cp.resources.mesh import CaBackend
from cp.resources.mesh_identity import BundledProvider, ProvidedAuthority
from cp.resources.resource import Resource
from cp.resources.secret import secret_document
from cp.resources.sources import SecureDataSource
from cp.resources.world import World

ReadVariable: TypeAlias = Callable[[str], str | None]
"""The value of a variable of the control plane's environment; None if it is not set."""

_ROOT: Final = "spec.provider.bundled"
_PATHS: Final = {"cert": f"{_ROOT}.ca.certificate", "key": f"{_ROOT}.ca.privateKey"}
_SELF_SIGNED: Final = Violation(
    "", "is self-signed", "write `insecureAllowSelfSigned: true`, or have another authority sign it"
)


def secrets_of_identity(identity: Resource, now: float) -> tuple[Document, Document]:
    """A new authority for a MeshIdentity, as it is stored."""
    pair = new_pair(identity.derived(domain_of), CaBackend(), now)
    return (
        secret_document(identity_certificate_key(identity.mesh, identity.name), pair.certificate),
        secret_document(identity_private_key(identity.mesh, identity.name), pair.key),
    )


def is_to_be_made(world: World, identity: Resource) -> bool:
    """Whether the control plane still has to make the authority of a MeshIdentity."""
    bundled = _bundled(identity)
    keys = identity_certificate_key(identity.mesh, identity.name), identity_private_key(identity.mesh, identity.name)
    may_be = bundled.is_generated and bool(bundled.insecure_allow_self_signed)
    return may_be and all(world.get(key) is None for key in keys)


def workload_authority(
    world: World, identity: Resource, read: ReadFile, variable: ReadVariable, now: float | None
) -> Authority | Violation:
    """The authority of a MeshIdentity that has one, or why it cannot sign: the path is one in the document."""
    bundled = _bundled(identity)
    if bundled.is_generated:
        return _generated(world, identity, bundled, now)
    pair = _provided(world, identity.key, bundled.ca or ProvidedAuthority(), read, variable)
    signer = authority(pair, now) if isinstance(pair, KeyPair) else pair
    if isinstance(signer, Violation):
        return Violation(_PATHS[signer.path], signer.message, signer.hint)
    if not bundled.insecure_allow_self_signed and _is_self_signed(signer.certificate):
        return _SELF_SIGNED.at(_PATHS["cert"])
    return signer


def _bundled(identity: Resource) -> BundledProvider:
    bundled: BundledProvider = identity.spec.authority
    return bundled


def _generated(world: World, identity: Resource, bundled: BundledProvider, now: float | None) -> Authority | Violation:
    path = f"{_ROOT}.autogenerate"
    if not bundled.insecure_allow_self_signed:
        return _SELF_SIGNED.at(path)
    signer = generated_authority(world, identity.mesh, identity.name, now)
    return signer if isinstance(signer, Authority) else signer.at(path)


def generated_authority(world: World, mesh: str, identity: str, now: float | None) -> Authority | Violation:
    """The authority that the control plane made for a MeshIdentity."""
    keys = identity_certificate_key(mesh, identity), identity_private_key(mesh, identity)
    return made_authority(world, keys, now)


def _provided(
    world: World, reader: Key, ca: ProvidedAuthority, read: ReadFile, variable: ReadVariable
) -> KeyPair | Violation:
    certificate = _content(world, reader, ca.certificate, read, variable)
    if isinstance(certificate, Violation):
        return certificate.at("cert")
    key = _content(world, reader, ca.private_key, read, variable)
    return key.at("key") if isinstance(key, Violation) else KeyPair(certificate, key)


def _content(
    world: World, reader: Key, source: SecureDataSource | None, read: ReadFile, variable: ReadVariable
) -> bytes | Violation:
    if source is not None and source.file is not None:
        return content_of_file(source.file.path, read)
    if source is not None and source.env_var is not None:
        value = variable(source.env_var.name)
        hint = "set it for the control plane, and start it again"
        return Violation("", f"`{source.env_var.name}` is not set", hint) if value is None else value.encode()
    if source is not None and source.secret_ref is not None:
        return content_of_secret(world, Key("Secret", reader.mesh, source.secret_ref.name), reader)
    if source is not None and source.insecure_inline is not None and source.insecure_inline.value is not None:
        return source.insecure_inline.value.reveal().encode()
    return Violation("", "must be set")


def _is_self_signed(certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True

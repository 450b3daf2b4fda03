"""Where the authority of a Mesh is: in Secrets that the control plane made, or wherever the Mesh says it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cp.identity.authority import Authority, KeyPair, authority
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import authority_certificate_key, authority_private_key, kept_from
from cp.model.violation import Violation
from cp.resources.mesh import CaBackend
from cp.resources.resource import Resource
from cp.resources.secret import secret_document
from cp.resources.sources import DataSource, decoded
from cp.resources.world import World

ReadFile: TypeAlias = Callable[[str], bytes]
"""The content of a file on this machine. Raises `OSError`, always with its `strerror`."""

_SECRET = "Secret"  # noqa: S105  # a kind of resource


def secrets_of(mesh: str, backend: str, pair: KeyPair) -> tuple[Document, Document]:
    """A built-in authority as it is stored."""
    return (
        secret_document(authority_certificate_key(mesh, backend), pair.certificate),
        secret_document(authority_private_key(mesh, backend), pair.key),
    )


def is_missing(world: World, mesh: str, backend: CaBackend) -> bool:
    """Whether a built-in authority is still to be made."""
    name = backend.name or ""
    return (
        backend.type == "builtin"
        and world.get(authority_certificate_key(mesh, name)) is None
        and world.get(authority_private_key(mesh, name)) is None
    )


def enabled_authority(world: World, mesh: Resource, read: ReadFile, now: float | None) -> Authority | Violation:
    """The authority that a Mesh enables, or why there is none: the path is one in the Mesh, which has to enable one."""
    index, backend = next(
        (index, backend)
        for index, backend in enumerate(mesh.spec.mtls.backends)
        if backend.name == mesh.spec.mtls.enabled_backend
    )
    root = f"mtls.backends[{index}]"
    if backend.type == "builtin":
        stored = builtin_authority(world, mesh.name, backend.name or "", now)
        return stored if isinstance(stored, Authority) else stored.at(root)
    pair = _provided(world, mesh.name, backend, read)
    signing = authority(pair, now) if isinstance(pair, KeyPair) else pair
    return signing if isinstance(signing, Authority) else signing.at(f"{root}.conf")


def builtin_authority(world: World, mesh: str, backend: str, now: float | None) -> Authority | Violation:
    """An authority that the control plane made, by the name of its backend."""
    return made_authority(world, (authority_certificate_key(mesh, backend), authority_private_key(mesh, backend)), now)


def made_authority(world: World, keys: tuple[Key, Key], now: float | None) -> Authority | Violation:
    """An authority that the control plane made, by the Secrets with its certificate and its key."""
    secrets = [world.get(key) for key in keys]
    for key, secret in zip(keys, secrets, strict=True):
        if secret is None:
            return Violation("", f"there is no {key}", "without it nothing can be signed")
    certificate, key_secret = (secret.spec.value() for secret in secrets if secret is not None)
    signing = authority(KeyPair(certificate, key_secret), now)
    if isinstance(signing, Authority):
        return signing
    return Violation("", f"{keys[0] if signing.path == 'cert' else keys[1]} {signing.message}", signing.hint)


def _provided(world: World, mesh: str, backend: CaBackend, read: ReadFile) -> KeyPair | Violation:
    conf = backend.conf
    certificate = _content(world, mesh, None if conf is None else conf.cert, read)
    if isinstance(certificate, Violation):
        return certificate.at("cert")
    key = _content(world, mesh, None if conf is None else conf.key, read)
    return key.at("key") if isinstance(key, Violation) else KeyPair(certificate, key)


def _content(world: World, mesh: str, source: DataSource | None, read: ReadFile) -> bytes | Violation:
    if source is None:
        return Violation("", "must be set for a provided authority")
    if source.secret is not None:
        return content_of_secret(world, Key(_SECRET, mesh, source.secret), Key("Mesh", "", mesh))
    if source.file is not None:
        return content_of_file(source.file, read)
    if source.inline is not None:
        return decoded(source.inline) or b""
    return b"" if source.inline_string is None else source.inline_string.reveal().encode()


def content_of_secret(world: World, key: Key, reader: Key) -> bytes | Violation:
    """What a Secret has, for a document that names it."""
    secret = world.get(key)
    if secret is None:
        return Violation("", f"there is no Secret `{key.name}`", "store it, or name another")
    kept = kept_from(secret.document, reader)
    value: bytes = secret.spec.value()
    return value if kept is None else kept


def content_of_file(file: str, read: ReadFile) -> bytes | Violation:
    """What a file on this machine has, for a document that names it."""
    try:
        return read(file)
    except OSError as error:
        return Violation("", f"`{file}` cannot be read: {error.strerror}", "the control plane reads it")

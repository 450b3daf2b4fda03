"""The trust record of a mesh: which authorities its proxies trust, and which of them signs.

It is a Secret of the mesh, because everything that a rotation has come to must survive the control plane. Only the
control plane writes it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import identity_of_trust
from cp.resources.resource import Resource
from cp.resources.secret import secret_document
from cp.resources.world import Table

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")


class TrustedRoot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An authority that the mesh trusts. Times are seconds since 1970."""

    fingerprint: str
    """The SHA-256 of the certificate that signs, in hexadecimal."""

    certificate: str
    """In PEM: the one that signs, and those that belong to it."""

    backend: str
    """The backend of the Mesh that it was when it was first trusted."""

    since: float = msgspec.field(name="from")
    until: float | None = None
    """When it is trusted no longer: the last certificate that it signed has expired then. None while it may sign."""

    lifetime: float
    """The longest life of a certificate that it signs, in seconds."""


class TrustRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    roots: tuple[TrustedRoot, ...] = ()
    """In the order in which they came to be trusted."""

    signer: str = ""
    """The fingerprint of the root that signs: the newest, or the one before until everybody trusts the newest."""

    domain: str = ""
    """The trust domain for which they are trusted, in the record of a MeshIdentity; empty: for none because of it."""

    callers: bool = False
    """Whether callers speak TLS. From then on they do until mTLS is switched off."""

    def root(self, fingerprint: str) -> TrustedRoot | None:
        return next((root for root in self.roots if root.fingerprint == fingerprint), None)

    @property
    def certificates(self) -> str:
        """All that is trusted, each certificate once, in PEM."""
        blocks = (block for root in self.roots for block in pem_blocks(root.certificate))
        return "".join(dict.fromkeys(blocks))


NO_TRUST: Final = TrustRecord()


def pem_blocks(text: str) -> list[str]:
    """The certificates in a text in PEM, one by one, without anything else in it."""
    return [f"{block}\n" for block in _CERTIFICATE.findall(text.replace("\r", ""))]


def trust_of(secret: Resource | None) -> TrustRecord:
    """What a Secret says; nothing is trusted if there is none, or if it was not written by us."""
    return NO_TRUST if secret is None else secret.derived(_read)


def _read(secret: Resource) -> TrustRecord:
    try:
        return msgspec.json.decode(secret.spec.value(), type=TrustRecord)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return NO_TRUST


def record_document(key: Key, record: TrustRecord) -> Document:
    """A record as it is stored."""
    return secret_document(key, msgspec.json.encode(record))


def identity_records(secrets: Table) -> tuple[TrustRecord, ...]:
    """The records of all MeshIdentities of a mesh, also of those that are gone. Use it as `table.derived(...)`."""
    return tuple(trust_of(secret) for secret in secrets if identity_of_trust(secret.name) is not None)

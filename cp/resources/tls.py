"""The versions and ciphers of TLS that a document may name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from cp.model.violation import Violation
from cp.resources.schema import Schema

TlsVersion: TypeAlias = Literal["TLSAuto", "TLS10", "TLS11", "TLS12", "TLS13"]
VERSIONS: Final = ("TLS10", "TLS11", "TLS12", "TLS13")
ENVOY_VERSIONS: Final = {"TLS10": "TLSv1_0", "TLS11": "TLSv1_1", "TLS12": "TLSv1_2", "TLS13": "TLSv1_3"}
"""The names that Envoy has for them. What is not in here leaves the choice to Envoy."""

CIPHERS: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
)


class TlsVersions(Schema, frozen=True):
    """The oldest and the newest version that may be negotiated."""

    min: TlsVersion | None = None
    max: TlsVersion | None = None


def tls_versions(versions: TlsVersions) -> Iterator[Violation]:
    if versions.min in VERSIONS and versions.max in VERSIONS and versions.min > versions.max:
        yield Violation("min", f"`{versions.min}` is newer than the `max` of {versions.max}", "exchange them")

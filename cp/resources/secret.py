"""Secret: a key, a certificate or a token, which is never printed."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

from cp.model.document import Document
from cp.model.made_here import MADE_HERE
from cp.model.names import Key
from cp.model.violation import Violation
from cp.resources.checks import absent
from cp.resources.kinds import DocumentMeta, Kind
from cp.resources.schema import Schema
from cp.resources.sources import Redacted, decoded


class Secret(Schema, frozen=True):
    data: Redacted | None = None

    def value(self) -> bytes:
        """The secret itself. Callers must not let it into any output."""
        return (decoded(self.data) if self.data is not None else None) or b""


def secret_document(key: Key, value: bytes) -> Document:
    """A Secret that the control plane makes, as it is stored."""
    labels = dict(MADE_HERE)
    data = {"type": key.type, "name": key.name, "labels": labels, "data": base64.b64encode(value).decode()}
    return Document(key, {**data, "mesh": key.mesh} if key.mesh else data)


def validate(secret: Secret, _meta: DocumentMeta) -> Iterator[Violation]:
    if secret.data is None:
        yield absent("data", "must be set", "the secret in base64")
        return
    if decoded(secret.data) is None:
        yield Violation("data", "is not base64", "`base64 -w0 FILE` makes it")


SECRET: Final = Kind("Secret", "sec", "secrets", Secret, validate)
GLOBAL_SECRET: Final = Kind("GlobalSecret", "gsec", "globalsecrets", Secret, validate)

"""`DataSource`: where a certificate, key or other secret comes from; and `Redacted`, which keeps it out of outputs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Final, Literal

from cp.model.violation import Violation, at
from cp.resources.checks import absent, file_path, must_be_set
from cp.resources.schema import Schema


class Redacted:
    """A text that is never printed. Only `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def parse(cls, text: str) -> Redacted:
        return cls(text)

    def reveal(self) -> str:
        return self._text

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Redacted) and self._text == value._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "[redacted]"


class DataSource(Schema, frozen=True):
    """One of: the name of a Secret, a file on the machine that needs it, base64, plain text."""

    secret: str | None = None
    file: str | None = None
    inline: Redacted | None = None
    inline_string: Redacted | None = None


def data_source(path: str, source: DataSource | None) -> Iterator[Violation]:
    """The faults of a source, if one is set."""
    if source is None:
        return
    blank = source.wire() and not (source.secret or source.file or source.inline or source.inline_string)
    if blank or not source.wire():
        yield absent(path, "does not say where it comes from", "give it `secret`, `file`, `inline` or `inlineString`")
    elif len(source.wire()) > 1:
        names = " and ".join(f"`{name}`" for name in source.wire())
        yield Violation(path, f"cannot come from {names}", "choose one")
    elif source.inline is not None and decoded(source.inline) is None:
        hint = "`base64 -w0 FILE` makes it, and `inlineString` takes plain text"
        yield Violation(f"{path}.inline", "is not base64", hint)


class FileSource(Schema, frozen=True):
    path: str = ""


class VariableSource(Schema, frozen=True):
    name: str = ""


class SecretSource(Schema, frozen=True):
    kind: Literal["Secret"] | None = None
    name: str = ""


class InlineSource(Schema, frozen=True):
    value: Redacted | None = None


class SecureDataSource(Schema, frozen=True):
    """Where the control plane gets a secret from. The newer form of `DataSource`, which says its type."""

    type: Literal["File", "Secret", "EnvVar", "InsecureInline"] | None = None
    file: FileSource | None = None
    env_var: VariableSource | None = None
    secret_ref: SecretSource | None = None
    insecure_inline: InlineSource | None = None


_FIELDS: Final = {"File": "file", "Secret": "secretRef", "EnvVar": "envVar", "InsecureInline": "insecureInline"}
"""The field of each type of a source."""


def secure_data_source(path: str, source: SecureDataSource | None) -> Iterator[Violation]:
    """The faults of a source of the newer form, which must be set."""
    if source is None:
        yield absent(path, "must be set", "give it a `type`: File, Secret, EnvVar or InsecureInline")
        return
    yield from must_be_set(f"{path}.type", source.type, "File, Secret, EnvVar or InsecureInline")
    if source.type is not None:
        yield from at(path, _secure_data_source(source, _FIELDS[source.type]))


def _secure_data_source(source: SecureDataSource, field: str) -> Iterator[Violation]:
    for name in source.wire():
        if name not in {"type", field}:
            yield Violation(name, f"has no meaning for the type {source.type}", f"remove it, or write `{field}`")
    if field not in source.wire():
        yield absent(field, f"must be set for the type {source.type}")
    elif source.type == "File" and source.file is not None:
        yield from file_path("file.path", source.file.path)
    elif source.type == "EnvVar" and source.env_var is not None:
        yield from must_be_set("envVar.name", source.env_var.name, "the name of a variable of the control plane's")
    elif source.type == "Secret" and source.secret_ref is not None:
        yield from must_be_set("secretRef.kind", source.secret_ref.kind, "Secret")
        yield from must_be_set("secretRef.name", source.secret_ref.name, "the name of a Secret of this mesh")
    elif source.insecure_inline is not None and not _revealed(source.insecure_inline):
        yield absent("insecureInline.value", "must be set")


def _revealed(source: InlineSource) -> str:
    return source.value.reveal() if source.value is not None else ""


def decoded(text: Redacted) -> bytes | None:
    """The bytes that base64 stands for; None if the text is no base64."""
    try:
        return base64.b64decode(text.reveal(), validate=True)
    except (binascii.Error, ValueError):
        return None

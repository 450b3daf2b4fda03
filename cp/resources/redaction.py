"""Redaction: secrets in a document are replaced before it is shown, and a replaced secret is not stored again.

It follows the schema and not names of fields, so a field of type `Redacted` is hidden wherever it stands.

See record 0049.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec
from msgspec.inspect import CustomType, DictType, ListType, StructType, Type, UnionType, VarTupleType

from cp.model.paths import step
from cp.model.violation import Violation
from cp.resources.kinds import ENVELOPE, Kind
from cp.resources.sources import DataSource, Redacted, SecureDataSource

REDACTED: Final = "[redacted]"
"""The text that is shown in place of a secret."""


def redacted(kind: Kind, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A document without its secrets. It need not be valid: any value of a field for a secret is hidden."""
    if not holds_secrets(kind):
        return data
    if kind.is_inlined:
        fields = _fields(_info(_schema(kind)))
        return {name: value if name in ENVELOPE else _field(fields, name, value) for name, value in data.items()}
    return {name: _shown(_info(_schema(kind)), value) if name == "spec" else value for name, value in data.items()}


def holds_secrets(kind: Kind) -> bool:
    """Whether resources of a kind can have secrets in them."""
    return _is_secret(_schema(kind))


def has_secrets(kind: Kind, data: Mapping[str, Any]) -> bool:
    """Whether there is a secret in a document: something of it would not be shown."""
    return holds_secrets(kind) and redacted(kind, data) != data


def placeholders(kind: Kind, data: Mapping[str, Any]) -> Iterator[Violation]:
    """The faults of fields for secrets that have the text shown in place of one."""
    if not holds_secrets(kind):
        return
    body = data if kind.is_inlined else data.get("spec")
    for path in _placeholders(_info(_schema(kind)), body, kind.root):
        reason = f"is `{REDACTED}`, which is shown in place of a secret"
        yield Violation(path, reason, "write the secret itself, or leave the stored resource as it is")


@dataclass(frozen=True, slots=True)
class SourceReference:
    """A place in a document that says where a secret is: in a Secret, or on the machine of whoever needs it."""

    path: str
    is_secret: bool
    """Whether it is a Secret: otherwise it is a file or a variable."""

    named: str
    """What it names."""


_REFERENCES: Final = ("secret", "secretRef", "file", "envVar")
_TO_SECRETS: Final = frozenset({"secret", "secretRef"})


def source_references(kind: Kind, data: Mapping[str, Any]) -> Iterator[SourceReference]:
    """What a document names from which secrets are read."""
    if holds_secrets(kind):
        body = data if kind.is_inlined else data.get("spec")
        yield from _references(_info(_schema(kind)), body, kind.root)


def _references(info: Type, value: Any, path: str) -> Iterator[SourceReference]:
    if value is None or not _holds(info):
        return
    plain = _plain(info)
    if isinstance(plain, StructType) and plain.cls in {DataSource, SecureDataSource} and isinstance(value, Mapping):
        yield from (_reference(path, name, value[name]) for name in _REFERENCES if value.get(name) is not None)
    for inner_info, inner, inner_path in _parts(plain, value, path):
        yield from _references(inner_info, inner, inner_path)


def _reference(path: str, field: str, named: Any) -> SourceReference:
    """A source names it itself, or in the newer form the `name` or `path` within."""
    text = (named.get("name") or named.get("path") or "") if isinstance(named, Mapping) else named
    return SourceReference(step(path, field), field in _TO_SECRETS, str(text))


def _field(fields: Mapping[str, Type], name: str, value: Any) -> Any:
    """A field as it may be shown. One that the schema does not have may be the misspelt name of a secret."""
    return _shown(fields[name], value) if name in fields else REDACTED


def _shown(info: Type, value: Any) -> Any:
    if value is None or not _holds(info):
        return value
    info = _plain(info)
    if isinstance(info, StructType) and isinstance(value, Mapping):
        fields = _fields(info)
        return {name: _field(fields, name, inner) for name, inner in value.items()}
    if isinstance(info, ListType | VarTupleType) and isinstance(value, list):
        return [_shown(info.item_type, inner) for inner in value]
    if isinstance(info, DictType) and isinstance(value, Mapping):
        return {name: _shown(info.value_type, inner) for name, inner in value.items()}
    return REDACTED


def _placeholders(info: Type, value: Any, path: str) -> Iterator[str]:
    if value is None or not _holds(info):
        return
    if value == REDACTED:
        yield path
    for inner_info, inner, inner_path in _parts(_plain(info), value, path):
        yield from _placeholders(inner_info, inner, inner_path)


def _parts(info: Type, value: Any, path: str) -> Iterator[tuple[Type, Any, str]]:
    """The values directly within a value, each with its type and its path."""
    if isinstance(info, StructType) and isinstance(value, Mapping):
        yield from ((field, value.get(name), step(path, name)) for name, field in _fields(info).items())
    elif isinstance(info, ListType | VarTupleType) and isinstance(value, list):
        yield from ((info.item_type, inner, f"{path}[{index}]") for index, inner in enumerate(value))
    elif isinstance(info, DictType) and isinstance(value, Mapping):
        yield from ((info.value_type, inner, step(path, str(name))) for name, inner in value.items())


def _fields(info: Type) -> dict[str, Type]:
    return {field.encode_name: field.type for field in info.fields} if isinstance(info, StructType) else {}


def _plain(info: Type) -> Type:
    """A type without None and without its limits."""
    if isinstance(info, msgspec.inspect.Metadata):
        return _plain(info.type)
    if isinstance(info, UnionType):
        choices = [choice for choice in info.types if _holds(choice)]
        return _plain(choices[0]) if choices else info
    return info


def _holds(info: Type) -> bool:
    """Whether there can be a secret in a value of a type."""
    if isinstance(info, CustomType):
        return info.cls is Redacted
    if isinstance(info, StructType):
        return _is_secret(info.cls)
    if isinstance(info, msgspec.inspect.Metadata):
        return _holds(info.type)
    if isinstance(info, UnionType):
        return any(map(_holds, info.types))
    if isinstance(info, ListType | VarTupleType):
        return _holds(info.item_type)
    return isinstance(info, DictType) and _holds(info.value_type)


def _schema(kind: Kind) -> Any:
    return kind.schema  # mypy does not see that classes have a hash


@cache
def _is_secret(schema: Any) -> bool:
    info = _info(schema)
    return any(_holds(field) for field in _fields(info).values() if _is_other(field, schema))


def _is_other(info: Type, schema: type[Any]) -> bool:
    """Whether a type is not the schema itself: a schema may have fields of its own type."""
    plain = info.types if isinstance(info, UnionType) else (info,)
    return not any(isinstance(choice, StructType) and choice.cls is schema for choice in plain)


@cache
def _info(schema: Any) -> Type:
    return msgspec.inspect.type_info(schema)

"""Redaction: secrets in a document are replaced before it is shown, and a replaced secret is not stored again.

The schema says where to look. A field of type `Redacted` is always hidden. A field of type `SensitiveText` or alike is
hidden if its content, or the fields next to it, make it a secret.

See records 0049 and 0097.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Final

import msgspec
from msgspec.inspect import CustomType, DictType, ListType, StructType, Type, UnionType, VarTupleType

from cp.model import secret_data
from cp.model.paths import step
from cp.model.secret_texts import REDACTED
from cp.model.violation import Violation, ViolationSort
from cp.resources.kinds import ENVELOPE, Kind
from cp.resources.schema import is_sensitive
from cp.resources.sources import DataSource, Redacted, SecureDataSource


def redacted(kind: Kind, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A document without its secrets. It need not be valid: any value of a field for a secret is hidden."""
    if not holds_secrets(kind):
        return data
    info = _info(_schema(kind))
    if not kind.is_inlined:
        return {name: _shown(info, value) if name == "spec" else value for name, value in data.items()}
    shown = _shown(info, {name: value for name, value in data.items() if name not in ENVELOPE})
    return {name: value if name in ENVELOPE else shown[name] for name, value in data.items()}


def holds_secrets(kind: Kind) -> bool:
    """Whether resources of a kind can have secrets in them."""
    return _is_secret(_schema(kind))


def has_secrets(kind: Kind, data: Mapping[str, Any]) -> bool:
    """Whether there is a secret in a document: something of it would not be shown."""
    return holds_secrets(kind) and redacted(kind, data) != data


def hidden_texts(kind: Kind, data: Mapping[str, Any]) -> Iterator[str]:
    """The secrets of a document, which no message about it may quote."""
    return _hidden(data, redacted(kind, data))


def _hidden(value: Any, shown: Any) -> Iterator[str]:
    if value == shown:
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _hidden(inner, shown.get(name, REDACTED) if isinstance(shown, Mapping) else REDACTED)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _hidden(inner, shown[index] if isinstance(shown, list) else REDACTED)
    else:
        yield str(value)
        yield from secret_data.hidden_texts([str(value), {"operation": "", "value": str(value)}])


def placeholders(kind: Kind, data: Mapping[str, Any]) -> Iterator[Violation]:
    """The faults of fields for secrets that have the text shown in place of one.

    A field that has a secret sometimes may have been stored with this text, so there a write alone is rejected.
    """
    if not holds_secrets(kind):
        return
    body = data if kind.is_inlined else data.get("spec")
    for path, sort in _placeholders(_info(_schema(kind)), body, kind.root):
        reason = f"is `{REDACTED}`, which is shown in place of a secret"
        yield Violation(path, reason, "write the secret itself, or leave the stored resource as it is", sort=sort)


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


def _members(info: StructType, data: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as they may be shown. One that the schema does not have may be the misspelt name of a secret."""
    fields, is_strict = _fields(info), _has_redacted(info.cls)
    judged = {name for name in data if (is_sensitive(fields[name]) if name in fields else not is_strict)}
    around = {name: value for name, value in data.items() if name in judged or isinstance(value, str)}
    shown = secret_data.redacted(dict.fromkeys(fields) | around) if judged else {}
    return {
        name: shown[name] if name in judged else _shown(fields[name], value) if name in fields else REDACTED
        for name, value in data.items()
    }


def _shown(info: Type, value: Any) -> Any:
    if value is None or not _holds(info):
        return value
    if is_sensitive(info):
        return secret_data.redacted(value)
    info = _plain(info)
    if isinstance(info, StructType) and isinstance(value, Mapping):
        return _members(info, value)
    if isinstance(info, ListType | VarTupleType) and isinstance(value, list):
        return [_shown(info.item_type, inner) for inner in value]
    if isinstance(info, DictType) and isinstance(value, Mapping):
        return {name: _shown(info.value_type, inner) for name, inner in value.items()}
    return REDACTED if _leads_to_redacted(info) else secret_data.redacted(value)


def _placeholders(info: Type, value: Any, path: str) -> Iterator[tuple[str, ViolationSort]]:
    if value is None or not _holds(info):
        return
    is_tolerated = is_sensitive(info)
    if value == REDACTED or (is_tolerated and _has_placeholder(value)):
        yield path, ViolationSort.WRITE if is_tolerated else ViolationSort.WRONG
        return
    for inner_info, inner, inner_path in _parts(_plain(info), value, path):
        yield from _placeholders(inner_info, inner, inner_path)


def _has_placeholder(value: Any) -> bool:
    """True if the text that is shown in place of a secret is anywhere in plain data."""
    if isinstance(value, str):
        return REDACTED in value
    if isinstance(value, Mapping):
        return any(map(_has_placeholder, value.values()))
    return isinstance(value, list) and any(map(_has_placeholder, value))


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
    return any(is_sensitive(leaf) or _is_redacted(leaf) or _is_of_struct(leaf, _is_secret) for leaf in _leaves(info))


def _leads_to_redacted(info: Type) -> bool:
    """True if every text is secret somewhere in a value of a type."""
    return any(_is_redacted(leaf) or _is_of_struct(leaf, _has_redacted) for leaf in _leaves(info))


def _leaves(info: Type) -> Iterator[Type]:
    """The types of which lists, mappings and alternatives are made."""
    if isinstance(info, msgspec.inspect.Metadata) and not is_sensitive(info):
        yield from _leaves(info.type)
    elif isinstance(info, UnionType):
        yield from chain.from_iterable(map(_leaves, info.types))
    elif isinstance(info, ListType | VarTupleType):
        yield from _leaves(info.item_type)
    elif isinstance(info, DictType):
        yield from _leaves(info.value_type)
    else:
        yield info


def _is_redacted(info: Type) -> bool:
    return isinstance(info, CustomType) and info.cls is Redacted


def _is_of_struct(info: Type, judges: Callable[[Any], bool]) -> bool:
    return isinstance(info, StructType) and judges(info.cls)


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
def _has_redacted(schema: Any) -> bool:
    """True if a struct has a field in which every text is secret, at any depth."""
    fields = _fields(_info(schema)).values()
    return any(_leads_to_redacted(field) for field in fields if _is_other(field, schema))


@cache
def _info(schema: Any) -> Type:
    return msgspec.inspect.type_info(schema)

"""The fields for texts of every kind, found in its schema, and documents with a marker in one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.inspect import (
    AnyType,
    CustomType,
    DictType,
    ListType,
    Metadata,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
)

from cp.resources.kinds import Kind
from cp.resources.schema import is_sensitive
from cp.resources.sources import Redacted

HEADER = "authorization"
_NAMING = ("name", "key")
_VALUES = frozenset({"value", "literal", "default"})


@dataclass(frozen=True)
class TextField:
    """A field for a text. `steps` are names of fields, `[]` for an item of a list, `{}` for an entry of a mapping."""

    kind: Kind
    steps: tuple[str, ...]
    is_secret: bool
    """True if the schema says that it is secret, or may be."""

    siblings: frozenset[str]
    is_any: bool

    @property
    def path(self) -> str:
        return "".join(step if step in {"[]", "{}"} else f".{step}" for step in self.steps).removeprefix(".")

    def document(self, marker: str) -> dict[str, Any]:
        """A document with a marker in this field, and nothing else. It is not valid."""
        data: Any = self._text(marker)
        for index in reversed(range(len(self.steps))):
            step, beside = self.steps[index], self._beside(self.steps[index], is_last=index == len(self.steps) - 1)
            data = [data] if step == "[]" else {HEADER if step == "{}" else step: data} | beside
        head = {"type": self.kind.name, "mesh": "default", "name": "one"}
        return head | data if self.kind.is_inlined else {**head, "spec": data}

    @property
    def _is_named(self) -> bool:
        return self.steps[-1] in _VALUES and bool(self.siblings & set(_NAMING))

    def _beside(self, step: str, *, is_last: bool) -> dict[str, Any]:
        """The fields because of which the marker is a secret."""
        if not is_last or not self.is_secret or step == "{}":
            return {}
        if "op" in self.siblings:
            return {"op": "add", "path": "/typedConfig/privateKey/inlineString"}
        if self._is_named:
            return {name: HEADER for name in _NAMING if name in self.siblings}
        return {"operation": "Patch"} if "operation" in self.siblings else {}

    def _text(self, marker: str) -> Any:
        if not self.is_secret or self._is_named or "op" in self.siblings or self.steps[-1] == "{}":
            return marker
        if self.siblings & {"operation", "version"}:
            return json.dumps({"typed_config": {"private_key": {"inline_string": marker}}})
        return {"password": marker} if self.is_any else f"http://user:{marker}@host/path?token={marker}"


def text_fields(kind: Kind) -> Iterator[TextField]:
    """Every field of a kind that can have any text."""
    known: set[str] = set()
    for field in _fields(kind, msgspec.inspect.type_info(kind.schema), (), frozenset(), frozenset(), is_secret=False):
        if field.path not in known:
            known.add(field.path)
            yield field


def _fields(
    kind: Kind, info: Type, steps: tuple[str, ...], siblings: frozenset[str], seen: frozenset[Any], *, is_secret: bool
) -> Iterator[TextField]:
    is_secret = is_secret or (is_sensitive(info) and not isinstance(info, UnionType))
    if isinstance(info, StructType):
        names = frozenset(field.encode_name for field in info.fields)
        for field in info.fields if info.cls not in seen else ():
            inner = (*steps, field.encode_name)
            yield from _fields(kind, field.type, inner, names, seen | {info.cls}, is_secret=is_secret)
    elif isinstance(info, StrType | AnyType) or (isinstance(info, CustomType) and info.cls is Redacted):
        yield TextField(kind, steps, is_secret or isinstance(info, CustomType), siblings, isinstance(info, AnyType))
    for inner_info, step in _within(info):
        yield from _fields(kind, inner_info, (*steps, *step), siblings, seen, is_secret=is_secret)


def _within(info: Type) -> list[tuple[Type, tuple[str, ...]]]:
    """The types of which a type is made, each with the step to its values."""
    if isinstance(info, Metadata):
        return [(info.type, ())]
    if isinstance(info, UnionType):
        return [(choice, ()) for choice in info.types]
    if isinstance(info, ListType | VarTupleType):
        return [(info.item_type, ("[]",))]
    return [(info.value_type, ("{}",))] if isinstance(info, DictType) else []

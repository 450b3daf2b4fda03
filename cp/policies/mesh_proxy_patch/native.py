"""Envoy's messages as operators write them: YAML, in which `@type` says what an Any holds."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, TypeVar

from google.protobuf import json_format, message_factory
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import DecodeError, Message

from cp.model.secret_data import hidden_texts, without_quotes
from cp.model.yaml import NotYaml, parse_all
from cp.resources.schema import near

M = TypeVar("M", bound=Message)

_TYPE: Final = re.compile(r"type\.googleapis\.com/((?:envoy|udpa|xds)(?:\.[a-z][a-z0-9_]*)+)\.[A-Z]\w*")
_UNKNOWN_FIELD: Final = re.compile(r'has no field named "([^"]*)"', re.DOTALL)
_KNOWN_FIELDS: Final = re.compile(r"Available Fields\(except extensions\): \"\[(.*?)\]\"", re.DOTALL)
_UNKNOWN_TYPE: Final = re.compile(r"message descriptor by type_url: type\.googleapis\.com/([\w.]+\w)")
_LONGEST_REASON: Final = 200
_LONGEST_ERROR: Final = 20_000


class NotNative(Exception):
    """A text that is not the message that it should be, with the reason and perhaps a hint."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


def native(text: str, kind: type[M]) -> M:
    """The message that a text describes. Raises `NotNative`."""
    try:
        documents = [document.data for document in parse_all(text)]
    except NotYaml as error:
        raise NotNative(f"not YAML: {error.message}, in its line {error.line}") from error
    if len(documents) > 1:
        raise NotNative(f"{len(documents)} documents, not one")
    data = documents[0] if documents else {}
    if not isinstance(data, dict):
        raise NotNative("a bare value, not an object")
    return parsed(data, kind)


def native_of_any(text: str) -> Message:
    """The message that a text describes, which says in its `@type` what it is. Raises `NotNative`."""
    packed = native(text, AnyMessage)
    try:
        kind = message_factory.GetMessageClass(Default().FindMessageTypeByName(packed.TypeName()))
        return kind.FromString(packed.value)
    except (KeyError, DecodeError) as error:
        raise NotNative("it has no `@type` of Envoy's") from error


def parsed(data: dict[str, Any], kind: type[M]) -> M:
    """The message that plain data describes. Raises `NotNative`."""
    for package in set(_packages(data)):
        _load(package)
    try:
        return json_format.ParseDict(data, kind())
    except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _readable(without_quotes(str(error), hidden_texts(data))) from error


def _packages(data: Any) -> Iterator[str]:
    """The packages of the types that are named in it."""
    if isinstance(data, dict):
        type_match = _TYPE.fullmatch(str(data.get("@type", "")))
        if type_match is not None:
            yield type_match[1]
        for value in data.values():
            yield from _packages(value)
    elif isinstance(data, list):
        for value in data:
            yield from _packages(value)


@cache
def _load(package: str) -> None:
    """Make the types of a package known. A type that stays unknown is reported where it is used."""
    try:
        folder = importlib.import_module(package)
    except ImportError:
        return
    for module in pkgutil.iter_modules(folder.__path__):
        if module.name.endswith("_pb2"):
            importlib.import_module(f"{package}.{module.name}")


def _readable(error: str) -> NotNative:
    error = error[:_LONGEST_ERROR]
    unknown, known = _UNKNOWN_FIELD.search(error), _KNOWN_FIELDS.search(error)
    if unknown is not None:
        names = re.findall(r"'([^']*)'", known[1]) if known is not None else []
        return NotNative(f"there is no field `{unknown[1]}`", near(unknown[1], names))
    if (missing := _UNKNOWN_TYPE.search(error)) is not None:
        return NotNative(f"there is no type `{missing[1]}`")
    reason = " ".join(error.split())
    return NotNative(reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}…")

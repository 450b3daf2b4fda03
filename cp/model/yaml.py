"""YAML to plain data, remembering the line on which every path begins.

Scalars follow YAML 1.2, so that `on` and `no` are texts and only `true` and `false` are truth values; JSON is read
too, being YAML. What a careless or hostile file could do with nesting, aliases or repeated keys is an error here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

_MAX_DEPTH = 64
_MAX_COPIES = 100_000
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


class NotYaml(Exception):
    """Text that is not YAML, or YAML that no document of ours needs; with the line where it stops making sense."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message, self.line = message, line


@dataclass(slots=True)
class Parsed:
    """One YAML document: its data, and the line of each path in it."""

    data: Any
    line: int
    lines: dict[str, int] = field(default_factory=dict)


def parse_all(text: str) -> Iterator[Parsed]:
    """Every document of a file that is not empty. Raises `NotYaml` where the file stops being YAML."""
    loader = yaml.CSafeLoader(text)
    try:
        while not loader.check_event(yaml.StreamEndEvent):
            event = loader.get_event()
            if isinstance(event, yaml.DocumentStartEvent):
                parsed = _Builder(loader).document()
                if parsed.data is not None:
                    yield parsed
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NotYaml(str(error.problem or error.context), mark.line + 1 if mark else 1) from error
    except yaml.YAMLError as error:
        raise NotYaml(str(error), 1) from error
    finally:
        loader.dispose()


def step(path: str, key: str | int) -> str:
    """`spec` and `to` make `spec.to`, `spec.to` and 0 `spec.to[0]`, `tags` and `a/b` `tags["a/b"]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if _PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f'{path}["{key}"]'


class _Builder:
    """Builds one document from its events, in one pass."""

    def __init__(self, loader: yaml.CSafeLoader) -> None:
        self._loader = loader
        self._anchors: dict[str, Any] = {}
        self._copies = 0
        self._lines: dict[str, int] = {}

    def document(self) -> Parsed:
        data = self._node("", 0)
        return Parsed(data, self._lines[""], self._lines)

    def _node(self, path: str, depth: int) -> Any:
        event: Any = self._loader.get_event()
        line = event.start_mark.line + 1
        self._lines.setdefault(path, line)
        if depth > _MAX_DEPTH:
            raise NotYaml(f"nested more than {_MAX_DEPTH} levels deep", line)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, line)
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
            if value in (math.inf, -math.inf):
                raise NotYaml(f"`{event.value}` is larger than any number", line)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(path, depth)
        else:
            value = self._mapping(path, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _sequence(self, path: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            items.append(self._node(step(path, len(items)), depth + 1))
        self._loader.get_event()
        return items

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            event: Any = self._loader.get_event()
            line = event.start_mark.line + 1
            if not isinstance(event, yaml.ScalarEvent):
                raise NotYaml("a key must be a text", line)
            key = event.value
            if key in entries:
                raise NotYaml(f"the key `{key}` stands here twice", line)
            self._lines.setdefault(step(path, key), line)
            entries[key] = self._node(step(path, key), depth + 1)
        self._loader.get_event()
        return entries

    def _alias(self, event: yaml.AliasEvent, line: int) -> Any:
        if event.anchor not in self._anchors:
            raise NotYaml(f"the alias `*{event.anchor}` stands for nothing", line)
        value = self._anchors[event.anchor]
        self._copies += _size(value)
        if self._copies > _MAX_COPIES:
            raise NotYaml(f"aliases stand for more than {_MAX_COPIES} values", line)
        return value


def _scalar(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    if not event.implicit[0] or event.style in {"'", '"', "|", ">"}:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) and len(text) < 20:  # noqa: PLR2004  # more digits than any number of ours has
        return int(text)
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1

"""YAML to plain data, remembering the line on which every value begins.

Scalars follow YAML 1.2, so that `on` and `no` are texts and only `true` and `false` are truth values; JSON is read
too, being YAML. What a careless or hostile file could do with nesting, aliases, repeated keys or long numbers is an
error here.

See record 0016.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from cp.model.checkpoint import pass_checkpoint
from cp.model.lines import Lines

MAX_DEPTH = 64
"""Levels of lists and mappings. The bound lets every later walk over a document be recursive."""

MAX_DIGITS = 19
"""The digits of an integer. No field needs more, and Python takes the square of their number to read or write one."""

MAX_KEY = 4096
"""The characters of a key. Every violation below a key repeats it."""

_MAX_COPIES = 100_000
_LONG = 100
_CANNOT_START = "found character that cannot start any token"
_OF_A_TAB = "the line is indented with a tab; write spaces"
TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


class NotYaml(Exception):
    """Text that is not YAML, or YAML beyond the limits of documents; with the line where it goes wrong."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message, self.line = message, line


@dataclass(slots=True)
class ParsedYaml:
    """One YAML document: its data, and the line on which each value begins."""

    data: Any
    lines: Lines


def parse_all(text: str, first_line: int = 1) -> Iterator[ParsedYaml]:
    """Every document of a file that is not empty. Raises `NotYaml` where the file stops being YAML."""
    above = first_line - 1
    loader = yaml.CSafeLoader(text)
    try:
        while not loader.check_event(yaml.StreamEndEvent):
            event = loader.get_event()
            if isinstance(event, yaml.DocumentStartEvent):
                parsed = _Builder(loader, above).document()
                if parsed.data is not None:
                    yield parsed
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        message = str(error.problem or error.context)
        is_tab = message == _CANNOT_START and _begins_with_tab(text, line)
        raise NotYaml(_OF_A_TAB if is_tab else message, line + above) from error
    except yaml.YAMLError as error:
        raise NotYaml(str(error), first_line) from error
    finally:
        loader.dispose()


def _begins_with_tab(text: str, number: int) -> bool:
    """Whether a tab is in the indentation of a line."""
    lines = text.splitlines()[number - 1 : number]
    return any("\t" in line[: len(line) - len(line.lstrip())] for line in lines)


class _Builder:
    """Builds one document from its events, in one pass."""

    def __init__(self, loader: yaml.CSafeLoader, above: int) -> None:
        self._loader = loader
        self._above = above
        self._anchors: dict[str, Any] = {}
        self._copies = 0

    def document(self) -> ParsedYaml:
        return ParsedYaml(*self._node(0))

    def _node(self, depth: int) -> tuple[Any, Lines]:
        pass_checkpoint()
        event: Any = self._loader.get_event()
        line = self._line(event)
        if depth > MAX_DEPTH:
            raise NotYaml(TOO_DEEP, line)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, line, depth), Lines(line)
        value, lines = self._content(event, line, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value, lines

    def _content(self, event: Any, line: int, depth: int) -> tuple[Any, Lines]:
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(line, depth)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(line, depth)
        value = _scalar(event)
        if value in (math.inf, -math.inf):
            raise NotYaml(f"`{_short(event.value)}` is larger than any number", line)
        return value, Lines(line)

    def _sequence(self, line: int, depth: int) -> tuple[list[Any], Lines]:
        nodes: list[tuple[Any, Lines]] = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            nodes.append(self._node(depth + 1))
        self._loader.get_event()
        return [value for value, _ in nodes], Lines(line, items=tuple(lines.on_one_line() for _, lines in nodes))

    def _mapping(self, line: int, depth: int) -> tuple[dict[str, Any], Lines]:
        entries: dict[str, Any] = {}
        fields: dict[str, Lines] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            key, line_of_key = self._key()
            if key in entries:
                raise NotYaml(f"the key `{_short(key)}` stands here twice", line_of_key)
            entries[key], lines = self._node(depth + 1)
            lines = lines.beginning_on(line_of_key)
            # The Universal form has the fields of `metadata` and `spec` of the Kubernetes form at its top.
            fields[key] = lines.on_one_line() if depth else lines
        self._loader.get_event()
        return entries, Lines(line, fields)

    def _key(self) -> tuple[str, int]:
        event: Any = self._loader.get_event()
        line = self._line(event)
        if not isinstance(event, yaml.ScalarEvent):
            raise NotYaml("a key must be a text", line)
        key: str = event.value
        if len(key) > MAX_KEY:
            raise NotYaml(key_too_long(key), line)
        return key, line

    def _alias(self, event: yaml.AliasEvent, line: int, depth: int) -> Any:
        if event.anchor not in self._anchors:
            raise NotYaml(f"the alias `*{_short(str(event.anchor))}` stands for nothing", line)
        value = self._anchors[event.anchor]
        self._copies += size(value)
        if self._copies > _MAX_COPIES:
            raise NotYaml(f"aliases stand for more than {_MAX_COPIES} values", line)
        if depth + height(value) > MAX_DEPTH:
            raise NotYaml(TOO_DEEP, line)
        return value

    def _line(self, event: Any) -> int:
        return int(event.start_mark.line) + 1 + self._above


def _scalar(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    if not event.implicit[0] or event.style in {"'", '"', "|", ">"}:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) and len(text) <= MAX_DIGITS:
        return int(text)
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0) if len(text) <= MAX_DIGITS else math.inf
    return float(text) if _FLOAT.fullmatch(text) else text


def size(value: Any) -> int:
    """A measure of a value: the number of values in it, and one more for each hundred characters of a text or key."""
    if isinstance(value, dict):
        return 1 + sum(map(size, value.values())) + sum(map(len, value)) // _LONG
    if isinstance(value, list):
        return 1 + sum(map(size, value))
    return 1 + len(value) // _LONG if isinstance(value, str) else 1


def height(value: Any) -> int:
    """The levels of lists and mappings in a value."""
    deep, level = 0, [value]
    while level := [inner for outer in level for inner in _within(outer)]:
        deep += 1
    return deep


def _within(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def key_too_long(key: str) -> str:
    return f"the key `{_short(key)}` has {len(key)} characters, {MAX_KEY} are the most"


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"

"""In which fields two values of plain data differ, such as two resources as Envoy's API writes them in JSON.

Messages are compared field by field, and lists element by element. Where no element comes, goes or moves, each is told
by its index: `routes[0].route.timeout`. Otherwise it is told by its key, such as its name or what it matches (`_KEYS`):
`routes["checkout"].route.timeout`. One that comes or goes is told as a whole, and `routes[]` is the order of all of
them. A list of which the elements have no keys is told as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

from cp.model.checkpoint import pass_checkpoint
from cp.model.paths import Step, entry, step


class Absent(Enum):
    """In place of a value that is not there."""

    ABSENT = "(none)"


ABSENT: Final = Absent.ABSENT
ORDER: Final = "[]"
"""In place of a step to an element: the order of all elements."""

_ORDERLESS: Final = frozenset({"filterChains", "virtualHosts", "clusters", "endpoints", "lbEndpoints"})
"""Lists that mean the same to Envoy in any order: it looks for the best match, or distributes calls."""

_REST: Final = "*"
"""The key of an element that matches whatever no other one does."""

_SIGNS: Final = frozenset('",[{')
"""Signs that end a text without quotes, or begin something else in JSON."""

Steps: TypeAlias = tuple[Step, ...]
"""The way to a field: the names of fields, for elements their indices before, and for those that come their keys.

It is the same in all comparisons with one value, however their paths call the elements.
"""


@dataclass(frozen=True, slots=True)
class ChangedField:
    """A field that is not the same. Of a resource that came or went it is the whole, with an empty path."""

    path: str
    before: Any
    after: Any
    steps: Steps = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class _Way:
    """The way to a value, and how it is written."""

    path: str = ""
    steps: Steps = ()

    def to_field(self, name: str) -> _Way:
        return _Way(step(self.path, name), (*self.steps, name))

    def to_index(self, index: int) -> _Way:
        return _Way(step(self.path, index), (*self.steps, index))

    def to_key(self, key: str, index: int | None) -> _Way:
        """To an element by its key; `index`: its place before, if it was there."""
        return _Way(self.path + entry(key), (*self.steps, key if index is None else index))

    def to_order(self) -> _Way:
        return _Way(self.path + ORDER, (*self.steps, ORDER))

    def changed(self, before: Any, after: Any) -> ChangedField:
        return ChangedField(self.path, before, after, self.steps)


def differing_fields(before: Any, after: Any) -> Iterator[ChangedField]:
    """In which fields two values differ."""
    return _fields(_Way(), before, after)


def _fields(way: _Way, before: Any, after: Any) -> Iterator[ChangedField]:
    pass_checkpoint()
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            yield from _fields(way.to_field(name), before.get(name, ABSENT), after.get(name, ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _fields_of_lists(way, before, after)
    else:
        yield way.changed(before, after)


def _fields_of_lists(way: _Way, before: list[Any], after: list[Any]) -> Iterator[ChangedField]:
    keys = _keys(before, after)
    if len(before) == len(after) and (keys is None or _are_in_place(*keys)):
        for index, (was, is_now) in enumerate(zip(before, after, strict=True)):
            yield from _fields(way.to_index(index), was, is_now)
    elif keys is None:
        yield way.changed(before, after)
    else:
        old, new = (dict(zip(names, side, strict=True)) for names, side in zip(keys, (before, after), strict=True))
        yield from _fields_by_key(way, old, new)
        if _is_order_told(way, *keys):
            yield way.to_order().changed(*map(list, keys))


def _fields_by_key(way: _Way, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ChangedField]:
    indices = {key: index for index, key in enumerate(before)}
    for key in dict.fromkeys((*before, *after)):
        way_to_element = way.to_key(key, indices.get(key))
        if key in before and key in after:
            yield from _fields(way_to_element, before[key], after[key])
        else:
            yield way_to_element.changed(before.get(key, ABSENT), after.get(key, ABSENT))


def _are_in_place(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether each element that both lists have is at one index, and each other one in the place of another."""
    shared = {*before} & {*after}
    return all(was == is_now or not {was, is_now} & shared for was, is_now in zip(before, after, strict=True))


def _is_order_told(way: _Way, before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether the order has to be told: it is not what it was, with what comes behind it."""
    old, new = {*before}, {*after}
    if old != new and not _ORDERLESS.isdisjoint(way.steps[-1:]):
        return False
    return [*(key for key in before if key in new), *(key for key in after if key not in old)] != list(after)


def _keys(before: list[Any], after: list[Any]) -> tuple[Sequence[str], Sequence[str]] | None:
    """What tells the elements of two lists apart; None if nothing does."""
    if not all(isinstance(element, Mapping) for element in (*before, *after)):
        return None
    for key_of in _KEYS:
        of_before, of_after = ([key_of(element) for element in side] for side in (before, after))
        old, new = (list(filter(None, side)) for side in (of_before, of_after))
        if len({*old}) == len(before) and len({*new}) == len(after):
            return old, new
    return None


def _name(element: Mapping[str, Any]) -> str:
    """Of a listener, a virtual host, a route, a filter, a weighted cluster."""
    name = element.get("name")
    return name if isinstance(name, str) else ""


def _header(element: Mapping[str, Any]) -> str:
    """Of a header that is added."""
    return str(_inner(element, "header").get("key", ""))


def _route_match(element: Mapping[str, Any]) -> str:
    return _text(element["match"]) if "match" in element else ""


def _chain_match(element: Mapping[str, Any]) -> str:
    return _text(element.get("filterChainMatch", {})) if "filters" in element else ""


def _locality(element: Mapping[str, Any]) -> str:
    if "lbEndpoints" not in element and "locality" not in element:
        return ""
    place = _inner(element, "locality")
    names = (str(place[name]) for name in ("region", "zone", "subZone") if name in place)
    return f"{'/'.join(names) or _REST}, priority {element.get('priority', 0)}"


def _address(element: Mapping[str, Any]) -> str:
    """Of an endpoint."""
    socket = _inner(element, "endpoint", "address", "socketAddress")
    return f"{socket['address']}:{socket.get('portValue', 0)}" if "address" in socket else ""


def _log(element: Mapping[str, Any]) -> str:
    """Of an access log: those of one kind have one name, and differ in where they go."""
    path = _inner(element, "typedConfig").get("path", "")
    return str(path or _inner(element, "typedConfig", "commonConfig").get("logName", ""))


def _tag(element: Mapping[str, Any]) -> str:
    """Of a custom tag of spans."""
    tag = element.get("tag")
    return tag if isinstance(tag, str) else ""


def _inner(message: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """A message within a message; an empty one, if there is none."""
    for name in names:
        inner = message.get(name)
        message = inner if isinstance(inner, Mapping) else {}
    return message


_KEYS: Final[Sequence[Callable[[Mapping[str, Any]], str]]] = (
    _name,
    _header,
    _route_match,
    _chain_match,
    _locality,
    _address,
    _log,
    _tag,
)
"""What may tell the elements of a list apart. The first counts that all elements have, each another one."""


def _text(value: Any) -> str:
    """A message on one line: `prefix=/, caseSensitive=true`. No other message has the same."""
    return ", ".join(f"{path}={_leaf(leaf)}" for path, leaf in _leaves("", value)) or _REST


def _leaf(value: Any) -> str:
    """A value as JSON, but a text without quotes where it cannot be taken for anything else."""
    quoted = json.dumps(value, ensure_ascii=False)
    return value if isinstance(value, str) and _is_plain(value) else quoted


def _is_plain(text: str) -> bool:
    if not text or not _SIGNS.isdisjoint(text):
        return False
    try:
        json.loads(text)
    except ValueError:
        return True
    return False


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and (value or not path):
        for name, inner in value.items():
            yield from _leaves(step(path, name), inner)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves(step(path, index), inner)
    else:
        yield path, value

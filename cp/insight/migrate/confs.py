"""Confs that take the place of weaker ones as a whole, though confs are merged field by field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str, ...]
Conf: TypeAlias = Mapping[str, Any]


def paths(conf: Conf) -> Iterator[Path]:
    """The paths of all values in a conf. Lists are values, and so are objects without fields."""
    for name, value in conf.items():
        if isinstance(value, Mapping) and value:
            yield from ((name, *inner) for inner in paths(value))
        else:
            yield (name,)


def value_at(conf: Conf, path: Path) -> Any:
    value: Any = conf
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def whole(conf: Conf, set_elsewhere: Iterable[Path], default: Conf) -> dict[str, Any]:
    """A conf that also says what it leaves open, where others say something: the default or, without one, null."""
    result: dict[str, Any] = deepcopy(dict(conf))
    # Nulls come last: one for an object would take the defaults within it with it, or be lost to them.
    for path in sorted(set_elsewhere, key=lambda path: (value_at(default, path) is None, path)):
        if value_at(result, path) is None:
            _fill(result, path, value_at(default, path))
    return result


def nulls(conf: Conf) -> Iterator[Path]:
    return (path for path in paths(conf) if value_at(conf, path) is None)


def _fill(conf: dict[str, Any], path: Path, value: Any) -> None:
    """Write a value or, at the first field of the path that is not there, a null."""
    holder = conf
    for name in path[:-1]:
        inner = holder.get(name)
        if inner is None and value is None:
            holder[name] = None
            return
        if not isinstance(inner, dict):
            inner = holder[name] = {}
        holder = inner
    holder[path[-1]] = value

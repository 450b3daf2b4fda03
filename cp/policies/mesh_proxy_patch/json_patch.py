"""JSON Patch (RFC 6902) on plain data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final

from cp.model.yaml import MAX_DEPTH, TOO_DEEP, height, size
from cp.policies.mesh_proxy_patch.schema import JsonPatch
from cp.resources.schema import shortened

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_END: Final = "-"
_MOST_TIMES: Final = 10
"""How often the size of the data, and of what operations write, copies may add to it."""


class DoesNotApply(Exception):
    """A change that cannot be made to what is there."""


def patched(data: Any, patches: Sequence[JsonPatch]) -> Any:
    """The data after all operations. Raises `DoesNotApply`, and changes nothing that it was given."""
    data = deepcopy(data)
    most = _MOST_TIMES * (size(data) + sum(size(patch.value) for patch in patches))
    added = 0
    for patch in patches:
        path = _steps(patch.path or "")
        added += _added(data, patch, path)
        if added > most:
            raise DoesNotApply(f"the operations make more than {_MOST_TIMES} times as much of it")
        data = _patched(data, patch, path)
    return data


def _added(data: Any, patch: JsonPatch, path: tuple[str, ...]) -> int:
    """How many values an operation adds. Copies of copies would let a few operations add any number."""
    if patch.op == "remove":
        return 0
    value = _at(data, _steps(patch.from_ or "")) if patch.op in {"copy", "move"} else patch.value
    if len(path) + height(value) > MAX_DEPTH:
        raise DoesNotApply(f"`{_shown(path)}` would be {TOO_DEEP}")
    return size(value)


def _patched(data: Any, patch: JsonPatch, path: tuple[str, ...]) -> Any:
    if patch.op == "remove":
        _taken(data, path)
        return data
    if patch.op == "replace":
        return _put(data, path, deepcopy(patch.value), replaces=True)
    if patch.op == "move":
        source = _steps(patch.from_ or "")
        if path[: len(source)] == source and path != source:
            raise DoesNotApply(f"`{patch.from_}` cannot be moved into itself")
        return _put(data, path, _taken(data, source))
    value = _at(data, _steps(patch.from_ or "")) if patch.op == "copy" else patch.value
    return _put(data, path, deepcopy(value))


def _steps(pointer: str) -> tuple[str, ...]:
    """The steps of a JSON Pointer (RFC 6901)."""
    if pointer and not pointer.startswith("/"):
        raise DoesNotApply(f"`{pointer}` is no JSON Pointer; it begins with `/`")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for depth, name in enumerate(path):
        key = _key(data, name, path[: depth + 1])
        if not _has(data, key):
            raise _nothing(path[: depth + 1])
        data = data[key]
    return data


def _put(data: Any, path: tuple[str, ...], value: Any, *, replaces: bool = False) -> Any:
    """The data with a value at a place: in a list before what is there, unless it takes its place."""
    if not path:
        return value
    holder = _at(data, path[:-1])
    key = len(holder) if path[-1] == _END and isinstance(holder, list) else _key(holder, path[-1], path)
    if replaces and not _has(holder, key):
        raise _nothing(path)
    if isinstance(holder, list) and not replaces:
        if key > len(holder):
            raise _nothing(path)
        holder.insert(key, value)
    else:
        holder[key] = value
    return data


def _taken(data: Any, path: tuple[str, ...]) -> Any:
    if not path:
        raise DoesNotApply("the whole cannot be removed")
    holder = _at(data, path[:-1])
    key = _key(holder, path[-1], path)
    if not _has(holder, key):
        raise _nothing(path)
    return holder.pop(key)


def _key(holder: Any, name: str, path: tuple[str, ...]) -> Any:
    if isinstance(holder, dict):
        return name
    if isinstance(holder, list) and _INDEX.fullmatch(name):
        return int(name)
    raise _nothing(path)


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else 0 <= key < len(holder)


def _nothing(path: tuple[str, ...]) -> DoesNotApply:
    return DoesNotApply(f"there is nothing at `{_shown(path)}`")


def _shown(path: tuple[str, ...]) -> str:
    return shortened("".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in path))

"""Defaults that are part of a schema. They are filled in when a document is read, so merging takes them for written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def completed(defaults: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Fills in defaults by paths such as `to[].default.backends[].weight`.

    A default is filled in only where the object around it is written. A null counts as written.
    """
    steps = [(path.replace("[]", ".[]").split("."), value) for path, value in defaults.items()]

    def complete(spec: dict[str, Any]) -> dict[str, Any]:
        for path, value in steps:
            spec = _filled(spec, path, value)
        return spec

    return complete


def _filled(data: Any, path: list[str], value: Any) -> Any:
    step, *inner_steps = path
    if step == "[]":
        return [_filled(item, inner_steps, value) for item in data] if isinstance(data, list) else data
    if not isinstance(data, dict):
        return data
    if not inner_steps:
        return data if step in data else {**data, step: value}
    return {**data, step: _filled(data[step], inner_steps, value)} if step in data else data

"""Paths of values in documents: `spec.to[0].default`, `tags["a/b"]`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

Step: TypeAlias = str | int
"""A key of a mapping, or an index of a list."""

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STEP: Final = re.compile(r'\["((?:[^"\\]|\\.)*+)"\]|\[([0-9]{1,9})\]|\.?([^.\[\]]+)', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def step(path: str, key: Step) -> str:
    """`spec` and `to` make `spec.to`, `spec.to` and 0 `spec.to[0]`, `tags` and `a/b` `tags["a/b"]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if _PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return path + entry(key)


def entry(key: str) -> str:
    """The step to an entry of a mapping whose keys people choose, such as a tag: `["a/b"]`."""
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'["{escaped}"]'


def steps(path: str) -> Iterator[Step]:
    """The steps of a path, up to the first part that is no step. Each match is not empty, so the loop ends."""
    at = 0
    while match := _STEP.match(path, at):
        key, index, name = match.groups()
        at = match.end()
        if key is not None:
            yield _ESCAPED.sub(r"\1", key)
        else:
            yield name if index is None else int(index)

"""Markers: texts that stand where secrets do, and are looked for in everything that leaves a control plane."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from tests.support.leaks import spellings

CORE: Final = "pl4nted-s3cret-0f-the-mesh"
"""Part of every marker. It needs no escape in JSON, YAML or a URL."""

_SPELLINGS: Final = re.compile(
    b"|".join(re.escape(spelling) for spelling in (*spellings(CORE.encode()), CORE.encode().hex().encode())),
    re.IGNORECASE,
)


class Markers:
    """Makes markers, each another."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.made = 0

    def new(self) -> str:
        self.made = next(self._numbers)
        return f"{CORE}-{self.made:04}"


def markers_in(content: bytes) -> list[str]:
    """Where a marker is in some bytes, in plain, base64 or hexadecimal: each with the text before it."""
    return [
        content[max(0, match.start() - 160) : match.end() + 8].decode(errors="replace")
        for match in _SPELLINGS.finditer(content)
    ]


def marked_paths(data: Any, path: str = "") -> Iterator[str]:
    """The paths of the texts with a marker in plain data, without indexes."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from marked_paths(value, f"{path}.{name}" if path else name)
    elif isinstance(data, list):
        for value in data:
            yield from marked_paths(value, f"{path}[]")
    elif isinstance(data, str) and markers_in(data.encode()):
        yield path

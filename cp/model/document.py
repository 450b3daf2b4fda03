"""`Document`: what is stored, before anyone reads meaning into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cp.model.names import Key


@dataclass(frozen=True, slots=True)
class Source:
    """Where a document was written: a file, and the line on which each path of it begins."""

    file: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)

    def line(self, path: str) -> int:
        """The line of a path, or of the nearest thing around it that is there; 0 when nothing is known."""
        path = _PLAIN_ENTRY.sub(r".\1", path)
        while path:
            if path in self.lines:
                return self.lines[path]
            path = _parent(path)
        return self.lines.get("", 0)


@dataclass(frozen=True, slots=True)
class Document:
    """A resource as it was written, as plain data in Universal form, with the place where it was written.

    Two documents are equal when they say the same, wherever they stand: moving a file changes nothing.
    """

    key: Key
    data: Mapping[str, Any]
    source: Source = field(default_factory=Source, compare=False)

    def __hash__(self) -> int:
        return hash(self.key)


_PLAIN_ENTRY = re.compile(r'\["([A-Za-z_][A-Za-z0-9_]*)"\]')
_LAST_STEP = re.compile(r"(\.[^.\[\]]+|\[[^\]]*\]|^[^.\[\]]+)$")


def _parent(path: str) -> str:
    return _LAST_STEP.sub("", path)

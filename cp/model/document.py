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
        if path in self.lines:
            return self.lines[path]
        steps = [boundary.start() for boundary in _BOUNDARY.finditer(path)]
        around = (path[:end] for end in reversed(steps[-_MOST_STEPS:]))
        return next((self.lines[prefix] for prefix in around if prefix in self.lines), self.lines.get("", 0))


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
_BOUNDARY = re.compile(r"[.\[]")
_MOST_STEPS = 128
"""Twice the depth of a document. A key may hold any number of dots and brackets, each of which looks like a step."""

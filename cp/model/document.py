"""`Document`: what is stored, before anyone reads meaning into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cp.model.lines import Lines

if TYPE_CHECKING:
    from cp.model.names import Key


@dataclass(frozen=True, slots=True)
class Source:
    """Where a document was written: a file, and the line on which each of its values begins."""

    file: str = ""
    lines: Lines = field(default_factory=Lines)

    def line(self, path: str) -> int:
        """The line of a path, or of the nearest thing around it that is there; 0 when nothing is known."""
        return self.lines.of(path)


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

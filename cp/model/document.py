"""`Document`: what is stored, as plain data that is not validated yet."""

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
    created: str = field(default="", compare=False)
    """When the resource was made, as `cp.model.moments` writes it; empty where nobody knows.

    Stores that are written keep it. In a folder it is what the document says of itself. Two places are equal whenever
    what stands there was made.
    """

    def line(self, path: str) -> int:
        """The line of a path or, if it does not exist, of the nearest value around it; 0 where no lines are known."""
        return self.lines.of(path)


@dataclass(frozen=True, slots=True)
class Document:
    """A resource as it was written: plain data in Universal form, with its file and lines.

    Two documents with equal keys and data are equal, whatever their files: moving a file changes nothing.
    """

    key: Key
    data: Mapping[str, Any]
    source: Source = field(default_factory=Source, compare=False)

    def __hash__(self) -> int:
        return hash(self.key)

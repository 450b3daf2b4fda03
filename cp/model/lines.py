"""`Lines`: on which line each value of a document begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cp.model.paths import Step, steps


@dataclass(frozen=True, slots=True)
class Lines:
    """The line of one value, and the lines of the values within it, as a tree.

    A table by paths would repeat every key above a value, so it could be a thousand times as large as its document.
    Values within one that begin on its line may be left out (`on_one_line`).
    """

    line: int = 0
    fields: Mapping[str, Lines] = field(default_factory=lambda: _NO_FIELDS)
    items: Sequence[Lines] = ()

    def of(self, path: str) -> int:
        """The line of a path or, if the path does not exist, of the nearest value around it."""
        lines = self
        for key in steps(path):
            within = lines.within(key)
            if within is None:
                break
            lines = within
        return lines.line

    def within(self, key: Step) -> Lines | None:
        if isinstance(key, str):
            return self.fields.get(key)
        return self.items[key] if key < len(self.items) else None

    def on_one_line(self) -> Lines:
        """The same lines, without the values within if all of them begin on the line of this one."""
        within = (*self.fields.values(), *self.items)
        is_one = all(lines.line == self.line and not lines.fields and not lines.items for lines in within)
        return Lines(self.line) if within and is_one else self

    def beginning_on(self, line: int) -> Lines:
        """The same lines for a value whose key stands on an earlier line."""
        return self if line == self.line else replace(self, line=line)

    def plain(self) -> list[Any]:
        """The lines as plain data: the line of the value, then the lines within it, if there are any."""
        if self.fields:
            return [self.line, {key: lines.plain() for key, lines in self.fields.items()}]
        return [self.line, [lines.plain() for lines in self.items]] if self.items else [self.line]

    @classmethod
    def of_plain(cls, data: Sequence[Any]) -> Lines:
        line, within = (*data, ())[:2]
        if isinstance(within, Mapping):
            return cls(line, {key: cls.of_plain(inner) for key, inner in within.items()})
        return cls(line, items=tuple(map(cls.of_plain, within)))


_NO_FIELDS: Final[Mapping[str, Lines]] = {}
"""One mapping for all values without fields, which are most."""

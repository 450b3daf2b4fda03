"""Text in sections for a terminal: a title, and below it rows in columns, each with a style."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from cp.cli.tables import narrowed, row_lines

PLAIN: Final = ""
STRONG: Final = "bold"
CHOSEN: Final = "bold green"
WEAK: Final = "dim"
BAD: Final = "bold red"

GAP: Final = "  "
_LAST_CELL: Final = 3
"""The last cell of a row gets at least one part in so many of the width."""

_NARROWEST: Final = 20


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line, with the style that it has on a terminal."""

    cells: tuple[str, ...]
    style: str = PLAIN


@dataclass(frozen=True, slots=True)
class TextWidth:
    """How wide lines are, and whether names that are too long for a column are cut."""

    columns: int
    cuts: bool = False


def section(title: str, rows: Iterable[TextLine], width: TextWidth) -> Iterator[tuple[str, str]]:
    section_rows = list(rows)
    if section_rows:
        yield "", PLAIN
        yield title, STRONG
        yield from columns(section_rows, width)


def columns(rows: Iterable[TextLine], width: TextWidth) -> Iterator[tuple[str, str]]:
    """Rows as lines of at most so many characters. The last cell gets the rest of the width."""
    everything = list(rows)
    room = width.columns - len(GAP)
    wide = list(zip_longest(*(row.cells[:-1] for row in everything), fillvalue=""))
    gaps = len(GAP) * len(wide)
    before_last = min(room - room // _LAST_CELL, room - gaps - _NARROWEST)
    longest = [max(map(len, column)) for column in wide]
    of_fields = min(*longest[:1], before_last // 2) if longest else 0  # the names of fields give way last
    widths = [of_fields, *narrowed(longest[1:], before_last - of_fields)][: len(longest)]
    for row in everything:
        widths_before = widths[: len(row.cells) - 1]
        last = max(room - sum(widths_before) - len(GAP) * len(widths_before), _NARROWEST)
        for line in row_lines(row.cells, [*widths_before, last], GAP, cuts=width.cuts):
            yield f"{GAP}{line}".rstrip(), row.style

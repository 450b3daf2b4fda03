"""Tables as kumactl prints them; on a terminal they heed its width.

What is needed to copy it stays whole: names are not broken, and where there is no room for one it ends in `…`. Columns
that matter less are left out before that. `-o wide`, `-o json` and whatever is no terminal get everything.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final

from cp.model.wording import printable

_GAP: Final = "   "
_NARROWEST: Final = 8
"""The least width of a column, however narrow the terminal is."""

_NAMES: Final = frozenset({"MESH", "NAME", "DATAPLANE", "POLICY", "RESOURCE", "TYPE", "REVISION", "ADDRESS"})
"""The heads of columns that are narrowed last: people copy what is in them."""

_OF_NAMES: Final = frozenset({"TAGS", "LISTENERS", "SELECTS", "CLUSTER", "ENDPOINT", "VERSION"})
"""The heads of columns whose cells have several names, or one of which half tells nothing."""

_PIECE: Final = re.compile(r"\s+|[^\s,]*,|[^\s,]+")
_NAME: Final = re.compile(r"\(?[\w.:/@=*\[\]-]+\)?[,:;]?")
"""A piece of text that would be of no use in two halves."""

_CUT: Final = "…"

Row = Sequence[str]


def table(heads: Row, rows: Iterable[Row], *, less: Sequence[str] = (), wide: bool = False) -> str:
    """A table with columns as wide as their content, three spaces apart; on a terminal no wider than that.

    `less` has the heads of the columns that are left out where there is no room, the first one first.
    """
    everything = [tuple(heads), *(tuple(map(printable, row)) for row in rows)]  # others chose the names in it
    room = None if wide else terminal_width()
    if room is None:
        return _printed(everything, _widths(everything))
    shown, left_out = _that_fit(everything, room, less)
    widths = _fitting(shown, room - len(_GAP) * (len(shown[0]) - 1))
    return _printed(shown, widths) + _note(len(left_out))


def table_or(sentence: str, heads: Row, rows: Iterable[Row], *, less: Sequence[str] = (), wide: bool = False) -> str:
    """A table, or a sentence where there is nothing to show in one."""
    known = list(rows)
    return table(heads, known, less=less, wide=wide) if known else f"{sentence}\n"


def terminal_width() -> int | None:
    """The width of the terminal; None if the output goes elsewhere, where a program may read it."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def takes_colours() -> bool:
    """Whether the user wants colours on a terminal (https://no-color.org)."""
    return not os.environ.get("NO_COLOR")  # noqa: TID251  # a word of all programs, and no setting of ours


def narrowed(widths: Sequence[int], room: int, least: int = _NARROWEST) -> list[int]:
    """The widths of columns, reduced to fit into a total. Only the widest columns are reduced."""
    limit = max(widths, default=0)
    for number, width in enumerate(sorted(widths)):
        share = room // (len(widths) - number)
        if width > share:
            limit = max(share, least)
            break
        room -= width
    return [min(width, limit) for width in widths]


def row_lines(cells: Row, widths: Sequence[int], gap: str, *, cuts: bool = False) -> Iterator[str]:
    """A row as lines: more than one if a cell is longer than its column. `cuts`: long names end in `…`."""
    columns = [list(_wrapped(cell, width, cuts=cuts)) for cell, width in zip(cells, widths, strict=True)]
    for parts in zip_longest(*columns, fillvalue=""):
        yield gap.join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()


def _note(left_out: int) -> str:
    columns = "1 column is" if left_out == 1 else f"{left_out} columns are"
    return f"{columns} left out for want of room: -o wide shows all\n" if left_out else ""


def _printed(rows: Sequence[Row], widths: Sequence[int]) -> str:
    return "".join(f"{line}\n" for row in rows for line in row_lines(row, widths, _GAP, cuts=True))


def _widths(rows: Sequence[Row]) -> list[int]:
    return [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]


def _that_fit(rows: Sequence[Row], room: int, less: Sequence[str]) -> tuple[Sequence[Row], Collection[str]]:
    """The rows without the columns for which there is no room, and the heads of these."""
    left_out: list[str] = []
    for head in less:
        if _least(rows) <= room:
            break
        if head in rows[0]:
            rows, left_out = _without(rows, rows[0].index(head)), [*left_out, head]
    return rows, left_out


def _without(rows: Sequence[Row], column: int) -> Sequence[Row]:
    return [(*row[:column], *row[column + 1 :]) for row in rows]


def _least(rows: Sequence[Row]) -> int:
    """The width that a table needs at the least, if no name is cut and heads are broken between words alone."""
    return sum(_uncut_widths(rows)) + len(_GAP) * (len(rows[0]) - 1)


def _uncut_widths(rows: Sequence[Row]) -> list[int]:
    """The least widths of columns, with room for each name among others in a cell."""
    columns = zip_longest(*rows)
    longest = (max(map(len, _PIECE.findall(" ".join(column)))) if column[0] in _OF_NAMES else 0 for column in columns)
    return [max(least, name) for least, name in zip(_least_widths(rows), longest, strict=True)]


def _least_widths(rows: Sequence[Row]) -> list[int]:
    heads = (max(_NARROWEST, *(len(word) for word in head.split(" "))) for head in rows[0])
    pairs = zip(rows[0], _widths(rows), heads, strict=True)
    return [width if head in _NAMES else min(width, of_head) for head, width, of_head in pairs]


def _fitting(rows: Sequence[Row], room: int) -> list[int]:
    """The widths of columns in a total. Names give way if that of all others does not suffice."""
    uncut, widths = _uncut_widths(rows), _widths(rows)
    least = uncut if sum(uncut) <= room else _least_widths(rows)
    left = room - sum(least)
    if left >= 0:
        more = narrowed([width - at_least for width, at_least in zip(widths, least, strict=True)], left, 0)
        return [at_least + extra for at_least, extra in zip(least, more, strict=True)]
    names = [head in _NAMES for head in rows[0]]
    of_names = [width for is_name, width in zip(names, least, strict=True) if is_name]
    reduced = iter(narrowed(of_names, room - sum(least) + sum(of_names)))
    return [next(reduced) if is_name else width for is_name, width in zip(names, least, strict=True)]


def _wrapped(cell: str, width: int, *, cuts: bool) -> Iterator[str]:
    """A cell as lines, broken between words if that is possible."""
    line = ""
    for piece in _PIECE.findall(cell) if len(cell) > width else [cell]:
        if len(line + piece.rstrip()) <= width:
            line += piece if line or not piece.isspace() else ""
            continue
        if line:
            yield line.rstrip()
        *full, line = _broken(piece.lstrip(), width, cuts=cuts)
        yield from full
    yield line.rstrip()


def _broken(piece: str, width: int, *, cuts: bool) -> list[str]:
    if len(piece) <= width:
        return [piece]
    if cuts and _NAME.fullmatch(piece):
        is_path = "/" in piece  # of which the end tells more
        return [f"{_CUT}{piece[1 - width :]}" if is_path else f"{piece[: width - 1]}{_CUT}"]
    return [piece[start : start + width] for start in range(0, len(piece), width)]

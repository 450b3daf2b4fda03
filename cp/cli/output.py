"""The output of commands: tables as kumactl prints them, YAML and JSON."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any, Final

import typer
import yaml

from cp.cli.options import DataFormat, OutputFormat

_GAP: Final = "   "
_NARROWEST: Final = 8
"""The least width of a column, however narrow the terminal is."""

_TRUTH_VALUES: Final = frozenset({"y", "Y", "n", "N"})
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY


class _Dumper(yaml.CSafeDumper):
    """YAML that every parser understands: Envoy's takes a bare `n` for a boolean."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.ScalarNode:
    style = '"' if value in _TRUTH_VALUES else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


_Dumper.add_representer(str, _text)


def as_yaml(data: Any) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def as_json(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def print_data(data: Any, form: OutputFormat | DataFormat) -> None:
    """Print data as YAML or JSON."""
    typer.echo(as_json(data) if form.value == DataFormat.JSON.value else as_yaml(data), nl=False)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with columns as wide as their content, three spaces apart; on a terminal no wider than that."""
    everything = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip_longest(*everything, fillvalue="")]
    room = terminal_width()
    if room is not None:
        widths = narrowed(widths, room - len(_GAP) * (len(widths) - 1))
    return "".join(f"{line}\n" for row in everything for line in row_lines(row, widths, _GAP))


def terminal_width() -> int | None:
    """The width of the terminal; None if the output goes elsewhere, where a program may read it."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def narrowed(widths: Sequence[int], room: int) -> list[int]:
    """The widths of columns, reduced to fit into a total. Only the widest columns are reduced."""
    limit = max(widths, default=0)
    for number, width in enumerate(sorted(widths)):
        share = room // (len(widths) - number)
        if width > share:
            limit = max(share, _NARROWEST)
            break
        room -= width
    return [min(width, limit) for width in widths]


def row_lines(cells: Sequence[str], widths: Sequence[int], gap: str) -> Iterator[str]:
    """A row as lines: more than one if a cell is longer than its column."""
    columns = [_wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for parts in zip_longest(*columns, fillvalue=""):
        yield gap.join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()


def _wrapped(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, break_on_hyphens=False)


def age(since: str, now: float | None = None) -> str:
    """How long ago a moment was, in the largest unit that fits: `12s`, `5m`, `3d`."""
    seconds = int((time.time() if now is None else now) - datetime.fromisoformat(since).timestamp())
    for size, unit in ((_YEAR, "y"), (_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"

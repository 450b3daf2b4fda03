"""What commands print: tables as kumactl prints them, YAML and JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any, Final

import typer
import yaml

from cp.cli.options import DataFormat, Format

_GAP: Final = "   "
_TRUTH_VALUES: Final = frozenset({"y", "Y", "n", "N"})
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY


class _Dumper(yaml.CSafeDumper):
    """YAML that every reader understands: Envoy's takes a bare `n` for a truth value."""

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


def print_data(data: Any, form: Format | DataFormat) -> None:
    """Print data in a form that is not a table."""
    typer.echo(as_json(data) if form.value == DataFormat.JSON.value else as_yaml(data), nl=False)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as what stands in them, three spaces apart."""
    everything = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip_longest(*everything, fillvalue="")]
    return "".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"
        for row in everything
    )


def age(since: str, now: float | None = None) -> str:
    """How long ago a moment was, in the largest unit that fits: `12s`, `5m`, `3d`."""
    seconds = int((time.time() if now is None else now) - datetime.fromisoformat(since).timestamp())
    for size, unit in ((_YEAR, "y"), (_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"

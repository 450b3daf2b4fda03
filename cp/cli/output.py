"""The output of commands as YAML and JSON, and what they say beside it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import typer

from cp.cli.options import DataFormat, OutputFormat, TableFormat, TextFormat
from cp.model.names import Key

_LONGEST: Final = 300
"""Characters of a value that stands on one line."""

_WARNED_OF: Final = 5
"""Resources that a warning names."""

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY


def reply(data: Any, text: str, output: TextFormat, *, ends_line: bool = True) -> None:
    """Tell what a command did or made: as a sentence for people, or as data for programs."""
    if output is TextFormat.TEXT:
        typer.echo(text, nl=ends_line)
    else:
        print_data(data, output)


def warn_of(reason: str, resources: Iterable[Mapping[str, str]]) -> None:
    """Say why some resources, as the API names them, are missing from what was printed."""
    names = [str(Key(resource["type"], resource.get("mesh", ""), resource["name"])) for resource in resources]
    if names:
        more = f" and {len(names) - _WARNED_OF} more" if len(names) > _WARNED_OF else ""
        typer.echo(f"Warning: {reason}: {', '.join(names[:_WARNED_OF])}{more}", err=True)


def as_yaml(data: Any) -> str:
    from cp.model.yaml_text import yaml_text  # noqa: PLC0415  # tables and JSON do without

    return yaml_text(data)


def as_json(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def brief(value: Any) -> str:
    """A value of a field on one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def print_data(data: Any, form: OutputFormat | DataFormat | TableFormat | TextFormat) -> None:
    """Print data as YAML or JSON."""
    typer.echo(as_json(data) if form.value == DataFormat.JSON.value else as_yaml(data), nl=False)


def age(since: str, now: float | None = None) -> str:
    """How long ago a moment was, in the largest unit that fits: `12s`, `5m`, `3d`."""
    seconds = int((time.time() if now is None else now) - datetime.fromisoformat(since).timestamp())
    for size, unit in ((_YEAR, "y"), (_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"

"""The steps that bring the tables of a store up to date, in numbered files for each kind of database.

A file may begin with the line `-- compatible with: N`: who knows the tables as the step number N left them can still
use them afterwards, so an older version goes on beside a newer one, and comes back. Without it nobody can who does not
know this step. See record 0079.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

from cp.store.port import Unusable

_MARK: Final = re.compile(r"-- compatible with: ([0-9]+)\n")


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """One step, as SQL."""

    script: str
    compatible_with: int
    """The oldest number of steps with which one can use what this one leaves."""


def migrations(database: str) -> tuple[SchemaStep, ...]:
    """All steps for a kind of database, in their order."""
    folder = resources.files("cp.store.migrations") / database
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return tuple(_migration(number, (folder / name).read_text("utf-8")) for number, name in enumerate(names, 1))


def must_be_compatible(compatible_with: int, known: int, place: str) -> None:
    """Raises `Unusable` if a newer version left nothing that this one understands."""
    if compatible_with > known:
        raise Unusable(f"{place}: made by a newer version (schema {compatible_with}, this one knows {known}): upgrade")


def _migration(number: int, script: str) -> SchemaStep:
    mark = _MARK.match(script)
    return SchemaStep(script, number if mark is None else int(mark[1]))

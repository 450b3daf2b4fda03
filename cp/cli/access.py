"""`koguma access check`: the worth of each right in a file, without a control plane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from cp.access.rights import Subjects
from cp.access.rights_file import BadAccessFile
from cp.access.worth import RightWorth, worths
from cp.cli.options import Output, OutputFormat, SettingsFile
from cp.cli.output import print_data
from cp.cli.own_settings import own_settings
from cp.cli.types import known_kinds
from cp.client.problem import Problem
from cp.model.wording import printable

RightsFile = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="The file with rights. Default: the one of the settings (KOGUMA_ACCESS_FILE)."),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="End with status 1 if a right covers less than in earlier versions.")
]

_ALL: Final = "all kinds that need not be named"


def check(
    file: RightsFile = None, *, config: SettingsFile = None, strict: Strict = False, output: Output = OutputFormat.TABLE
) -> None:
    """Show the worst that each right in a file lets its holders do, and the writes that it does not cover.

    Run it with a new version before the control plane is restarted with it: a right that names no kinds does not cover
    writes with which its holders could run code on proxies, become trusted or remove access control. For each such
    right the answer has the line that grants them.
    """
    from cp.serving.access_keeper import read_rights  # noqa: PLC0415  # slow to load, and only needed here

    path = file or own_settings(config).access_file
    if path is None:
        raise Problem("No file with rights is named.", "Name it, or the settings of the control plane with --config.")
    try:
        rights = read_rights(path, known_kinds(), Subjects())
    except BadAccessFile as bad:
        raise Problem(str(bad), "Correct the file.") from None
    all_worths = list(worths(rights.rights))
    if output is OutputFormat.TABLE:
        for line in (line for worth in all_worths for line in _lines(worth)):
            typer.echo(printable(line))
    else:
        print_data({"rights": [worth.as_data() for worth in all_worths]}, output)
    if strict and any(worth.not_covered for worth in all_worths):
        raise typer.Exit(1)


def _lines(worth: RightWorth) -> Iterator[str]:
    right = worth.right
    holders = [f"user {name}" for name in sorted(right.subjects.users)]
    holders += [f"group {name}" for name in sorted(right.subjects.groups)]
    meshes = "" if right.meshes is None else f" in {', '.join(sorted(right.meshes))}"
    kinds = _ALL if right.kinds is None else ", ".join(sorted(right.kinds))
    yield f"{right.place}: {', '.join(holders)} may {' and '.join(sorted(right.verbs))}{meshes}: {kinds}"
    if worth.worst is not None:
        yield f"  The worst: {worth.worst.harm.value} ({worth.worst.kind})."
    if worth.not_covered:
        yield f"  Not covered, wholly or in part, as it names no kinds: {', '.join(worth.not_covered)}."
        yield "  Earlier versions covered these. Add this right, with those of them that its holders need:"
        yield f"  {worth.to_grant}"

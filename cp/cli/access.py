"""`koguma access check`: the worth of each right in a file, without a control plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cp.access.powers import Harm
from cp.access.rights import Rights, Subjects
from cp.access.rights_file import BadAccessFile
from cp.access.worth import RightWorth, administrators_only, names_of, worths
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

    Administrators that the file does not name are those of the settings.

    Run it with a new version before the control plane is restarted with it: a right that names no kinds does not cover
    writes with which its holders could run code on proxies, become trusted or remove access control. For each such
    right the answer has the line that grants them.
    """
    from cp.serving.access_keeper import access_lists, read_rights  # noqa: PLC0415  # slow to load, only needed here

    settings = own_settings(config)
    path = file or settings.access_file
    if path is None:
        raise Problem("No file with rights is named.", "Name it, or the settings of the control plane with --config.")
    try:
        rights = read_rights(path, known_kinds(), access_lists(settings).administrators)
    except BadAccessFile as bad:
        raise Problem(str(bad), "Correct the file.") from None
    all_worths = list(worths(rights.rights))
    if output is OutputFormat.TABLE:
        lines = chain(_administrator_lines(rights), chain.from_iterable(map(_lines, all_worths)))
        for line in lines:
            typer.echo(printable(line))
    else:
        print_data(_data(rights, all_worths), output)
    if strict and any(worth.lost for worth in all_worths):
        raise typer.Exit(1)


def _data(rights: Rights, all_worths: Sequence[RightWorth]) -> dict[str, Any]:
    return {
        "administrators": names_of(rights.administrators),
        "administratorsOnly": list(administrators_only(rights.rights)),
        "rights": [worth.as_data() for worth in all_worths],
    }


def _administrator_lines(rights: Rights) -> Iterator[str]:
    yield f"administrators: {_holders(rights.administrators) or 'nobody'} may {Harm.RULE.value}"
    if kinds := administrators_only(rights.rights):
        yield f"  No right names these kinds, so administrators alone write them: {', '.join(kinds)}."


def _holders(subjects: Subjects) -> str:
    users = [f"user {name}" for name in sorted(subjects.users)]
    return ", ".join([*users, *(f"group {name}" for name in sorted(subjects.groups))])


def _lines(worth: RightWorth) -> Iterator[str]:
    right = worth.right
    meshes = "" if right.meshes is None else f" in {', '.join(sorted(right.meshes))}"
    kinds = _ALL if right.kinds is None else ", ".join(sorted(right.kinds))
    yield f"{right.place}: {_holders(right.subjects)} may {' and '.join(sorted(right.verbs))}{meshes}: {kinds}"
    if worth.worst is not None:
        yield f"  The worst: {worth.worst.harm.value} ({worth.worst.kind})."
    if worth.not_covered:
        yield f"  Not covered, wholly or in part, as it names no kinds: {', '.join(worth.not_covered)}."
    if worth.lost:
        yield f"  Earlier versions covered {', '.join(worth.lost)}. Add this right, with those that its holders need:"
        yield f"  {worth.to_grant}"

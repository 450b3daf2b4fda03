"""Options that several commands have, each described once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class OutputFormat(StrEnum):
    """The formats of commands that can print a table."""

    TABLE = "table"
    YAML = "yaml"
    JSON = "json"


class DataFormat(StrEnum):
    """The formats of commands that print data only."""

    YAML = "yaml"
    JSON = "json"


Mesh = Annotated[str, typer.Option("--mesh", "-m", help="The mesh.")]
Files = Annotated[
    list[str],
    typer.Option(
        "--file", "-f", metavar="FILE|DIR|-", help="A file, a folder, or - for standard input. May be repeated."
    ),
]
Offline = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE|DIR|-",
        help="Read these files instead of asking a control plane. May be repeated.",
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--var", "-v", metavar="NAME=VALUE", help="Replace {{ NAME }} in the files by VALUE. May be repeated."
    ),
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="The format of the output.")]
DataOutput = Annotated[DataFormat, typer.Option("--output", "-o", help="The format of the output.")]
WorkDir = Annotated[
    Path | None,
    typer.Option(
        "--work-dir",
        envvar=["KUMA_DATAPLANE_RUNTIME_WORK_DIR"],
        help="The folder for the bootstrap configuration and Envoy's admin socket. "
        "Default: a new folder, removed at the end.",
    ),
]

"""Options that several commands have, each described once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class OutputFormat(StrEnum):
    """How something is printed."""

    TABLE = "table"
    YAML = "yaml"
    JSON = "json"


class DataFormat(StrEnum):
    """How something that is no table is printed."""

    YAML = "yaml"
    JSON = "json"


ADDRESS = "http://localhost:5681"

Address = Annotated[
    str,
    typer.Option("--address", envvar=["KOGUMA_ADDRESS"], metavar="URL", help="Where the control plane's HTTP API is."),
]
Mesh = Annotated[str, typer.Option("--mesh", "-m", help="The mesh.")]
Files = Annotated[
    list[str],
    typer.Option(
        "--file", "-f", metavar="FILE|DIR|-", help="A file, a folder, or - for standard input. May be repeated."
    ),
]
Offline = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", metavar="FILE|DIR|-", help="Files, in place of a running control plane."),
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--var", "-v", metavar="NAME=VALUE", help="What stands for {{ NAME }} in the files."),
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="How to print it.")]
DataOutput = Annotated[DataFormat, typer.Option("--output", "-o", help="How to print it.")]
WorkDir = Annotated[
    Path | None,
    typer.Option(
        "--work-dir",
        envvar=["KUMA_DATAPLANE_RUNTIME_WORK_DIR"],
        help="The folder for the bootstrap configuration and Envoy's admin socket. "
        "Default: one that is removed at the end.",
    ),
]

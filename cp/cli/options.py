"""Options that several commands have, each described once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

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


def token_option(name: str, variable: str) -> Any:
    """A token as it is, beside the option for a file with it."""
    text = "The token itself. Other users of the machine may see it in the list of processes."
    return typer.Option(name, envvar=[variable], metavar="TOKEN", help=text)


def authority_option(variable: str, default: str) -> Any:
    """Whom to trust to sign the certificate of a control plane."""
    text = f"The authority of the control plane's certificate: koguma-cp-ca.crt in its work folder. Default: {default}."
    return typer.Option("--ca-cert-file", envvar=[variable], metavar="FILE", help=text)


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

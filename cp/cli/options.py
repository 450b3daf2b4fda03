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


class TableFormat(StrEnum):
    """The formats of commands that print a table with columns."""

    TABLE = "table"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"

    @property
    def is_data(self) -> bool:
        return self in {TableFormat.YAML, TableFormat.JSON}


class TextFormat(StrEnum):
    """The formats of commands that tell what they did."""

    TEXT = "text"
    YAML = "yaml"
    JSON = "json"


class PolicyEngine(StrEnum):
    """The engines that a Mesh can have."""

    TARGET_REF = "TargetRef"
    LEGACY = "Legacy"


class DataFormat(StrEnum):
    """The formats of commands that print data only."""

    YAML = "yaml"
    JSON = "json"


SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar=["KOGUMA_CONFIG"],
        metavar="FILE",
        help="A file of settings in YAML. Options and the environment have precedence over it.",
    ),
]


def token_option(name: str, variable: str) -> Any:
    """A token as it is, beside the option for a file with it."""
    text = "The token itself. Other users of the machine may see it in the list of processes."
    return typer.Option(name, envvar=[variable], metavar="TOKEN", help=text)


def authority_option(variable: str, default: str) -> Any:
    """Whom to trust to sign the certificate of a control plane."""
    text = f"The authority of the control plane's certificate: koguma-cp-ca.crt in its work folder. Default: {default}."
    return typer.Option("--ca-cert-file", envvar=[variable], metavar="FILE", help=text)


EngineOfMeshes = Annotated[
    PolicyEngine | None,
    typer.Option(
        "--engine",
        help="The policy engine of a Mesh that names none. Default: Legacy if it has TrafficRoutes or "
        "TrafficPermissions, otherwise that of the settings.",
    ),
]
SourceTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--source-token-file",
        envvar=["KOGUMA_SOURCE_TOKEN_FILE"],
        metavar="FILE",
        help="A file with a token for the control plane that the mesh is read from. No other token is sent there.",
    ),
]
SourceAuthorityFile = Annotated[
    Path | None,
    typer.Option(
        "--source-ca-cert-file",
        envvar=["KOGUMA_SOURCE_CA_CERT_FILE"],
        metavar="FILE",
        help="The authority of the certificate of the control plane that the mesh is read from. "
        "Default: what this machine trusts.",
    ),
]
ResourceName = Annotated[str | None, typer.Argument(metavar="NAME", help="The name of one resource.")]
Mesh = Annotated[str, typer.Option("--mesh", "-m", help="The mesh.")]
At = Annotated[
    int | None,
    typer.Option("--at", metavar="REVISION", min=0, help="As it was at this revision. Default: as it is now."),
]
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
ManagedBy = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Who pushes these files, such as the name of a repository. It becomes their label koguma.io/managed-by, "
        "and what carries another name is refused.",
    ),
]
Prune = Annotated[
    bool,
    typer.Option(
        "--prune",
        help="Delete, in the same write, what carries the name of --managed-by and is not in the files. A Mesh stays.",
    ),
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="The format of the output.")]
Watch = Annotated[
    bool, typer.Option("--watch", help="Print it again whenever something changes, until it is interrupted.")
]
TextOutput = Annotated[TextFormat, typer.Option("--output", "-o", help="The format of the output.")]
TableOutput = Annotated[
    TableFormat,
    typer.Option("--output", "-o", help="The format of the output. wide: every column, whole, on a terminal too."),
]
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

"""`koguma export`: all resources of a control plane, in a form that can be applied again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cp.cli.connection import ApiConnection
from cp.cli.options import At, DataFormat, DataOutput, TextFormat
from cp.cli.output import as_yaml, print_data, reply, warn_of
from cp.client.problem import Problem
from cp.model.wording import printable

OneMesh = Annotated[
    str, typer.Option("--mesh", "-m", help="Only this mesh, and what all meshes need.", show_default="all")
]
Secrets = Annotated[bool, typer.Option("--secrets", help="Export what is secret too. Only administrators may.")]
NoDataplanes = Annotated[
    bool, typer.Option("--no-dataplanes", help="Leave out the Dataplanes, where proxies register themselves.")
]
Folder = Annotated[
    Path | None,
    typer.Option("--write", "-w", metavar="FOLDER", help="Write a file for each mesh. Default: standard output."),
]

_OF_NO_MESH: Final = "_global"
"""No mesh has a name like it."""

_OURS_ALONE: Final = 0o600


def export(  # noqa: PLR0913  # an option each
    *,
    mesh: OneMesh = "",
    at: At = None,
    secrets: Secrets = False,
    no_dataplanes: NoDataplanes = False,
    write: Folder = None,
    output: DataOutput = DataFormat.YAML,
    api: ApiConnection,
) -> None:
    """Print all resources, to be applied again with `koguma apply -f`, or used as a folder of files.

    All of them are of one revision. Their history is not exported. Without --secrets, what has secrets in it is left
    out, and named.
    """
    parameters = {"mesh": mesh, "at": "" if at is None else str(at), "reveal": "true" if secrets else ""}
    if write is not None:
        must_be_empty(write)
    with api.client() as client:
        given = {name: value for name, value in parameters.items() if value}
        answer = client.answer("/_export", ["resources", "revision", "hidden", "own"], **given)
    resources = [
        resource for resource in answer["resources"] if not (no_dataplanes and resource["type"] == "Dataplane")
    ]
    if write is not None:
        write_files(write, resources)
        data = {"folder": str(write), "resources": len(resources), "revision": answer["revision"]}
        text = f"{len(resources)} resources of revision {answer['revision']} are in {write}, without their history"
        reply(data, text, TextFormat.JSON if output is DataFormat.JSON else TextFormat.TEXT)
    elif output is DataFormat.JSON:
        print_data({**answer, "resources": resources}, output)
    else:
        typer.echo("---\n".join(map(as_yaml, resources)), nl=False)
    warn_of("not exported, as they have secrets (--secrets)", answer["hidden"])
    warn_of("not exported, as the control plane alone writes them (koguma store copy)", answer["own"])
    warn_of("not exported, as they cannot be decrypted", answer.get("unreadable", ()))


def must_be_empty(folder: Path) -> None:
    """Files that are there already would be applied with those that are written."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise Problem(f"{folder} is there already, and no empty folder", "Name another one.")


def _file_name(mesh: Any) -> str:
    """The file of a mesh. Raises `Problem` for a name that leads elsewhere, which no control plane takes."""
    name = f"{mesh}.yaml"
    if Path(name).name != name or "\0" in name:
        raise Problem(f"`{printable(str(mesh))}` is no name of a mesh", "What answers is no control plane.")
    return name


def write_files(folder: Path, resources: Iterable[Mapping[str, Any]]) -> None:
    """Write a file for each mesh, for its owner alone."""
    by_mesh: dict[str, list[str]] = {}
    for resource in resources:
        name = resource["name"] if resource["type"] == "Mesh" else resource.get("mesh", _OF_NO_MESH)
        by_mesh.setdefault(_file_name(name), []).append(as_yaml(resource))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, texts in by_mesh.items():
            descriptor = os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OURS_ALONE)
            with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123  # by its descriptor
                file.write("---\n".join(texts))
    except OSError as error:
        raise Problem(f"{folder} cannot be written: {error.strerror}") from None

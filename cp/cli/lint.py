"""`koguma lint`: errors in a mesh, and resources in it without effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from cp.cli.connection import ApiConnection
from cp.cli.findings import finding_lines
from cp.cli.options import Offline, Output, OutputFormat, Variables
from cp.cli.output import print_data
from cp.cli.types import known_kinds
from cp.cli.worlds import assembled
from cp.client.files import file_documents, file_texts
from cp.insight.report import lint_data
from cp.policies import discover

Data = Mapping[str, Any]

OneMesh = Annotated[
    str | None, typer.Option("--mesh", "-m", help="Check only this mesh. Default: all meshes.", show_default=False)
]
Strict = Annotated[bool, typer.Option("--strict", help="End with status 1 for warnings too.")]

_COUNTED: Final = (("errors", "error"), ("warnings", "warning"), ("infos", "info"))


def lint(  # noqa: PLR0913  # an option each
    *,
    file: Offline = None,
    mesh: OneMesh = None,
    var: Variables = None,
    output: Output = OutputFormat.TABLE,
    strict: Strict = False,
    api: ApiConnection,
) -> None:
    """Report what is wrong, has no effect, or cannot work as written. Ends with status 1 if there are errors.

    It also ends with status 1 if there are meshes that you may read but not inspect: their findings are not shown.
    """
    data = _offline(file, var or [], mesh) if file else _online(mesh, api)
    if output is OutputFormat.TABLE:
        for line in _lines(data):
            typer.echo(line)
    else:
        print_data(data, output)
    if data["errors"] or data.get("meshesNotTold") or (strict and data["warnings"]):
        raise typer.Exit(1)


def _online(mesh: str | None, api: ApiConnection) -> Any:
    with api.client() as client:
        return client.answer("/_lint" if mesh is None else f"/meshes/{mesh}/_lint", ["findings", "errors", "warnings"])


def _offline(files: Sequence[str], variables: Sequence[str], mesh: str | None) -> Data:
    """The findings about files, including errors in the files themselves."""
    from cp.insight.lint import in_order, of_mesh  # noqa: PLC0415  # it knows all of Envoy, which only files need here
    from cp.insight.lint import lint as findings_of  # noqa: PLC0415  # the same

    documents, report = file_documents(file_texts(files, variables), known_kinds())
    findings = in_order((*report.findings, *findings_of(discover(), assembled(documents))))
    return lint_data(findings if mesh is None else tuple(of_mesh(findings, mesh)))


def _lines(data: Data) -> Iterator[str]:
    for finding in data["findings"]:
        yield from finding_lines(finding)
        yield ""
    counts = [f"{data[name]} {noun}{'' if data[name] == 1 else 's'}" for name, noun in _COUNTED if data[name]]
    not_told = ", ".join(data.get("meshesNotTold") or ())
    yield ", ".join(counts) or ("nothing to say of the other meshes" if not_told else "nothing to say")
    for proposed in data.get("notLookedAt") or ():
        yield f"not looked at: {proposed}"
    if not_told:
        yield f"not told: what there is to say of {not_told}, as you have no right to read Inspection there"

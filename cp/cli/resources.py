"""`koguma get`, `koguma apply` and `koguma delete`: resources of a running control plane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import parse_qs, urlsplit

import typer

from cp.cli.columns import listing
from cp.cli.connection import ApiConnection
from cp.cli.options import Files, Mesh, Output, OutputFormat, Variables
from cp.cli.output import as_yaml, print_data
from cp.cli.proxies import listed
from cp.cli.types import folder_of, kind_of, known_kinds, path_of
from cp.cli.validate import findings_before_write, print_findings
from cp.cli.waiting import TIMEOUT, Timeout, Wait, WrittenResources, duration, until_delivered
from cp.client.client import Client
from cp.client.files import FileDocument, file_documents, file_texts
from cp.client.problem import Problem
from cp.model.names import Key
from cp.model.source import DEFAULT_MESH
from cp.resources.kinds import Kind

_DATAPLANE: Final = "Dataplane"
_AT_ONCE: Final = 4 * 1024 * 1024
"""How many characters of resources one request has. By default a control plane accepts 16 MiB."""

_WOULD_BE: Final = {"Created": "would be Created", "Updated": "would be Updated", "Unchanged": "is Unchanged"}

Type = Annotated[str, typer.Argument(metavar="TYPE", help="A type of resource: meshtimeouts, MeshTimeout or mt.")]
Name = Annotated[str | None, typer.Argument(metavar="NAME", help="The name of one resource.")]


def get(  # noqa: PLR0913  # an option each
    type_: Type,
    name: Name = None,
    *,
    mesh: Mesh = DEFAULT_MESH,
    output: Output = OutputFormat.TABLE,
    size: Annotated[int | None, typer.Option(help="The largest number of resources to show.", min=1, max=1000)] = None,
    offset: Annotated[
        str | None, typer.Option(help="Where the page starts: the offset that the last page printed.")
    ] = None,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Show what is secret in one resource. Only administrators may.")
    ] = False,
    api: ApiConnection,
) -> None:
    """Show the resources of a type, or one of them."""
    if reveal and name is None:
        raise Problem("--reveal is for one resource", "Add its NAME.", status=2)
    kind = kind_of(type_)
    path = folder_of(kind, mesh) if name is None else path_of(Key(kind.name, mesh, name), kind)
    with_status = kind.name == _DATAPLANE and output is OutputFormat.TABLE
    page_parameters = {"size": str(size) if size is not None else None, "offset": offset} if name is None else {}
    parameters = {parameter: value for parameter, value in page_parameters.items() if value is not None}
    parameters |= {"reveal": "true"} if reveal else {}
    is_whole_list = name is None and output is not OutputFormat.TABLE and not parameters
    with api.client() as client:
        answer = (
            client.all_pages(path)
            if is_whole_list
            else client.get(f"{path}/_overview" if with_status else path, **parameters)
        )
    if output is not OutputFormat.TABLE:
        _print_data(answer, output, is_list=name is None)
        return
    page: Mapping[str, Any] = answer if name is None else {"items": [answer], "next": None}
    _print_table(kind, {**page, "items": [listed(item) for item in page["items"]]} if with_status else page)


def apply(  # noqa: PLR0913  # an option each
    file: Files,
    var: Variables = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    wait: Wait = False,
    timeout: Timeout = TIMEOUT,
    api: ApiConnection,
) -> None:
    """Create or update resources from files, in one write. If one of them is invalid, none is written.

    With --wait it ends with status 0 once every connected proxy that the change affects has accepted it. If a proxy
    rejects it or does not answer in time, it prints the reason and ends with status 1.
    """
    if dry_run and wait:
        raise Problem("--wait cannot be combined with --dry-run, which changes nothing", status=2)
    patience, documents, written = duration(timeout), _valid_documents(file, var or []), WrittenResources()
    with api.client() as client:
        in_order = sorted(documents, key=lambda file_document: file_document.document.key.type != "Mesh")
        for key, outcome in _dry_run(client, in_order) if dry_run else _apply(client, in_order, written):
            mesh = f'mesh="{key.mesh}" ' if key.mesh else ""
            typer.echo(f'resource type="{key.type}" {mesh}name="{key.name}" {outcome}')
        if wait:
            until_delivered(client, written, patience)


def delete(  # noqa: PLR0913  # an option each
    type_: Annotated[
        str | None, typer.Argument(metavar="TYPE", help="A type of resource: meshtimeouts, MeshTimeout or mt.")
    ] = None,
    name: Name = None,
    *,
    mesh: Mesh = DEFAULT_MESH,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file", "-f", metavar="FILE|DIR|-", help="Delete the resources in these files. May be repeated."
        ),
    ] = None,
    cascade: Annotated[bool, typer.Option("--cascade", help="Delete a Mesh together with everything in it.")] = False,
    wait: Wait = False,
    timeout: Timeout = TIMEOUT,
    api: ApiConnection,
) -> None:
    """Delete a resource, or all resources in some files."""
    patience, keys, written = duration(timeout), _to_delete(type_, name, mesh, file), WrittenResources()
    with api.client() as client:
        for key in sorted(keys, key=lambda key: key.type == "Mesh"):
            parameters = {"cascade": "true"} if cascade and key.type == "Mesh" else {}
            written.add(key, client.delete(path_of(key, known_kinds()[key.type]), **parameters))
            typer.echo(f'deleted {key.type} "{key.name}"')
        if wait:
            until_delivered(client, written, patience)


def _print_data(answer: Any, output: OutputFormat, *, is_list: bool) -> None:
    """Print resources. A YAML list has a document for each, so that it can be applied; JSON is the API's answer."""
    if not is_list or output is not OutputFormat.YAML:
        print_data(answer, output)
        return
    typer.echo("---\n".join(map(as_yaml, answer["items"])), nl=False)
    if answer["next"]:
        typer.echo(_next_page_hint(answer["next"]), err=True)


def _next_page_hint(link: str) -> str:
    offset = parse_qs(urlsplit(link).query)["offset"][0]
    return f"Rerun command with --offset={offset} argument to retrieve more resources"


def _print_table(kind: Kind, page: Mapping[str, Any]) -> None:
    typer.echo(listing(kind, page["items"]), nl=False)
    if page["next"]:
        typer.echo(f"\n{_next_page_hint(page['next'])}")


def _to_delete(type_: str | None, name: str | None, mesh: str, file: Sequence[str] | None) -> list[Key]:
    if file and type_ is None:
        return [file_document.document.key for file_document in _valid_documents(file, [])]
    if file or type_ is None or name is None:
        raise Problem("name the resource with TYPE and NAME, or give -f FILE", status=2)
    kind = kind_of(type_)
    return [Key(kind.name, "" if kind.is_global else mesh, name)]


def _valid_documents(file: Sequence[str], variables: Sequence[str]) -> list[FileDocument]:
    documents, report = file_documents(file_texts(file, variables), known_kinds())
    print_findings(findings_before_write(report))
    if not report.is_valid:
        raise Problem("nothing was changed because of the errors above")
    if not documents:
        raise Problem(f"there is no resource in {', '.join(file)}")
    return documents


def _apply(client: Client, documents: Sequence[FileDocument], written: WrittenResources) -> Iterator[tuple[Key, str]]:
    """Write documents in one request, or in several if they are too large for one."""
    for part in _parts(documents):
        outcomes, revision = client.apply([(file_document.text, file_document.location) for file_document in part])
        for outcome in outcomes:
            key = _key(outcome)
            written.add(key, None if outcome["outcome"] == "Unchanged" else revision)
            _warn(outcome)
            yield key, outcome["outcome"]


def _parts(documents: Sequence[FileDocument]) -> Iterator[Sequence[FileDocument]]:
    part: list[FileDocument] = []
    size = 0
    for file_document in documents:
        if part and size + len(file_document.text) > _AT_ONCE:
            yield part
            part, size = [], 0
        part.append(file_document)
        size += len(file_document.text)
    yield part


def _dry_run(client: Client, documents: Sequence[FileDocument]) -> Iterator[tuple[Key, str]]:
    """The outcomes that a write would have. Each request repeats the Meshes of earlier ones, which are not stored."""
    meshes: list[FileDocument] = []
    for part in _parts(documents):
        outcomes, _ = client.apply(
            [(file_document.text, file_document.location) for file_document in (*meshes, *part)], dry_run=True
        )
        for outcome in outcomes[len(meshes) :]:
            _warn(outcome)
            yield _key(outcome), _WOULD_BE[outcome["outcome"]]
        meshes += [file_document for file_document in part if file_document.document.key.type == "Mesh"]


def _warn(outcome: Mapping[str, Any]) -> None:
    for warning in outcome.get("warnings", ()):
        typer.echo(f"Warning: {warning}", err=True)


def _key(outcome: Mapping[str, Any]) -> Key:
    return Key(outcome["type"], outcome.get("mesh", ""), outcome["name"])

"""`koguma import`: whole meshes from another control plane, or from its export, into ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Final

import typer

from cp.cli.connection import ApiConnection, source_connection
from cp.cli.findings import print_findings
from cp.cli.meshes import MeshFiles, must_be_shown, of_unknown_types, read, texts_of, with_engines, with_fields
from cp.cli.options import EngineOfMeshes, SourceAuthorityFile, SourceTokenFile, TextFormat, TextOutput
from cp.cli.preflight import Preflighted, must_be_write
from cp.cli.resources import WOULD_BE, Push, applied, parts, would_be_applied
from cp.cli.waiting import WrittenResources
from cp.cli.write_report import WriteReport
from cp.client.client import Client
from cp.client.files import FileDocument, file_texts
from cp.client.problem import Problem
from cp.model.names import Key
from cp.model.wording import printable

_NOT_ENFORCED: Final = "not-enforced"
_WHY_IN_THIS_ORDER: Final = "the Dataplanes come last, when all that is for them is there"

From = Annotated[
    str,
    typer.Argument(
        metavar="FILE|DIR|-|URL", help="An export of meshes, or the URL of the HTTP API of a Kuma control plane."
    ),
]
OneMesh = Annotated[
    str | None, typer.Option("--mesh", "-m", help="Import only this mesh. Default: all meshes.", show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be imported, and write nothing.")]
NoDataplanes = Annotated[
    bool, typer.Option("--no-dataplanes", help="Leave out the Dataplanes, where proxies register themselves.")
]

WithKeys = Annotated[
    bool,
    typer.Option(
        "--with-keys", help="Also import the keys with which a control plane signs: those of tokens and of authorities."
    ),
]


def import_mesh(  # noqa: PLR0913  # an option each
    source: From,
    *,
    mesh: OneMesh = None,
    no_dataplanes: NoDataplanes = False,
    dry_run: DryRun = False,
    with_keys: WithKeys = False,
    engine: EngineOfMeshes = None,
    preflight: Preflighted = None,
    source_token_file: SourceTokenFile = None,
    source_ca_cert_file: SourceAuthorityFile = None,
    output: TextOutput = TextFormat.TEXT,
    api: ApiConnection,
) -> None:
    """Bring whole meshes from Kuma into a control plane, with a list of what will not work there.

    All resources are checked first. If one of them is invalid, all that is wrong is listed, and nothing is written.
    They are written in one request or, if they are too large for that, in several: run it again if a request fails.
    """
    must_be_write(preflight=preflight, dry_run=dry_run)
    is_url = source.startswith(("http://", "https://"))
    source_api = source_connection(source, source_token_file, source_ca_cert_file) if is_url else None
    files = _files(source, mesh or "", source_api, with_keys=with_keys)
    must_be_shown(files, "nothing was imported")
    files, taken = with_engines(files, None if engine is None else engine.value)
    documents = sorted(_imported(files, no_dataplanes=no_dataplanes), key=_place)
    if not files.report.is_valid:
        print_findings(files.report.errors)
        raise Problem("nothing was imported", "Mend what is named above, or leave it out.")
    if not documents:
        raise Problem("there is nothing to import", "Name an export with resources, and a mesh that is in it.")
    if (requests := len(list(parts(documents)))) > 1:
        text = f"in {requests} requests, one after the other: {_WHY_IN_THIS_ORDER}"
        typer.echo(text, err=output is not TextFormat.TEXT)
    report = WriteReport(output)
    written = WrittenResources()
    with api.client() as client:
        for key, outcome in _outcomes(client, documents, written, Push(preflight=preflight), dry_run=dry_run):
            report.add(key, outcome, printable(f"{WOULD_BE[outcome] if dry_run else outcome}: {key}"))
    report.add_preflights(written.preflights)
    if report.is_data:
        report.more |= {"notes": list(taken), "willNotWork": [line.strip() for line in _reasons(files)]}
        report.print_all()
        return
    for line in (*taken, *what_will_not_work(files)):
        typer.echo(printable(line))


def _files(source: str, mesh: str, source_api: ApiConnection | None, *, with_keys: bool) -> MeshFiles:
    if source_api is None:
        return read(file_texts([source]), mesh, with_keys=with_keys)
    with source_api.client() as client:
        files = read(list(texts_of(client, mesh, with_keys=with_keys)), mesh, with_keys=with_keys)
        return replace(files, left_out=(*files.left_out, *of_unknown_types(client, mesh)))


def _imported(files: MeshFiles, *, no_dataplanes: bool) -> Iterator[FileDocument]:
    """The documents that are written: all that were read, or all but the Dataplanes."""
    for file_document in files.documents:
        kind = file_document.key.type
        if kind == "Mesh":
            yield _with_own_policies(file_document)
        elif kind != "Dataplane" or not no_dataplanes:
            yield file_document


def _place(file_document: FileDocument) -> int:
    """Meshes first, as all else is in them; Dataplanes last, as proxies are served from then on."""
    return {"Mesh": 0, "Dataplane": 2}.get(file_document.key.type, 1)


def _with_own_policies(mesh: FileDocument) -> FileDocument:
    """A Mesh that gets no policies of ours when it is made: what it had is imported with it."""
    fields = {"skipCreatingInitialPolicies": ["*"]}
    return mesh if fields.items() <= mesh.document.data.items() else with_fields(mesh, fields)


def _outcomes(
    client: Client, documents: list[FileDocument], written: WrittenResources, push: Push, *, dry_run: bool
) -> Iterable[tuple[Key, str]]:
    """The outcome of each document. A dry run goes first, so that a rejection leaves nothing half written."""
    would_be = list(would_be_applied(client, documents))
    return would_be if dry_run else _written(client, documents, written, push)


def _written(
    client: Client, documents: list[FileDocument], written: WrittenResources, push: Push
) -> Iterator[tuple[Key, str]]:
    """The outcome of each document. If a request fails, those before it are done."""
    done = 0
    try:
        for outcome in applied(client, documents, written, push):
            done += 1
            yield outcome
    except Problem as problem:
        if done == 0:
            raise
        message = f"{problem.message}; {done} of {len(documents)} resources are imported"
        hint = "Run the same command again: those are left as they are, and the others follow."
        raise Problem(message, " ".join(filter(None, (problem.hint, hint))), problem.status) from None


def what_will_not_work(files: MeshFiles) -> Iterator[str]:
    """What Koguma does not do of all this, with the reason."""
    reasons = list(_reasons(files))
    if reasons:
        yield ""
        yield "what will not work:"
        yield from (f"  {reason}" for reason in reasons)


def _reasons(files: MeshFiles) -> Iterator[str]:
    yield from (f"{left_out.documents}: {left_out.reason}" for left_out in files.left_out)
    yield from (str(finding) for finding in files.report.findings if finding.code == _NOT_ENFORCED)

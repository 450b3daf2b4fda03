"""`koguma apply` and `koguma delete`: resources of a running control plane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from cp.cli.connection import ApiConnection
from cp.cli.findings import findings_before_write, print_findings
from cp.cli.options import Files, ManagedBy, Mesh, Prune, ResourceName, TextFormat, TextOutput, Variables
from cp.cli.preflight import Preflighted, must_be_write
from cp.cli.rollouts import HOLD, Hold, Steps, Until, followed, must_be_done
from cp.cli.types import known_kinds, path_of, type_of
from cp.cli.waiting import TIMEOUT, Timeout, Wait, WrittenResources, duration
from cp.cli.write_report import WriteReport, finish_write
from cp.client.client import Client
from cp.client.files import FileDocument, file_documents, file_texts
from cp.client.problem import Problem
from cp.model.names import DEFAULT_MESH, Key
from cp.model.wording import printable

_AS_BEFORE: Final = frozenset({"Unchanged", "Kept"})
_AT_ONCE: Final = 4 * 1024 * 1024
"""How many characters of resources one request has. By default a control plane accepts 16 MiB."""

_SUCH_AS_STEPS: Final = "such as --rollout 1,10%,100%"

WOULD_BE: Final = {
    "Created": "would be Created",
    "Updated": "would be Updated",
    "Unchanged": "is Unchanged",
    "Deleted": "would be Deleted",
    "Kept": "would be Kept",
}


def apply(  # noqa: PLR0913  # an option each
    file: Files,
    var: Variables = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    managed_by: ManagedBy = "",
    prune: Prune = False,
    preflight: Preflighted = None,
    rollout: Steps = None,
    hold: Hold = HOLD,
    until: Until = "",
    wait: Wait = False,
    timeout: Timeout = TIMEOUT,
    output: TextOutput = TextFormat.TEXT,
    api: ApiConnection,
) -> None:
    """Create or update resources from files, in one write. If one of them is invalid, none is written.

    Files that are too large for one request are written in several, one after the other; with --prune and --rollout
    there is always one request.

    With --wait it ends with status 0 once every connected proxy that the change affects has accepted it. Proxies that
    are expected back are waited for too: they were there a moment ago, or a control plane has just begun or gone. If a
    proxy rejects it, or it is not known in time what a proxy has, it prints the reason and ends with status 1.

    With --rollout some proxies are served the change before anything is stored. The command ends with status 0 once
    the change is stored for all, and with 1 if the rollout went back. Ctrl-C leaves the rollout under way: see
    `koguma rollout`.
    """
    must_be_write(preflight=preflight, dry_run=dry_run)
    order = _order(rollout, hold, until, is_other=dry_run or wait)
    if dry_run and wait:
        raise Problem("--wait cannot be combined with --dry-run, which changes nothing", status=2)
    push = Push.of(managed_by, prunes=prune, preflight=preflight)
    patience, documents, written = duration(timeout), valid_documents(file, var or []), WrittenResources()
    with api.client() as client:
        in_order = sorted(documents, key=lambda file_document: file_document.document.key.type != "Mesh")
        if order:
            _roll_out(client, in_order, push, order, WriteReport(output))
            return
        outcomes = would_be_applied(client, in_order, push) if dry_run else applied(client, in_order, written, push)
        report = WriteReport(output)
        for key, outcome in outcomes:
            report.add(key, outcome, _line(key, WOULD_BE[outcome] if dry_run else outcome))
        finish_write(client, written, report, patience if wait else None)


def _line(key: Key, outcome: str) -> str:
    mesh = f'mesh="{key.mesh}" ' if key.mesh else ""
    return f'resource type="{key.type}" {mesh}name="{key.name}" {outcome}'


def _order(steps: str | None, hold: str, until: str, *, is_other: bool) -> Mapping[str, str]:
    """How to roll out, as it is written; empty: not at all. The control plane checks it."""
    if steps is None:
        if until or hold != HOLD:
            raise Problem("--hold and --until are for --rollout", f"Add the steps, {_SUCH_AS_STEPS}.", status=2)
        return {}
    if not steps.strip():  # a script whose variable is empty must not write it for all at once
        raise Problem("--rollout has no steps", f"Write the steps, {_SUCH_AS_STEPS}.", status=2)
    if is_other:
        hint = "Leave them out: it goes on until all steps are done, and stores nothing before."
        raise Problem("--rollout cannot be combined with --dry-run or --wait", hint, status=2)
    return {"steps": steps, "hold": hold, "until": until}


def _roll_out(
    client: Client, documents: Sequence[FileDocument], push: Push, order: Mapping[str, str], report: WriteReport
) -> None:
    """Have documents rolled out, in one request whatever their size, and wait for the end."""
    texts = [(file_document.text, file_document.location) for file_document in documents]
    answer = client.roll_out(texts, order, managed_by=push.managed_by, prune=push.prunes, preflight=push.preflight)
    _warn(answer)
    for outcome in answer["resources"]:
        _warn(outcome)
        key = _key(outcome)
        report.add(key, outcome["outcome"], _line(key, WOULD_BE[outcome["outcome"]]))
    report.add_preflights(filter(None, [answer.get("preflight")]))
    begun = answer.get("rollout", {})
    last = followed(client, begun["mesh"], begun["number"]) if begun else None
    if report.is_data:
        report.more["rollout"] = last
        report.print_all()
    elif last is None:
        typer.echo("nothing to roll out: all of it is stored already")
    if last is not None:
        must_be_done(last, begun["number"], is_silent=report.is_data)


def delete(  # noqa: PLR0913  # an option each
    type_: Annotated[
        str | None, typer.Argument(metavar="TYPE", help="A type of resource: meshtimeouts, MeshTimeout or mt.")
    ] = None,
    name: ResourceName = None,
    *,
    mesh: Mesh = DEFAULT_MESH,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file", "-f", metavar="FILE|DIR|-", help="Delete the resources in these files. May be repeated."
        ),
    ] = None,
    cascade: Annotated[bool, typer.Option("--cascade", help="Delete a Mesh together with everything in it.")] = False,
    preflight: Preflighted = None,
    wait: Wait = False,
    timeout: Timeout = TIMEOUT,
    output: TextOutput = TextFormat.TEXT,
    api: ApiConnection,
) -> None:
    """Delete a resource, or all resources in some files."""
    patience, keys, written = duration(timeout), _to_delete(type_, name, mesh, file), WrittenResources()
    report = WriteReport(output)
    with api.client() as client:
        for key in sorted(keys, key=lambda key: key.type == "Mesh"):
            parameters = {"cascade": "true"} if cascade and key.type == "Mesh" else {}
            result = client.delete(path_of(key, type_of(key.type)), preflight=preflight, **parameters)
            _warn({"warnings": result.warnings})
            written.add(key, result.revision)
            written.note(result.preflight)
            report.add(key, "Deleted", f'deleted {key.type} "{key.name}"')
        finish_write(client, written, report, patience if wait else None)


def _to_delete(type_: str | None, name: str | None, mesh: str, file: Sequence[str] | None) -> list[Key]:
    if file and type_ is None:
        return [file_document.document.key for file_document in valid_documents(file, [])]
    if file or type_ is None or name is None:
        raise Problem("name the resource with TYPE and NAME, or give -f FILE", status=2)
    kind = type_of(type_)
    return [Key(kind.name, "" if kind.is_global else mesh, name)]


def valid_documents(file: Sequence[str], variables: Sequence[str]) -> list[FileDocument]:
    """The documents of some files, all of which are valid."""
    documents, report = file_documents(file_texts(file, variables), known_kinds())
    print_findings(findings_before_write(report))
    if not report.is_valid:
        raise Problem("nothing was changed because of the errors above")
    if not documents:
        raise Problem(f"there is no resource in {', '.join(file)}")
    return documents


@dataclass(frozen=True, slots=True)
class Push:
    """The name under which files are applied, if there is one."""

    managed_by: str = ""
    prunes: bool = False
    """Whether what carries the name and is not in the files is deleted."""

    preflight: bool | None = None
    """Whether an Envoy is shown first what it comes to; None: as the control plane does."""

    @classmethod
    def of(cls, managed_by: str, *, prunes: bool, preflight: bool | None = None) -> Push:
        """The push that a command line asks for."""
        if prunes and not managed_by:
            hint = "Add --managed-by NAME: what carries that name and is not in the files is deleted, and nothing else."
            raise Problem("--prune has to know whose resources these are", hint, status=2)
        return cls(managed_by, prunes, preflight)


_NAMELESS: Final = Push()


def applied(
    client: Client, documents: Sequence[FileDocument], written: WrittenResources, push: Push = _NAMELESS
) -> Iterator[tuple[Key, str]]:
    """Write documents in one request, or in several if they are too large for one."""
    for part in parts(documents, push):
        texts = [(file_document.text, file_document.location) for file_document in part]
        result = client.apply(texts, managed_by=push.managed_by, prune=push.prunes, preflight=push.preflight)
        written.note(result.preflight)
        for outcome in result.outcomes:
            key = _key(outcome)
            written.add(key, None if outcome["outcome"] in _AS_BEFORE else result.revision)
            _warn(outcome)
            yield key, outcome["outcome"]


def parts(documents: Sequence[FileDocument], push: Push = _NAMELESS) -> Iterator[Sequence[FileDocument]]:
    """Requests that are not too large. Only who sees all can tell what is no longer there, so then it is one."""
    if push.prunes:
        yield documents
        return
    part: list[FileDocument] = []
    size = 0
    for file_document in documents:
        if part and size + len(file_document.text) > _AT_ONCE:
            yield part
            part, size = [], 0
        part.append(file_document)
        size += len(file_document.text)
    yield part


def would_be_applied(
    client: Client, documents: Sequence[FileDocument], push: Push = _NAMELESS
) -> Iterator[tuple[Key, str]]:
    """The outcomes that a write would have. Each request repeats the Meshes of earlier ones, which are not stored."""
    meshes: list[FileDocument] = []
    for part in parts(documents, push):
        texts = [(file_document.text, file_document.location) for file_document in (*meshes, *part)]
        result = client.apply(texts, dry_run=True, managed_by=push.managed_by, prune=push.prunes)
        for outcome in result.outcomes[len(meshes) :]:
            _warn(outcome)
            yield _key(outcome), outcome["outcome"]
        meshes += [file_document for file_document in part if file_document.document.key.type == "Mesh"]


def _warn(outcome: Mapping[str, Any]) -> None:
    for warning in outcome.get("warnings", ()):
        typer.echo(printable(f"Warning: {warning}"), err=True)


def _key(outcome: Mapping[str, Any]) -> Key:
    return Key(outcome["type"], outcome.get("mesh", ""), outcome["name"])

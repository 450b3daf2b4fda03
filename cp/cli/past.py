"""`koguma history`, `koguma diff` and `koguma rollback`: what was, what is different, and the way back."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from cp.cli import envoys
from cp.cli.connection import ApiConnection
from cp.cli.options import Mesh, Output, OutputFormat, TableFormat, TableOutput, TextFormat, TextOutput
from cp.cli.output import as_yaml, brief, print_data, warn_of
from cp.cli.preflight import Preflighted, must_be_write
from cp.cli.tables import table_or
from cp.cli.types import kind_of
from cp.cli.waiting import TIMEOUT, Timeout, Wait, WrittenResources, duration
from cp.cli.write_report import WriteReport, finish_write
from cp.client.client import Client
from cp.client.problem import Problem
from cp.model.names import DEFAULT_MESH, Key
from cp.model.wording import printable

Data = Mapping[str, Any]

_NOTHING: Final = "(none)"
_SECONDS: Final = len("2026-01-31T12:30:15")
_PARAMETERS: Final = ("from", "to", "mesh")
_ROLLOUT: Final = "Rollout"
_LEFT_OUT: Final = ("leftOut", "stepsLeftOut")
_DATAPLANE: Final = frozenset({"dataplane", "dataplanes", "Dataplane"})

Type = Annotated[str | None, typer.Argument(metavar="TYPE", help="The type of one resource, with its NAME.")]
Name = Annotated[str | None, typer.Argument(metavar="NAME", help="The name of one resource.")]
Size = Annotated[int, typer.Option("--size", min=1, max=1000, help="The number of changes to show.")]
Before = Annotated[
    int | None, typer.Option("--before", metavar="REVISION", min=0, help="Show only what came before this revision.")
]
Registrations = Annotated[
    bool,
    typer.Option("--registrations", help="Also show the registrations by which proxies came, became ready and went."),
]
From = Annotated[
    str,
    typer.Argument(metavar="REVISION|dataplane", help="The revision to compare with, or a proxy to look into."),
]
To = Annotated[
    str | None,
    typer.Argument(
        metavar="REVISION|NAME", help="The revision that is compared, or the name of the proxy.", show_default="now"
    ),
]
Proxies = Annotated[
    bool, typer.Option("--proxies", help="Show what proxies would be served, in place of what resources say.")
]
OneMesh = Annotated[str, typer.Option("--mesh", "-m", help="Only this mesh. Default: all meshes.", show_default=False)]
Back = Annotated[int, typer.Argument(metavar="REVISION", min=0, help="The revision to which to go back.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="TYPE[/NAME]", help="Only resources of this type, or only this resource. May be repeated."
    ),
]
MeshOfDiff = Annotated[
    str,
    typer.Option(
        "--mesh",
        "-m",
        help="Only this mesh. Default: all meshes; with `dataplane`, the mesh of the proxy: default.",
        show_default=False,
    ),
]
DeleteMeshes = Annotated[bool, typer.Option("--delete-meshes", help="Delete also Meshes that were made since.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]


def history(  # noqa: PLR0913  # an option each
    type_: Type = None,
    name: Name = None,
    *,
    mesh: Mesh = DEFAULT_MESH,
    size: Size = 50,
    before: Before = None,
    registrations: Registrations = False,
    output: TableOutput = TableFormat.TABLE,
    api: ApiConnection,
) -> None:
    """Show who changed what, and when: of one resource, or of all. The newest change comes first.

    Registrations, by which proxies come, become ready and go, are left out unless you ask for them or name a resource.
    Tables leave out the steps of rollouts too, unless you name one.
    """
    if (type_ is None) != (name is None):
        raise Problem("a resource has a TYPE and a NAME", "Give both, or none for all resources.", status=2)
    parameters = {"size": str(size)} | ({} if before is None else {"before": str(before)})
    if type_ is not None and name is not None:
        kind = kind_of(type_)
        parameters |= {"type": kind.name, "mesh": "" if kind.is_global else mesh, "name": name}
    if type_ is None and not registrations:
        parameters["registrations"] = "false"
    if type_ is None and not output.is_data:
        parameters["rollouts"] = "false"
    with api.client() as client:
        page = _history_page(client, size, parameters)
    if output.is_data:
        print_data(page, output)
        return
    heads = ("REVISION", "TIME (UTC)", "AUTHOR", "BY", "CHANGE", "RESOURCE")
    rows, wide = map(_row, page["items"]), output is TableFormat.WIDE
    typer.echo(table_or("no change is remembered here", heads, rows, less=("BY", "AUTHOR"), wide=wide), nl=False)
    typer.echo(_end_of(page), err=True)


def _history_page(client: Client, size: int, parameters: Mapping[str, str]) -> Data:
    """So many changes, in as many answers as it takes: one is short where most of what was read is left out."""
    page = _part(client, parameters)
    items, counts = list(page["items"]), Counter(_left_out_of(page))
    while len(items) < size and page["next"] is not None and any(_left_out_of(page).values()):
        page = _part(client, {**parameters, "size": str(size - len(items)), "before": str(page["next"])})
        items, counts = [*items, *page["items"]], counts + Counter(_left_out_of(page))
    return {**page, "items": items, **{name: counts[name] for name in _LEFT_OUT}}


def _left_out_of(page: Data) -> Mapping[str, int]:
    """How many changes of each sort are left out; a control plane may be too old to know of one."""
    return {name: page.get(name, 0) for name in _LEFT_OUT}


def _part(client: Client, parameters: Mapping[str, str]) -> Data:
    return client.answer("/_history", ["items", "next", "oldest"], **parameters)


def diff(  # noqa: PLR0913  # an option each
    revision: From,
    other: To = None,
    *,
    proxies: Proxies = False,
    mesh: MeshOfDiff = "",
    output: Output = OutputFormat.TABLE,
    api: ApiConnection,
) -> None:
    """Show what is different since a revision, or between two: in resources, or in what proxies are served.

    What proxies are served is worked out for both revisions by this control plane. Certificates are not compared.
    `diff dataplane NAME` asks the Envoy of a proxy for its configuration, and shows where that is not what the proxy
    is served; it ends with status 1 if there is a difference.
    """
    if revision in _DATAPLANE:
        _diff_envoy(other, mesh or DEFAULT_MESH, output, api, proxies=proxies)
        return
    given = dict(zip(_PARAMETERS, (_revision_number(revision), _revision_number(other), mesh), strict=True))
    parameters = {name: value for name, value in given.items() if value}
    with api.client() as client:
        path, fields = ("/_diff/proxies", ["meshes"]) if proxies else ("/_diff", ["changes", "from", "to"])
        answer = client.answer(path, fields, **parameters)
    if output is not OutputFormat.TABLE:
        print_data(answer, output)
        return
    if not proxies:
        answer, meshes = _without_rollouts(answer)
        for rolled in meshes:
            note = f"left out: how far the rollout of mesh {rolled} has come (koguma rollout show)"
            typer.echo(printable(note), err=True)
    for line in _compared(answer) if proxies else _changed(answer):
        typer.echo(printable(line))  # whoever writes a policy names resources of Envoy
    warn_of("compared without what cannot be decrypted as it was", answer.get("unreadable", ()))


def _without_rollouts(answer: Data) -> tuple[Data, list[str]]:
    """The same without the progress of rollouts, which nobody wrote, and the meshes of these."""
    meshes = [change["mesh"] for change in answer["changes"] if change["type"] == _ROLLOUT]
    return {**answer, "changes": [change for change in answer["changes"] if change["type"] != _ROLLOUT]}, meshes


def _revision_number(text: str | None) -> str:
    """Raises `Problem` for what is no revision."""
    if text is not None and not (text.isascii() and text.isdecimal()):
        raise Problem(f"`{text}` is no revision", "Write a number, or dataplane with the NAME of one.", status=2)
    return text or ""


def _diff_envoy(name: str | None, mesh: str, output: OutputFormat, api: ApiConnection, *, proxies: bool) -> None:
    """Print where the Envoy of a proxy has something else than it should have."""
    if name is None or proxies:
        raise Problem("diff dataplane takes a NAME, and no --proxies", status=2)
    with api.client() as client:
        answer = client.answer(f"/meshes/{mesh}/dataplanes/{name}/_envoy/diff", ["compared", "differences"])
    if output is not OutputFormat.TABLE:
        print_data(answer, output)
    else:
        for line in envoys.differences(answer):
            typer.echo(printable(line))
    if answer["differences"]:
        raise typer.Exit(1)


def rollback(  # noqa: PLR0913  # an option each
    revision: Back,
    *,
    only: Only = None,
    mesh: OneMesh = "",
    delete_meshes: DeleteMeshes = False,
    dry_run: DryRun = False,
    preflight: Preflighted = None,
    wait: Wait = False,
    timeout: Timeout = TIMEOUT,
    output: TextOutput = TextFormat.TEXT,
    api: ApiConnection,
) -> None:
    """Bring resources back to how they were at a revision, in one write.

    What was made since is deleted, and what was deleted is there again. The Dataplanes of proxies that register
    themselves stay, and so do, unless --only names them, the Secrets that decide which tokens and certificates count.
    A Mesh that was made since is deleted only with --delete-meshes.
    A rollback is a write like any other: it is in the history, and can be rolled back.
    """
    if dry_run and wait:
        raise Problem("--wait cannot be combined with --dry-run, which changes nothing", status=2)
    must_be_write(preflight=preflight, dry_run=dry_run)
    choice = {"mesh": mesh, "only": list(map(_choice, only or ())), **({"deleteMeshes": True} if delete_meshes else {})}
    patience, written = duration(timeout), WrittenResources()
    with api.client() as client:
        answer, made = client.rollback(revision, choice, dry_run=dry_run, preflight=preflight)
        report = WriteReport(output, more={"rolledBackTo": answer["rolledBackTo"], "leftOut": answer["leftOut"]})
        for warning in answer.get("warnings", ()):
            typer.echo(printable(f"Warning: {warning}"), err=True)
        for resource, line in zip(answer["resources"], _rolled_back(answer, dry_run=dry_run), strict=True):
            written.add(_key(resource), made)
            report.add(_key(resource), resource["outcome"], line)
            for warning in resource.get("warnings", ()):
                typer.echo(printable(f"Warning: {warning}"), err=True)
        if not answer["resources"] and not report.is_data:
            typer.echo(_nothing_to_do(answer))
        for line in _left_out(answer["leftOut"]):
            typer.echo(line, err=True)
        written.note(answer.get("preflight"))
        finish_write(client, written, report, patience if wait else None)


def _row(change: Data) -> tuple[str, ...]:
    time = change["time"][:_SECONDS].replace("T", " ")
    author = change["author"] or "unknown"
    return str(change["revision"]), time, author, change["origin"], change["change"], str(_key(change))


def _end_of(page: Data) -> str:
    lines = []
    if count := page["leftOut"]:
        whose = f"{count} {'change' if count == 1 else 'changes'} of proxies that came or went"
        lines.append(f"{whose} left out: --registrations shows them.")
    if count := page["stepsLeftOut"]:
        steps = f"{count} {'step' if count == 1 else 'steps'} of rollouts"
        lines.append(f"{steps} left out: koguma history rollout latest, and -o json, show them.")
    return "\n".join([*lines, _further(page)])


def _further(page: Data) -> str:
    if page["next"] is not None:
        return f"koguma history with --before={page['next']} shows what came before."
    return f"The control plane remembers no more: revision {page['oldest']} is the oldest to go back to."


def _changed(answer: Data) -> Iterator[str]:
    """Each document that is different, as a difference of texts."""
    if not answer["changes"]:
        yield f"no resource is different between revisions {answer['from']} and {answer['to']}"
    for change in answer["changes"]:
        yield from _text_difference(change, answer)


def _text_difference(change: Data, answer: Data) -> Iterator[str]:
    key = _key(change)
    if change["change"] == "Unreadable":
        yield f"{key}: it cannot be decrypted, so it is not known what is different"
    elif change.get("inSecretsAlone"):
        yield f"{key}: only what is secret in it is different"
    elif "before" not in change and "after" not in change:
        yield f"{key}: {change['change']}, and of a type that this version does not know"
    else:
        (before, old), (after, new) = _side(change, "before", answer["from"]), _side(change, "after", answer["to"])
        yield from difflib.unified_diff(before, after, old, new, lineterm="")


def _side(change: Data, side: str, revision: int) -> tuple[list[str], str]:
    """The lines of a document at a revision, and their title."""
    if side not in change:
        return [], _NOTHING
    return as_yaml(change[side]).splitlines(), f"{_key(change)}, revision {revision}"


def _compared(answer: Data) -> Iterator[str]:
    for mesh in answer["meshes"]:
        yield from _of_mesh(mesh)
    if closed := answer.get("meshesNotTold"):
        yield f"not compared, as you may not look into it: {', '.join(closed)}"


def _of_mesh(mesh: Data) -> Iterator[str]:
    count = mesh["proxies"]
    yield f"mesh {mesh['mesh']}: {count} {'proxy' if count == 1 else 'proxies'} compared"
    sides = (
        ("new", mesh["added"]),
        ("gone", mesh["removed"]),
        ("not compared, by a fault of koguma", mesh.get("failed")),
    )
    for word, names in sides:
        if names:
            yield f"  {word}: {', '.join(names)}"
    if not mesh["differences"]:
        yield "  every one would be served the same bytes"
    for difference in mesh["differences"]:
        yield f"  {difference['type']} {difference['name']}, for {', '.join(difference['proxies'])}"
        for field in difference["fields"]:
            before, after = (brief(field.get(side, _NOTHING)) for side in ("before", "after"))
            yield f"    {field['path'] or 'as a whole'}: {before} → {after}"
        if "moreFields" in difference:
            yield f"    … and {difference['moreFields']} more fields, which are not told"


def _choice(text: str) -> Mapping[str, str]:
    kind, _, name = text.partition("/")
    return {"type": kind_of(kind).name, "name": name}


def _rolled_back(answer: Data, *, dry_run: bool) -> Iterator[str]:
    would_be = "would be " if dry_run else ""
    for resource in answer["resources"]:
        yield f"{_key(resource)} {would_be}{resource['outcome']}"


def _nothing_to_do(answer: Data) -> str:
    which = "all else" if answer["leftOut"] else "all of it"
    return f"nothing to do: {which} is as it was at revision {answer['rolledBackTo']}"


def _left_out(resources: Iterable[Data]) -> Iterator[str]:
    for resource in resources:
        yield f"Warning: {_key(resource)} stays as it is: {resource['reason']}"


def _key(resource: Data) -> Key:
    return Key(resource["type"], resource.get("mesh", ""), resource["name"])

"""`koguma plan`: what a change would do, before it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cp.agent.envoys import find as envoy_here
from cp.cli.connection import ApiConnection
from cp.cli.options import ManagedBy, Prune, Variables
from cp.cli.output import as_json
from cp.cli.planned import PlanStyle, as_markdown, as_text
from cp.cli.preflight import refused_count
from cp.cli.resources import Push, valid_documents
from cp.cli.tables import takes_colours, terminal_width
from cp.client.problem import Problem
from cp.model.wording import printable

CHANGES: Final = 3
"""The status with `--check` if something would change: 1 is an error, and 2 a wrong command line."""


class PlanFormat(StrEnum):
    """The formats of a plan."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


File = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE|DIR|-",
        help="What would be applied: a file, a folder, or - for standard input. May be repeated.",
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="DIR|REVISION", help="Where the change begins: files, without a control plane, or a revision."
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="DIR|REVISION", help="Where it ends. Default for a revision: now."),
]
Format = Annotated[PlanFormat, typer.Option("--output", "-o", help="The format of the output.")]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write the plan to this file; on the terminal there is one line."),
]
WithAll = Annotated[bool, typer.Option("--all", help="Show every proxy, resource and field; otherwise the first few.")]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help=f"End with status {CHANGES} if something would change, and 0 if nothing would. "
        "A rollout that is under way is named, and is no change.",
    ),
]
NoFindings = Annotated[
    bool, typer.Option("--no-findings", help="Leave out the findings of lint that would appear or vanish.")
]


Preflight = Annotated[
    bool, typer.Option("--preflight", help="Show an Envoy all that would be new to proxies, and print what it NACKs.")
]
EnvoyPath = Annotated[
    str | None,
    typer.Option(
        "--envoy-path",
        envvar=["KOGUMA_ENVOY"],
        metavar="FILE",
        help="The Envoy for --preflight between folders. Default: the one that koguma dp run would find.",
    ),
]


def plan(  # noqa: PLR0913  # an option each
    *,
    file: File = None,
    var: Variables = None,
    from_: From = None,
    to: To = None,
    managed_by: ManagedBy = "",
    prune: Prune = False,
    output: Format = PlanFormat.TEXT,
    out: OutFile = None,
    all_: WithAll = False,
    check: Check = False,
    no_findings: NoFindings = False,
    preflight: Preflight = False,
    envoy: EnvoyPath = None,
    api: ApiConnection,
) -> None:
    """Show what a change would do: which proxies it reaches, which fields of Envoy's configuration are different and
    where each value comes from, which connections end, and which findings appear or vanish. Nothing is changed.

    With --preflight an Envoy is shown what proxies would be served, and the status is 1 if it NACKs something: the
    Envoy of the control plane (KOGUMA_PREFLIGHT_ENVOY) or, between folders, one of this machine.
    """
    _must_be_whole(file, from_, to)
    push = Push.of(managed_by, prunes=prune, preflight=preflight)
    if from_ is not None and Path(from_).exists():
        path = envoy_here(envoy) if preflight else None
        data = _between_files(from_, str(to), var or [], path, with_findings=not no_findings)
    elif from_ is not None:
        if preflight:
            raise Problem("what is between two revisions has been served already", "Leave out --preflight.", status=2)
        data = _between_revisions(from_, to, api, with_findings=not no_findings)
    else:
        data = _of_files(file or [], var or [], push, api, with_findings=not no_findings)
    _show(data, output, out, with_all=all_)
    if "preflight" in data and refused_count(data["preflight"]):
        raise Problem("Envoy NACKs a part of the result")
    if check and not data["empty"]:
        raise typer.Exit(CHANGES)


def _must_be_whole(file: Sequence[str] | None, from_: str | None, to: str | None) -> None:
    if bool(file) == (from_ is not None) or (file and to):
        hint = "Give -f FILE for what would be applied, or --from and --to for folders or revisions."
        raise Problem(
            "a plan is of files that would be applied, or of the way from one state to another", hint, status=2
        )
    if from_ is not None and Path(from_).exists() and to is None:
        raise Problem(f"the way from {from_} has no end", "Add --to DIR.", status=2)


def _of_files(
    files: Sequence[str], variables: Sequence[str], push: Push, api: ApiConnection, *, with_findings: bool
) -> Mapping[str, Any]:
    """The plan of a control plane for what would be applied."""
    documents = valid_documents(files, variables)
    texts = [
        (file_document.text, file_document.location)
        for file_document in sorted(documents, key=lambda file_document: file_document.key.type != "Mesh")
    ]
    with api.client() as client:
        further = ({} if with_findings else {"findings": "false"}) | ({"preflight": "true"} if push.preflight else {})
        answer = client.plan(texts, managed_by=push.managed_by, prune=push.prunes, **further)
    warnings = [warning for outcome in answer["resources"] for warning in outcome.get("warnings", ())]
    for warning in warnings:
        typer.echo(printable(f"Warning: {warning}"), err=True)
    of_envoy = {"preflight": answer["preflight"]} if "preflight" in answer else {}
    return {
        **answer["plan"],
        **of_envoy,
        "unchanged": sum(resource["outcome"] == "Unchanged" for resource in answer["resources"]),
    }


def _between_revisions(from_: str, to: str | None, api: ApiConnection, *, with_findings: bool) -> Mapping[str, Any]:
    for text in (from_, to or "0"):
        if not (text.isascii() and text.isdigit()):
            raise Problem(f"{text} is neither a file or folder that is there nor the number of a revision", status=2)
    way = {"from": from_} | ({} if to is None else {"to": to}) | ({} if with_findings else {"findings": "false"})
    with api.client() as client:
        answer = client.answer("/_diff/plan", ["plan"], **way)
    plan: Mapping[str, Any] = answer["plan"]
    return plan


def _between_files(
    from_: str, to: str, variables: Sequence[str], envoy: Path | None, *, with_findings: bool
) -> Mapping[str, Any]:
    from cp.cli.offline_plan import offline_plan  # noqa: PLC0415  # it knows all of Envoy, which only files need here

    before, after = (valid_documents([files], variables) for files in (from_, to))
    return offline_plan(before, after, envoy, with_findings=with_findings)


def _show(data: Mapping[str, Any], output: PlanFormat, out: Path | None, *, with_all: bool) -> None:
    style = PlanStyle(with_all, None if out is not None else terminal_width(), takes_colours())
    texts = {PlanFormat.TEXT: as_text, PlanFormat.MARKDOWN: as_markdown}
    text = as_json(data) if output is PlanFormat.JSON else texts[output](data, style)
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text)
    except OSError as error:
        raise Problem(f"{out} cannot be written: {(error.strerror or str(error)).lower()}") from None
    typer.echo(as_text(data, PlanStyle()).partition("\n")[0])

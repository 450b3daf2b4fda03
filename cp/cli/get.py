"""`koguma get`: resources of a running control plane. It imports little: people wait for it often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import parse_qs, urlsplit

import typer

from cp.cli.columns import listed, listing
from cp.cli.connection import ApiConnection
from cp.cli.options import At, Mesh, ResourceName, TableFormat, TableOutput, Watch
from cp.cli.output import as_yaml, print_data, warn_of
from cp.cli.type_names import TypeNames
from cp.cli.types import folder_of, path_of, type_of
from cp.client.problem import Problem
from cp.model.names import DEFAULT_MESH, Key

if TYPE_CHECKING:
    from cp.client.client import Client

_DATAPLANE: Final = "Dataplane"

Type = Annotated[str, typer.Argument(metavar="TYPE", help="A type of resource: meshtimeouts, MeshTimeout or mt.")]


def get(  # noqa: PLR0913  # an option each
    type_: Type,
    name: ResourceName = None,
    *,
    mesh: Mesh = DEFAULT_MESH,
    output: TableOutput = TableFormat.TABLE,
    size: Annotated[
        int | None, typer.Option(help="The largest number of resources to show. Default: 100.", min=1, max=1000)
    ] = None,
    offset: Annotated[
        str | None, typer.Option(help="Where the page starts: the offset that the last page printed.")
    ] = None,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Show what is secret in one resource. Only administrators may.")
    ] = False,
    at: At = None,
    watch: Watch = False,
    api: ApiConnection,
) -> None:
    """Show the resources of a type, or one of them."""
    if reveal and name is None:
        raise Problem("--reveal is for one resource", "Add its NAME.", status=2)
    if watch and at is not None:
        raise Problem("--watch cannot be combined with --at, as the past does not change", status=2)
    page = {"size": None if size is None else str(size), "offset": offset} if name is None else {}
    parameters = {parameter: value for parameter, value in page.items() if value is not None}
    question = _ResourceQuestion(
        type_of(type_), mesh, name, output, parameters | ({"reveal": "true"} if reveal else {}), at
    )
    with api.client() as client:
        if watch:
            _watch(client, question)
            return
        answer = question.answer(client)
    if name is None:
        warn_of("not shown, as they cannot be decrypted as they were then", answer.get("unreadable", ()))
    if output.is_data:
        _print_data(answer, output, is_list=name is None)
    else:
        typer.echo(question.table(answer), nl=False)


def _watch(client: Client, question: _ResourceQuestion) -> None:
    from cp.cli.watching import WatchedQuestion, watch_answers  # noqa: PLC0415  # few watch

    watch_answers(client, WatchedQuestion(lambda: question.answer(client), question.table), question.output)


@dataclass(frozen=True, slots=True)
class _ResourceQuestion:
    """The resources of a type, or one of them."""

    kind: TypeNames
    mesh: str
    name: str | None
    output: TableFormat
    parameters: Mapping[str, str]
    at: int | None

    @property
    def _with_status(self) -> bool:
        return self.kind.name == _DATAPLANE and not self.output.is_data and self.at is None

    def answer(self, client: Client) -> Any:
        of_past = {} if self.at is None else {"at": str(self.at)}
        path = folder_of(self.kind, self.mesh)
        if self.name is None and self.output.is_data and not self.parameters:
            return client.all_pages(path, **of_past)
        path = path if self.name is None else path_of(Key(self.kind.name, self.mesh, self.name), self.kind)
        fields = ["items", "next"] if self.name is None else ["type", "name"]
        return client.answer(f"{path}/_overview" if self._with_status else path, fields, **self.parameters, **of_past)

    def table(self, answer: Mapping[str, Any]) -> str:
        items = answer["items"] if self.name is None else [answer]
        shown = [listed(item) for item in items] if self._with_status else items
        text = listing(self.kind, shown, wide=self.output is TableFormat.WIDE)
        next_page = answer.get("next") if self.name is None else None
        return f"{text}\n{_next_page_hint(next_page)}\n" if next_page else text


def _print_data(answer: Any, output: TableFormat, *, is_list: bool) -> None:
    """Print resources. A YAML list has a document for each, so that it can be applied; JSON is the API's answer."""
    if not is_list or output is not TableFormat.YAML:
        print_data(answer, output)
        return
    typer.echo("---\n".join(map(as_yaml, answer["items"])), nl=False)
    if answer["next"]:
        typer.echo(_next_page_hint(answer["next"]), err=True)


def _next_page_hint(link: str) -> str:
    offset = parse_qs(urlsplit(link).query)["offset"][0]
    return f"Rerun command with --offset={offset} argument to retrieve more resources"

"""`koguma explain`: why a call of a proxy goes where it goes, from files or from a running control plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from cp.cli.client import connect
from cp.cli.explained import lines
from cp.cli.options import ADDRESS, Address, Format, Mesh, Offline, Output, Variables
from cp.cli.output import print_data
from cp.cli.problem import Problem
from cp.cli.render import found, world_of
from cp.explain import Unclear, asked
from cp.explain import explain as explained
from cp.model.source import DEFAULT_MESH
from cp.pipeline import Compiler
from cp.policies import discover
from cp.simulate import Unsimulated

Dataplane = Annotated[str, typer.Argument(metavar="DATAPLANE", help="The proxy of the caller, by its Dataplane.")]
Call = Annotated[
    str, typer.Argument(metavar="CALL", help="The call: 'GET http://backend:80/path', or as short as 'backend/path'.")
]
Headers = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="A header of the call, as for curl.")
]


def explain(  # noqa: PLR0913  # an option each
    dataplane: Dataplane,
    call: Call,
    *,
    header: Headers = None,
    mesh: Mesh = DEFAULT_MESH,
    file: Offline = None,
    var: Variables = None,
    output: Output = Format.TABLE,
    address: Address = ADDRESS,
) -> None:
    """Explain a call: its route and why, each value that holds and who set it, both sides' limits."""
    headers = header or []
    if file:
        data = _offline(dataplane, call, headers, mesh, world_of(file, var or []))
    else:
        data = _asked(dataplane, call, headers, mesh, address)
    if output is not Format.TABLE:
        print_data(data, output)
        return
    console = Console(highlight=False, soft_wrap=True)
    for text, style in lines(data):
        console.print(Text(text, style))


def _asked(dataplane: str, call: str, headers: Sequence[str], mesh: str, address: str) -> Any:
    with connect(address) as client:
        return client.get(f"/meshes/{mesh}/dataplanes/{dataplane}/_explain", call=call, header=list(headers))


def _offline(dataplane: str, call: str, headers: Sequence[str], mesh: str, world: Any) -> Any:
    try:
        question = asked(call, tuple(headers))
        policies = discover()
        return explained(Compiler(policies), policies, world, found(world, mesh, dataplane), question).as_json()
    except Unclear as unclear:
        raise Problem(unclear.message, _sentence(unclear.hint)) from None
    except Unsimulated as why:
        raise Problem(f"what Envoy does with this call cannot be told: {why}") from None


def _sentence(hint: str) -> str:
    return f"{hint[0].upper()}{hint[1:]}." if hint else ""

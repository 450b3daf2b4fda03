"""`koguma explain`: the route of a call and why it takes it, from files or from a running control plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from cp.cli.connection import ApiConnection
from cp.cli.explained import lines
from cp.cli.options import Mesh, Offline, TableFormat, TableOutput, Variables
from cp.cli.output import print_data
from cp.cli.tables import terminal_width
from cp.cli.text_sections import TextWidth
from cp.cli.worlds import dataplane_named, world_of
from cp.client.problem import Problem
from cp.model.names import DEFAULT_MESH, Key
from cp.model.wording import printable
from cp.policies import discover
from cp.resources.world import World

_WIDE: Final = 160
"""The width of an explanation that is not printed to a terminal."""

_WHOLE: Final = 10_000
"""More than any explanation needs."""

Dataplane = Annotated[
    str, typer.Argument(metavar="DATAPLANE", help="The name of the caller's Dataplane, or of a MeshGateway.")
]
Call = Annotated[
    str,
    typer.Argument(
        metavar="CALL",
        help="The call: 'GET http://backend:80/path', or in short 'backend/path'; at a gateway 'https://shop.example/path'.",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="A header of the call, as for curl. May be repeated."),
]


def explain(  # noqa: PLR0913  # an option each
    dataplane: Dataplane,
    call: Call,
    *,
    header: Headers = None,
    mesh: Mesh = DEFAULT_MESH,
    file: Offline = None,
    var: Variables = None,
    output: TableOutput = TableFormat.TABLE,
    api: ApiConnection,
) -> None:
    """Explain a call: its route and why, the values in force and who set them, and the limits of both sides."""
    headers = header or []
    if file:
        data = _offline(dataplane, call, headers, mesh, world_of(file, var or []))
    else:
        data = _online(dataplane, call, headers, mesh, api)
    if output.is_data:
        print_data(data, output)
        return
    _print(data, TextWidth(_WHOLE) if output is TableFormat.WIDE else _width())


def _width() -> TextWidth:
    columns = terminal_width()
    return TextWidth(_WIDE) if columns is None else TextWidth(columns, cuts=True)


def _print(data: Any, width: TextWidth) -> None:
    from rich.console import Console  # noqa: PLC0415  # styles are for a reader, and slow to load
    from rich.text import Text  # noqa: PLC0415  # the same

    console = Console(highlight=False, soft_wrap=True)
    for text, style in lines(data, width):
        console.print(Text(printable(text), style))  # whoever writes policies names files and matches


def _online(dataplane: str, call: str, headers: Sequence[str], mesh: str, api: ApiConnection) -> Any:
    with api.client() as client:
        return client.get(f"/meshes/{mesh}/dataplanes/{dataplane}/_explain", call=call, header=list(headers))


def _offline(dataplane: str, call: str, headers: Sequence[str], mesh: str, world: World) -> Any:
    from cp.insight.explain import AmbiguousCall, parse_call, proxy_of_gateway  # noqa: PLC0415  # it knows all of Envoy, which only files need here
    from cp.insight.explain import explain as explained  # noqa: PLC0415  # the same
    from cp.insight.simulate import UnsimulatedFeature  # noqa: PLC0415  # the same
    from cp.translate.compiler import Compiler  # noqa: PLC0415  # the same

    policies = discover()
    try:
        question = parse_call(call, tuple(headers))
        proxy = world.get(Key("Dataplane", mesh, dataplane)) or proxy_of_gateway(world, mesh, dataplane)
        proxy = proxy or dataplane_named(world, mesh, dataplane)
        return explained(Compiler(policies), policies, world, proxy, question).as_json()
    except AmbiguousCall as unclear:
        raise Problem(unclear.message, _sentence(unclear.hint)) from None
    except UnsimulatedFeature as why:
        raise Problem(f"what Envoy does with this call cannot be told: {why}") from None


def _sentence(hint: str) -> str:
    return f"{hint[0].upper()}{hint[1:]}." if hint else ""

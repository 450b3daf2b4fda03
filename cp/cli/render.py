"""`koguma render`: what a proxy is served, from a running control plane, or would be, worked out from files alone."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from cp.cli import envoys
from cp.cli.connection import ApiConnection
from cp.cli.findings import print_findings
from cp.cli.options import DataFormat, DataOutput, Mesh, Offline, Variables
from cp.cli.output import print_data
from cp.cli.types import folder_of, kind_of
from cp.cli.worlds import dataplane_named, world_of
from cp.client.problem import Problem
from cp.model.envoy_questions import DUMPED_TYPES
from cp.model.names import DEFAULT_MESH
from cp.model.wording import printable
from cp.policies import discover
from cp.translate.packing import SHORT


class ResourceType(StrEnum):
    """A type of Envoy resource."""

    LISTENERS = "listeners"
    ROUTES = "routes"
    CLUSTERS = "clusters"
    ENDPOINTS = "endpoints"
    SECRETS = "secrets"
    RUNTIME = "runtime"


def render(  # noqa: PLR0913  # an option each
    dataplane: Annotated[str, typer.Argument(metavar="DATAPLANE", help="The name of the proxy's Dataplane.")],
    *,
    file: Offline = None,
    mesh: Mesh = DEFAULT_MESH,
    var: Variables = None,
    type_: Annotated[ResourceType | None, typer.Option("--type", help="Show only this type of Envoy resource.")] = None,
    from_envoy: Annotated[
        bool, typer.Option("--from-envoy", help="Show what the proxy's Envoy says that it has, as it writes it.")
    ] = False,
    output: DataOutput = DataFormat.YAML,
    api: ApiConnection,
) -> None:
    """Show the Envoy configuration of a proxy: as the control plane serves it now, or as files would produce it.

    Invalid resources in files are reported and left out, and so are listeners of a builtin gateway that are not served.
    """
    if from_envoy:
        if file or type_ is ResourceType.RUNTIME:
            raise Problem("--from-envoy shows no files, and no runtime: Envoy does not tell it", status=2)
        data = _of_envoy(dataplane, mesh, api, type_)
    else:
        data = _offline(dataplane, mesh, file, var or []) if file else _online(dataplane, mesh, api)
    print_data(data if type_ is None else data.get(type_.value, {}), output)


def _online(dataplane: str, mesh: str, api: ApiConnection) -> dict[str, Any]:
    with api.client() as client:
        answer = client.answer(f"{folder_of(kind_of('Dataplane'), mesh)}/{dataplane}/_config", ["xds"])
    for warning in answer.get("warnings", ()):
        typer.echo(printable(f"Warning: {warning}"), err=True)
    return {SHORT[type_url]: resources for type_url, resources in answer["xds"].items() if resources}


def _of_envoy(dataplane: str, mesh: str, api: ApiConnection, type_: ResourceType | None) -> dict[str, Any]:
    """What an Envoy has, asked for type by type, as all of it may be too much for one answer."""
    path = f"{folder_of(kind_of('Dataplane'), mesh)}/{dataplane}/_envoy/config_dump"
    types = list(DUMPED_TYPES) if type_ is None else [type_.value]
    with api.client() as client:
        return {type_name: envoys.from_dump(client.answer(path, [], type=type_name), type_name) for type_name in types}


def _offline(dataplane: str, mesh: str, files: Sequence[str], variables: Sequence[str]) -> dict[str, Any]:
    from cp.api.envoy_json import as_data, short_names  # noqa: PLC0415  # it knows all of Envoy, for files alone
    from cp.insight.lint import of_gateway  # noqa: PLC0415  # the same
    from cp.translate.compiler import Compiler  # noqa: PLC0415  # the same

    world = world_of(files, variables)
    proxy = dataplane_named(world, mesh, dataplane)
    print_findings(finding for finding in world.findings_of(proxy.key) if finding.code == "not-enforced")
    print_findings(of_gateway(world, proxy))
    return short_names(as_data(Compiler(discover()).snapshot(world, proxy)))

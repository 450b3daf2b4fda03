"""`koguma render`: what a proxy would be served, worked out from files alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from cp.api.envoy_json import as_data, short_names
from cp.cli.files import Piece, pieces, texts
from cp.cli.options import DataFormat, DataOutput, Files, Mesh, Variables
from cp.cli.output import print_data
from cp.cli.problem import Problem
from cp.cli.types import known
from cp.cli.validate import tell
from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import DEFAULT_MESH
from cp.pipeline import Compiler
from cp.policies import discover
from cp.resources.resource import Resource
from cp.resources.world import World


class ResourceType(StrEnum):
    """A type of Envoy resource."""

    LISTENERS = "listeners"
    ROUTES = "routes"
    CLUSTERS = "clusters"
    ENDPOINTS = "endpoints"
    SECRETS = "secrets"


def render(  # noqa: PLR0913  # an option each
    dataplane: Annotated[str, typer.Argument(metavar="DATAPLANE", help="The proxy's Dataplane, by its name.")],
    *,
    file: Files,
    mesh: Mesh = DEFAULT_MESH,
    var: Variables = None,
    type_: Annotated[ResourceType | None, typer.Option("--type", help="One type of resource only.")] = None,
    output: DataOutput = DataFormat.YAML,
) -> None:
    """Show the Envoy configuration of a proxy, offline. What is invalid is told, and left out."""
    world = world_of(file, var or [])
    proxy = found(world, mesh, dataplane)
    tell(one for one in world.findings_of(proxy.key) if one.code == "not-enforced")
    data = short_names(as_data(Compiler(discover()).snapshot(world, proxy)))
    print_data(data if type_ is None else data.get(type_.value, {}), output)


def world_of(files: Sequence[str], variables: Sequence[str]) -> World:
    """The World of some files. As in a new control plane, there is a Mesh `default` if they have no Mesh."""
    pieces_, report = pieces(texts(files, variables), known())
    tell(report.errors)
    return assembled(pieces_)


def assembled(pieces_: Iterable[Piece]) -> World:
    """The World of some documents; what is invalid in them is not in it."""
    documents = {piece.document.key: piece.document for piece in pieces_}
    if not any(key.type == "Mesh" for key in documents):
        key = Key("Mesh", "", DEFAULT_MESH)
        documents[key] = Document(key, {"type": "Mesh", "name": DEFAULT_MESH})
    return World.of(documents.values(), known())


def found(world: World, mesh: str, name: str) -> Resource:
    """A Dataplane that was asked for."""
    dataplane = world.get(Key("Dataplane", mesh, name))
    if dataplane is None:
        known_names = ", ".join(resource.name for resource in world.table("Dataplane", mesh))
        hint = f"There is {known_names}." if known_names else "There is none in these files."
        raise Problem(f"there is no valid Dataplane {name} in mesh {mesh}", hint)
    return dataplane

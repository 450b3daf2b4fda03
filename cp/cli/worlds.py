"""Files from a command line to a World."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cp.cli.types import known
from cp.cli.validate import tell
from cp.client.files import FileDocument, pieces, texts
from cp.client.problem import Problem
from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import DEFAULT_MESH
from cp.resources.resource import Resource
from cp.resources.world import World


def world_of(files: Sequence[str], variables: Sequence[str]) -> World:
    """The World of some files. As in a new control plane, there is a Mesh `default` if they have no Mesh."""
    pieces_, report = pieces(texts(files, variables), known())
    tell(report.errors)
    return assembled(pieces_)


def assembled(pieces_: Iterable[FileDocument]) -> World:
    """The World of some documents; what is invalid in them is not in it."""
    documents = {piece.document.key: piece.document for piece in pieces_}
    if not any(key.type == "Mesh" for key in documents):
        key = Key("Mesh", "", DEFAULT_MESH)
        documents[key] = Document(key, {"type": "Mesh", "name": DEFAULT_MESH})
    return World.of(documents.values(), known())


def dataplane_named(world: World, mesh: str, name: str) -> Resource:
    """A Dataplane that was asked for."""
    dataplane = world.get(Key("Dataplane", mesh, name))
    if dataplane is None:
        known_names = ", ".join(resource.name for resource in world.table("Dataplane", mesh))
        hint = f"There is {known_names}." if known_names else "There is none in these files."
        raise Problem(f"there is no valid Dataplane {name} in mesh {mesh}", hint)
    return dataplane

"""The World of the files that a command line names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cp.cli.findings import print_findings
from cp.cli.types import known_kinds
from cp.client.files import FileDocument, file_documents, file_texts
from cp.client.problem import Problem
from cp.model.document import Document
from cp.model.names import DEFAULT_MESH, Key
from cp.policies import discover, kinds
from cp.resources.kinds import Kinds
from cp.resources.resource import Resource
from cp.resources.world import World


def world_of(files: Sequence[str], variables: Sequence[str]) -> World:
    """The World of some files. As in a new control plane, there is a Mesh `default` if they have no Mesh."""
    documents_of_files, report = file_documents(file_texts(files, variables), known_kinds())
    print_findings(report.errors)
    return assembled(documents_of_files)


def assembled(documents_of_files: Iterable[FileDocument]) -> World:
    """The World of some documents, without the invalid ones."""
    documents = {file_document.document.key: file_document.document for file_document in documents_of_files}
    if not any(key.type == "Mesh" for key in documents):
        key = Key("Mesh", "", DEFAULT_MESH)
        documents[key] = Document(key, {"type": "Mesh", "name": DEFAULT_MESH})
    return World.of(documents.values(), _kinds())


def _kinds() -> Kinds:
    """The kinds as a control plane with the settings of this environment has them."""
    from cp.settings import BadSettings, load  # noqa: PLC0415  # slow to load, and only needed here

    try:
        settings = load()
    except BadSettings as error:
        raise Problem("\n".join(error.faults)) from None
    return kinds(
        discover(),
        settings.policy_engine,
        derives_reachability=settings.auto_reachable_services,
        budget=settings.budget,
    )


def dataplane_named(world: World, mesh: str, name: str) -> Resource:
    """A Dataplane by its name. Raises `Problem` if there is none."""
    dataplane = world.get(Key("Dataplane", mesh, name))
    if dataplane is None:
        known_names = ", ".join(resource.name for resource in world.table("Dataplane", mesh))
        hint = f"There is {known_names}." if known_names else "There is none in these files."
        raise Problem(f"there is no valid Dataplane {name} in mesh {mesh}", hint)
    return dataplane

"""Whole meshes, read from files or from the HTTP API of a control plane, ours or Kuma's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from yaml import YAMLError

from cp.cli.output import as_yaml
from cp.cli.types import folder_of, known_kinds
from cp.client.client import Client
from cp.client.failures import NOT_FOUND, NoControlPlane, RequestRejected
from cp.client.files import FileDocument, FileText, file_documents
from cp.client.problem import Problem
from cp.insight.report import ValidationReport
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import is_own
from cp.model.source import read_documents
from cp.resources.engine import FIELD, Engine, names_engine
from cp.resources.kinds import Kind
from cp.resources.redaction import placeholders, source_references

_OF_ALL_MESHES: Final = frozenset({"HostnameGenerator"})
"""Global kinds that meshes need."""

_SECRET: Final = "Secret"  # noqa: S105  # a kind of resource
_WITH_AUTHORITIES: Final = frozenset({"Mesh", "MeshIdentity"})
_KEY: Final = re.compile(r"\.(key|privateKey)\.")
_IS_KEY: Final = "a key that signs is left where it is; --with-keys brings it"

_NAMED: Final = 5
_ASK_AS_ADMINISTRATOR: Final = "Ask with the token of an administrator, to whom it is shown, or read complete files."

_OF_LEGACY_ENGINE: Final = frozenset({"TrafficRoute", "TrafficPermission"})
"""Legacy policies that decide who may call an ExternalService."""

_TAKEN_FOR_LEGACY: Final = (
    f"names no {FIELD}, and Legacy is taken for it, as it has TrafficRoutes or TrafficPermissions: "
    "--engine takes another one"
)
_SEPARATOR: Final = re.compile(r"\n---\s*\Z")

_MOST_TEXT: Final = 256 << 20
_MOST_MESHES: Final = 1000
_ONE_BY_ONE: Final = "Name one mesh at a time."

_UNKNOWN: Final = "Koguma has no such type"
_UNTOLD: Final = "Koguma has no such type, and whether there is one was not shown"
_MOST_TYPES: Final = 1000

_SHOWN: Final = frozenset({"status"})
"""What a control plane tells of a resource beside the resource."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Documents that are not read, and why."""

    documents: str
    reason: str


@dataclass(frozen=True, slots=True)
class MeshFiles:
    """The documents that were read, with all that is to be said of them."""

    documents: tuple[FileDocument, ...]
    report: ValidationReport
    left_out: tuple[LeftOut, ...] = ()

    @property
    def hidden(self) -> tuple[Key, ...]:
        """Those of which something secret was not shown, so that nobody knows what they do."""
        documents = (file_document.document for file_document in self.documents)
        return tuple(document.key for document in documents if _is_hidden(document))


class _Item(NamedTuple):
    """A resource in the list of another control plane."""

    path: str
    key: Key
    data: dict[str, Any]


def read(texts: Sequence[FileText], mesh: str = "", *, with_keys: bool = True) -> MeshFiles:
    """The documents of some files: of one mesh, or of all. What is of unknown types is named and left out.

    So is, without keys, what a control plane signs with.
    """
    kinds = known_kinds()
    documents, report = file_documents(texts, kinds)
    known = [file_document for file_document in documents if file_document.key.type in kinds]
    unknown = Counter(file_document.key.type for file_document in documents if file_document.key.type not in kinds)
    in_meshes = [file_document for file_document in known if not mesh or _is_of(file_document, mesh)]
    keys_of_authorities = frozenset() if with_keys else frozenset(_keys_of_authorities(in_meshes))
    signing = [
        file_document
        for file_document in in_meshes
        if not with_keys and _signs(file_document.document, keys_of_authorities)
    ]
    chosen = tuple(file_document for file_document in in_meshes if file_document not in signing)
    keys = {file_document.key for file_document in chosen}
    findings = tuple(finding for finding in report.findings if finding.resource is None or finding.resource in keys)
    left_out = (
        *(LeftOut(f"{count} {kind}", _UNKNOWN) for kind, count in unknown.items()),
        *(LeftOut(str(file_document.key), _IS_KEY) for file_document in signing),
    )
    report = ValidationReport(tuple(file_document.document for file_document in chosen), findings)
    return MeshFiles(chosen, report, left_out)


def with_engines(files: MeshFiles, engine: Engine | None) -> tuple[MeshFiles, Sequence[str]]:
    """The same with an engine for each Mesh that names none, and what is to be said of those for which one was taken.

    Kuma has no such field: there legacy routes withhold what is outside a mesh from whom no permission names.
    """
    keys = [file_document.key for file_document in files.documents]
    judged = {key.mesh for key in keys if key.type in _OF_LEGACY_ENGINE}
    taken: dict[str, Engine] = {}
    for document in (file_document.document for file_document in files.documents):
        chosen = engine or ("Legacy" if document.key.name in judged else None)
        if document.key.type == "Mesh" and chosen is not None and not names_engine(document.data):
            taken[document.key.name] = chosen
    documents = tuple(
        with_fields(file_document, {FIELD: taken[file_document.key.name]})
        if file_document.key.type == "Mesh" and file_document.key.name in taken
        else file_document
        for file_document in files.documents
    )
    notes = [] if engine is not None else [f"Mesh {name} {_TAKEN_FOR_LEGACY}" for name in taken]
    return replace(files, documents=documents), notes


def with_fields(file_document: FileDocument, fields: Mapping[str, Any]) -> FileDocument:
    """A document with other fields beside its own. Its own stay on their lines where that can be written."""
    document = replace(file_document.document, data={**file_document.document.data, **fields})
    added = f"{_SEPARATOR.sub('', file_document.text.rstrip())}\n{as_yaml(dict(fields))}"
    reading = read_documents(added)
    is_same = not reading.findings and [parsed.data for parsed in reading.documents] == [document.data]
    return FileDocument(document, added if is_same else as_yaml(dict(document.data)))


def _is_hidden(document: Document) -> bool:
    kind = known_kinds().get(document.key.type)
    return kind is not None and any(placeholders(kind, document.data))


def _keys_of_authorities(documents: Iterable[FileDocument]) -> Iterator[Key]:
    """The Secrets with the keys of authorities that somebody provided, as a Mesh or a MeshIdentity names them."""
    for document in (file_document.document for file_document in documents):
        if document.key.type in _WITH_AUTHORITIES:
            mesh = document.key.mesh or document.key.name
            references = source_references(known_kinds()[document.key.type], document.data)
            yield from (Key(_SECRET, mesh, reference.named) for reference in references if _KEY.search(reference.path))


def _signs(document: Document, keys_of_authorities: AbstractSet[Key]) -> bool:
    """Whether it is what a control plane signs with, or is for all meshes and may be that."""
    return document.key.type == "GlobalSecret" or is_own(document) or document.key in keys_of_authorities


def _is_of(document: FileDocument, mesh: str) -> bool:
    key = document.document.key
    return mesh == (key.name if key.type == "Mesh" else key.mesh) or key.type in _OF_ALL_MESHES


def texts_of(client: Client, mesh: str = "", *, with_keys: bool = False) -> Iterator[FileText]:
    """All resources of one mesh, or of all meshes, that a control plane has. Types that it does not know are none.

    What is secret in them is asked for, which administrators may see; of what a control plane signs with only if it is
    wanted.
    """
    left = _MOST_TEXT
    for item in _items_of(client, mesh):
        text = _revealed(client, item, with_keys=with_keys)
        left -= len(text.text)
        if left < 0:
            raise Problem(f"{client.address} has more than {_MOST_TEXT >> 20} MiB of resources", _ONE_BY_ONE)
        yield text


def _items_of(client: Client, mesh: str) -> Iterator[_Item]:
    meshes = [client.get(f"/meshes/{_in_path(mesh)}")] if mesh else _list(client, "/meshes")
    if len(meshes) > _MOST_MESHES:
        raise Problem(f"{client.address} has more than {_MOST_MESHES} meshes", _ONE_BY_ONE)
    yield from _texts(client, known_kinds()["Mesh"], "", meshes)
    if mesh and meshes[0]["name"] != mesh:
        raise NoControlPlane(client.address, f"/meshes/{mesh}", "is another Mesh")
    kinds = [kind for kind in known_kinds().values() if not kind.is_global]
    for name in [item["name"] for item in meshes]:
        for kind in kinds:
            yield from _of_kind(client, kind, name)
    for kind in (known_kinds()[name] for name in sorted(_OF_ALL_MESHES)):
        yield from _of_kind(client, kind, "")


def _of_kind(client: Client, kind: Kind, mesh: str) -> Iterator[_Item]:
    yield from _texts(client, kind, mesh, _list(client, folder_of(kind, _in_path(mesh))))


def _texts(client: Client, kind: Kind, mesh: str, items: Sequence[Any]) -> Iterator[_Item]:
    path = folder_of(kind, _in_path(mesh))
    for item in items:
        if not _is_asked_for(item, kind, mesh):
            raise NoControlPlane(client.address, path, f"has something in it that is no {kind.name} of its own")
        yield _Item(f"{path}/{_in_path(item['name'])}", Key(kind.name, mesh, item["name"]), item)


def _revealed(client: Client, item: _Item, *, with_keys: bool) -> FileText:
    """An item with what is secret in it. If it is not shown to us the item says so."""
    data = item.data
    document = Document(item.key, data)
    if _is_hidden(document) and (with_keys or not is_own(document)):
        with suppress(RequestRejected):
            shown = client.get(item.path, reveal="true")
            data = shown if isinstance(shown, dict) and _name_of(shown) == _name_of(data) else data
    written = {name: value for name, value in data.items() if name not in _SHOWN}
    return FileText(f"{client.address}{item.path}", _as_text(client, item.path, written))


def _name_of(item: Mapping[str, Any]) -> tuple[Any, ...]:
    return item.get("type"), item.get("mesh"), item.get("name")


def _is_asked_for(item: Any, kind: Kind, mesh: str) -> bool:
    """Whether it is of the type and the mesh that were asked for: rights are given by these."""
    if not isinstance(item, dict) or item.get("type") != kind.name or "apiVersion" in item:
        return False
    is_of_mesh = kind.is_global or item.get("mesh") == mesh
    return is_of_mesh and isinstance(item.get("name"), str) and item["name"] != ""


def _as_text(client: Client, path: str, data: dict[str, Any]) -> str:
    try:
        text = as_yaml(data)
        text.encode()
    except (ValueError, RecursionError, YAMLError):
        raise NoControlPlane(client.address, path, "has something in it that no document can have") from None
    return text


def of_unknown_types(client: Client, mesh: str = "") -> Iterator[LeftOut]:
    """What a control plane has of types that Koguma does not know, in one mesh or in all, and for all meshes.

    An older control plane does not tell its types.
    """
    for name, path, is_global in islice(_unknown_types(client), _MOST_TYPES):
        folder = _in_path(path) if is_global or not mesh else f"meshes/{_in_path(mesh)}/{_in_path(path)}"
        try:
            answer = client.get(f"/{folder}", size="1")
        except RequestRejected as error:
            if error.status_code != NOT_FOUND:
                yield LeftOut(name, _UNTOLD)
            continue
        total = answer.get("total") if isinstance(answer, dict) else None
        if isinstance(total, int) and total > 0:
            yield LeftOut(f"{total} {name}", _UNKNOWN)


def _unknown_types(client: Client) -> Iterator[tuple[str, str, bool]]:
    """Types of another control plane that can be written there: the name, the plural, and whether it is in no mesh."""
    answer: Any = None
    with suppress(RequestRejected):
        answer = client.get("/_resources")
    types = answer.get("resources") if isinstance(answer, dict) else None
    for described in types if isinstance(types, list) else ():
        if not isinstance(described, dict) or described.get("readOnly"):
            continue
        name, path = described.get("name"), described.get("path")
        if isinstance(name, str) and isinstance(path, str) and path and name not in known_kinds():
            yield name, path, described.get("scope") == "Global"


def _in_path(name: str) -> str:
    return quote(name, safe="", errors="replace")


def _list(client: Client, path: str) -> list[dict[str, Any]]:
    try:
        items: list[dict[str, Any]] = client.all_pages(path)["items"]
    except RequestRejected as error:
        if error.status_code == NOT_FOUND:
            return []
        raise
    return items


def must_be_shown(files: MeshFiles, consequence: str) -> None:
    """Raises `Problem` if something secret was not shown: of such a mesh nothing can be said."""
    if hidden := files.hidden:
        named = ", ".join(map(str, hidden[:_NAMED])) + (f" and {len(hidden) - _NAMED} more" * (len(hidden) > _NAMED))
        raise Problem(f"{consequence}: what is secret was not shown in {named}", _ASK_AS_ADMINISTRATOR)

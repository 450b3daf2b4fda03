"""What is pushed under a name: who else pushes it, and what is no longer pushed and goes.

See record 0082.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cp.api.errors import bad_request
from cp.model.document import Document
from cp.model.managed import MANAGED_BY, manager
from cp.model.names import Key
from cp.model.paths import entry
from cp.model.registration import is_registered
from cp.model.violation import Finding, Severity, Violation
from cp.resources.labels import is_value
from cp.resources.parse import finding
from cp.store.port import Delete, Stored

_FIELD: Final = "managedBy"
_MESH: Final = "Mesh"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What is stored under a name and no longer pushed under it."""

    deleted: tuple[Stored, ...] = ()
    kept: tuple[Key, ...] = ()
    """Meshes, with which everything in them would go."""

    @property
    def keys(self) -> list[Key]:
        return [stored.document.key for stored in self.deleted]

    @property
    def writes(self) -> list[Delete]:
        """Whoever wrote one of them meanwhile, perhaps without the name, is not overruled."""
        return [Delete(stored.document.key, stored.revision) for stored in self.deleted]


def must_be_manager(name: str, title: str, *, prunes: bool) -> None:
    """Check a name under which documents are pushed; empty: under none. Raises `ApiError`."""
    if not is_value(name):
        hint = "use letters, digits, `-`, `_` and `.`, 63 at most"
        raise bad_request(_FIELD, "is written as a label and cannot be one", hint, title=title)
    if prunes and not name:
        hint = "name who pushes them (koguma apply --managed-by NAME): what carries that name and is not here goes"
        raise bad_request(_FIELD, "has to be set to prune", hint, title=title)


def managed_elsewhere(
    documents: Iterable[Document], stored_by_key: Mapping[Key, Stored], name: str
) -> Iterator[Finding]:
    """Documents that another one pushes, or that say so themselves: two who push one would undo each other's work."""
    for document in documents:
        stored = stored_by_key.get(document.key)
        known = "" if stored is None else manager(stored.document)
        if manager(document) not in {"", name}:
            hint = f"remove the label, or push it under `{manager(document)}`"
            violation = Violation("labels" + entry(MANAGED_BY), f"is another name than `{name}`", hint)
            yield finding(document, "invalid", Severity.ERROR, violation)
        elif known not in {"", name}:
            hint = "leave it to them or, to take it over, apply it once without a name (--managed-by)"
            yield finding(document, "invalid", Severity.ERROR, Violation("", f"is managed by `{known}`", hint))


def released(documents: Iterable[Document], stored_by_key: Mapping[Key, Stored]) -> Iterator[tuple[Key, str]]:
    """Documents that somebody managed until they were written without a name, and a warning for each."""
    for document in documents:
        stored = stored_by_key.get(document.key)
        if stored is not None and (name := manager(stored.document)) and not manager(document):
            yield document.key, f"{document.key} was managed by `{name}`, and is by nobody now ({MANAGED_BY})"


def leftovers(resources: Iterable[Stored], documents: Sequence[Document], name: str, title: str) -> Leftovers:
    """What carries the name and is not among the documents. Raises `ApiError` if that is everything.

    What a proxy registers is the proxy's, whatever labels it brings along.
    """
    pushed = {document.key for document in documents}
    written = [stored for stored in resources if not is_registered(stored.document)]
    managed = [stored for stored in written if manager(stored.document) == name]
    left = [stored for stored in managed if stored.document.key not in pushed]
    deleted = tuple(stored for stored in left if stored.document.key.type != _MESH)
    if deleted and len(left) == len(managed):
        detail = f"none of these resources is managed by `{name}` yet, and all {len(left)} that are would be deleted"
        hint = "are these the right files, and is it the right name? If so, apply them once without --prune"
        raise bad_request("prune", detail, hint, title=title)
    return Leftovers(deleted, tuple(stored.document.key for stored in left if stored.document.key.type == _MESH))

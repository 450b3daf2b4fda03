"""Policies with a targetRef, as the documents that somebody would write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from cp.insight.migrate.selection import ALL, Strength, Tags
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.labels import ORIGIN_LABEL

_LONGEST: Final = 200
_PREFIX: Final = "legacy"
_MOST_LETTERS: Final = 64


@dataclass(frozen=True, slots=True)
class PolicyDraft:
    """A policy with a targetRef that has no name yet."""

    kind: str
    tags: Tags
    strength: Strength
    """Of two for the same sort of target at the top the stronger gets the name that wins."""

    origin: Key
    """The legacy policy from which it is."""

    spec: Mapping[str, Any] = field(default_factory=dict)


def top(tags: Tags, *, only_sidecars: bool = False) -> dict[str, Any]:
    """The target at the top of a policy for all that has some tags."""
    target: dict[str, Any] = {"kind": "MeshSubset", "tags": dict(tags)} if tags else {"kind": "Mesh"}
    return {**target, **({"proxyTypes": ["Sidecar"]} if only_sidecars else {})}


def destination(service: str) -> dict[str, Any]:
    """The target of an item for a service that is known by its tag."""
    return {"kind": "Mesh"} if service == ALL else {"kind": "MeshService", "name": service}


def client(tags: Tags) -> dict[str, Any]:
    """The target of an item for clients."""
    return {"kind": "MeshSubset", "tags": dict(tags)} if tags else {"kind": "Mesh"}


def named(mesh: str, drafts: Iterable[PolicyDraft], taken: AbstractSet[Key]) -> Iterator[tuple[Document, Key]]:
    """Documents, each with the legacy policy from which it is, with names by which they win over each other.

    All drafts are of one kind. Of two policies the one whose name comes first in the alphabet wins. Policies that are
    there already win over all of these, as they do over legacy policies: as far as that can be written, which is in the
    name and in the origin, but not in the target at the top.
    """
    by_name = sorted(drafts, key=lambda draft: draft.origin.name)
    in_order = sorted(by_name, key=lambda draft: draft.strength, reverse=True)
    names = [key.name for key in taken for draft in in_order[:1] if key.type == draft.kind]
    beside = bool(names)
    width = len(str(len(in_order)))
    prefix = _prefix(names)
    for number, draft in enumerate(in_order, 1):
        name = f"{prefix}-{number:0{width}}-{draft.origin.name}"[:_LONGEST].rstrip("-.")
        key = Key(draft.kind, mesh, name)
        labels = {"labels": {ORIGIN_LABEL: "global"}} if beside else {}
        data = {"type": draft.kind, "mesh": mesh, "name": name, **labels, "spec": dict(draft.spec)}
        yield Document(key, data), draft.origin


def _prefix(names: Sequence[str]) -> str:
    """How names begin that come after all names that are there; so it is the name of none of them."""
    if not names:
        return _PREFIX
    last = max(names)
    longer = (f"{'z' * count}-{_PREFIX}" for count in range(2, _MOST_LETTERS))
    return next((prefix for prefix in longer if prefix > last), f"{'z' * _MOST_LETTERS}-{_PREFIX}")

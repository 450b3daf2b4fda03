"""Types of resources as a command line names them."""

from __future__ import annotations

import difflib
from functools import cache

from cp.client.problem import Problem
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.kinds import Kind, Kinds


@cache
def known_kinds() -> Kinds:
    """Every type that this version knows."""
    return kinds(discover())


def kind_of(text: str) -> Kind:
    """A type by its name, its plural or its short name."""
    kind = known_kinds().find(text)
    if kind is None:
        names = sorted(kind.plural for kind in known_kinds().values())
        near_names = difflib.get_close_matches(text.lower(), names, n=1, cutoff=0.5)
        hint = f"Did you mean {near_names[0]}?" if near_names else f"The types are {', '.join(names)}."
        raise Problem(f"there is no type of resource `{text}`", hint)
    return kind


def path_of(key: Key, kind: Kind) -> str:
    """The path of a resource in the HTTP API."""
    return f"{folder_of(kind, key.mesh)}/{key.name}"


def folder_of(kind: Kind, mesh: str) -> str:
    return f"/{kind.plural}" if kind.is_global else f"/meshes/{mesh}/{kind.plural}"

"""Types of resources as a command line names them."""

from __future__ import annotations

import difflib
from functools import cache
from typing import TYPE_CHECKING, Protocol

from cp.cli.type_names import TYPES, TypeNames
from cp.client.problem import Problem
from cp.model.names import Key

if TYPE_CHECKING:
    from cp.resources.kinds import Kind, Kinds


class NamedType(Protocol):
    """A type of which the plural is known, and whether it is in no mesh."""

    @property
    def plural(self) -> str: ...
    @property
    def is_global(self) -> bool: ...


@cache
def known_kinds() -> Kinds:
    """Every type that this version knows, with its schema."""
    from cp.policies import discover, kinds  # noqa: PLC0415  # all policies: slow to load, and lists need names alone

    return kinds(discover())


def kind_of(text: str) -> Kind:
    """A type with its schema, by its name, its plural or its short name."""
    return known_kinds()[type_of(text).name]


def type_of(text: str) -> TypeNames:
    """A type by its name, its plural or its short name."""
    spelling = text.lower().replace("-", "")
    for names in TYPES:
        if spelling in {names.name.lower(), names.plural.replace("-", ""), names.short}:
            return names
    plurals = sorted(names.plural for names in TYPES)
    near_names = difflib.get_close_matches(text.lower(), plurals, n=1, cutoff=0.5)
    hint = f"Did you mean {near_names[0]}?" if near_names else f"The types are {', '.join(plurals)}."
    raise Problem(f"there is no type of resource `{text}`", hint)


def path_of(key: Key, kind: NamedType) -> str:
    """The path of a resource in the HTTP API."""
    return f"{folder_of(kind, key.mesh)}/{key.name}"


def folder_of(kind: NamedType, mesh: str) -> str:
    return f"/{kind.plural}" if kind.is_global else f"/meshes/{mesh}/{kind.plural}"

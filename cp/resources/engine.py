"""The policy engine of a Mesh: which policies it starts with, and who may call an ExternalService (record 0074)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

from cp.model.document import Document

Engine: TypeAlias = Literal["TargetRef", "Legacy"]

DEFAULT_ENGINE: Final[Engine] = "TargetRef"
FIELD: Final = "policyEngine"

_NONE: Final = (None, "Undefined")


def engine_of(mesh: Mapping[str, Any], engine: Engine = DEFAULT_ENGINE) -> Engine:
    """The engine of a Mesh by its data: the one that it names, or that of the settings.

    A Mesh in a World names one, as its kind fills in that of the settings.
    """
    return mesh[FIELD] if names_engine(mesh) else engine


def names_engine(mesh: Mapping[str, Any]) -> bool:
    """Whether a Mesh names an engine, by its data as they are stored."""
    return mesh.get(FIELD) not in _NONE


def with_engine(mesh: Document, before: Document | None, engine: Engine) -> Document:
    """What is stored of a Mesh: a new one has its engine written down, and a change that names none keeps it."""
    if before is None:
        return _naming(mesh, engine_of(mesh.data, engine))
    if FIELD in mesh.data and mesh.data[FIELD] is not None:
        return mesh
    kept = before.data.get(FIELD)
    return mesh if kept is None else _naming(mesh, kept)


def _naming(mesh: Document, engine: str) -> Document:
    return mesh if mesh.data.get(FIELD) == engine else replace(mesh, data={**mesh.data, FIELD: engine})

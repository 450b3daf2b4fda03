"""References in confs to resources that are no destinations: what they lead to takes their place.

A hook is given its conf and nothing of the World. So a conf is resolved before it becomes a part of a task, and
policies see an `endpoint`, whether it was written so or referred to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeGuard

import msgspec

from cp.model.dependency import ANY, Name
from cp.model.paths import step
from cp.resources import otel_backend, telemetry
from cp.resources.resource import Resource
from cp.resources.world import Table, World

REFERRED: Final[Mapping[str, Callable[[Resource], str]]] = {
    telemetry.BACKEND: lambda resource: otel_backend.place(resource.spec),
}
"""The kinds that a `backendRef` in a conf may be to, and what an `endpoint` would say in its place."""

_MARKS: Final = {kind: f'"{kind}"'.encode() for kind in REFERRED}
_FIELD: Final = "backendRef"
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def resolved(world: World, mesh: str, conf: bytes) -> bytes:
    """A conf, as canonical JSON, with an `endpoint` in place of every such reference to what is there."""
    for kind, mark in _MARKS.items():
        if mark in conf:
            conf = _resolved(world.table(kind, mesh), kind, conf)
    return conf


def resolved_data(world: World, mesh: str, conf: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same of a conf as plain data."""
    found: Mapping[str, Any] = msgspec.json.decode(resolved(world, mesh, _encode(conf)))
    return found


def asked(confs: Iterable[bytes]) -> frozenset[Name]:
    """The names on which confs depend. A reference may be by labels, so it is taken for one to any of its kind."""
    return frozenset((kind, ANY) for conf in confs for kind, mark in _MARKS.items() if mark in conf)


def same(old: World, new: World, mesh: str) -> bool:
    """Whether two Worlds have the same resources of the kinds that can be referred to."""
    return all(old.table(kind, mesh) is new.table(kind, mesh) for kind in REFERRED)


def referred(table: Table, reference: Mapping[str, Any]) -> Resource | None:
    """What a reference leads to; by labels that is the first by its name."""
    wanted = reference.get("labels") or {}
    name = str(reference.get("name") or "")
    if name:
        return table.get(name) or next((one for one in table if one.display_name == name), None)
    return next((one for one in table if wanted and wanted.items() <= one.selectable_labels.items()), None)


def references(data: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every such reference below a path, with the path where it stands."""
    if isinstance(data, Mapping):
        for name, inner in data.items():
            if _is_reference(inner, name):
                yield step(path, name), inner
            else:
                yield from references(inner, step(path, str(name)))
    elif isinstance(data, list):
        for index, inner in enumerate(data):
            yield from references(inner, step(path, index))


@lru_cache(maxsize=4096)
def _resolved(table: Table, kind: str, conf: bytes) -> bytes:
    return _encode(_replaced(msgspec.json.decode(conf), table, kind))


def _replaced(data: Any, table: Table, kind: str) -> Any:
    if isinstance(data, list):
        return [_replaced(inner, table, kind) for inner in data]
    if not isinstance(data, dict):
        return data
    reference = data.get(_FIELD)
    found = referred(table, reference) if _is_reference(reference, _FIELD) and reference["kind"] == kind else None
    if found is None:
        return {name: _replaced(inner, table, kind) for name, inner in data.items()}
    others = {name: _replaced(inner, table, kind) for name, inner in data.items() if name != _FIELD}
    return {**others, "endpoint": REFERRED[kind](found)}


def _is_reference(data: Any, name: object) -> TypeGuard[Mapping[str, Any]]:
    return name == _FIELD and isinstance(data, Mapping) and data.get("kind") in REFERRED

"""References in confs to resources that are no destinations, such as a collector, and what takes their place.

A hook gets its conf and nothing of the World. So the references of a conf are resolved before the conf becomes part of
a task, and policies see an `endpoint`, whether that was written or referred to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeGuard

import msgspec

from cp.model.canonical import canonical_json
from cp.model.dependency import ANY, Name
from cp.model.paths import step
from cp.resources import otel_backend, telemetry
from cp.resources.resource import Resource
from cp.resources.world import Table, World

REFERRED: Final[Mapping[str, Callable[[Resource], str]]] = {
    telemetry.BACKEND: lambda resource: otel_backend.endpoint_of(resource.spec),
}
"""The kinds that a `backendRef` in a conf may refer to, and the `endpoint` that takes the place of the reference."""

_MARKS: Final = {kind: f'"{kind}"'.encode() for kind in REFERRED}
_FIELD: Final = "backendRef"


def resolved(world: World, mesh: str, conf: bytes) -> bytes:
    """A conf, as canonical JSON, with an `endpoint` in place of every such reference to an existing resource."""
    for kind, mark in _MARKS.items():
        if mark in conf:
            conf = _resolved(world.table(kind, mesh), kind, conf)
    return conf


def resolved_data(world: World, mesh: str, conf: Mapping[str, Any]) -> Mapping[str, Any]:
    """A conf as plain data, resolved in the same way."""
    resolved_conf: Mapping[str, Any] = msgspec.json.decode(resolved(world, mesh, canonical_json(conf)))
    return resolved_conf


def names_referred_to(confs: Iterable[bytes]) -> frozenset[Name]:
    """The names that confs depend on. A reference can be by labels, so it counts as one to all of its kind."""
    return frozenset((kind, ANY) for conf in confs for kind, mark in _MARKS.items() if mark in conf)


def same(old: World, new: World, mesh: str) -> bool:
    """Whether two Worlds have the same resources of the kinds that confs can refer to."""
    return all(old.table(kind, mesh) is new.table(kind, mesh) for kind in REFERRED)


def referred(table: Table, reference: Mapping[str, Any]) -> Resource | None:
    """The resource that a reference names; of several with its labels, the first by name."""
    labels = reference.get("labels") or {}
    name = str(reference.get("name") or "")
    if name:
        return table.get(name) or next((resource for resource in table if resource.display_name == name), None)
    return next(
        (resource for resource in table if labels and labels.items() <= resource.selectable_labels.items()), None
    )


def references(data: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every such reference in a conf, with its path."""
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
    return canonical_json(_replaced(msgspec.json.decode(conf), table, kind))


def _replaced(data: Any, table: Table, kind: str) -> Any:
    if isinstance(data, list):
        return [_replaced(inner, table, kind) for inner in data]
    if not isinstance(data, dict):
        return data
    reference = data.get(_FIELD)
    resource = referred(table, reference) if _is_reference(reference, _FIELD) and reference["kind"] == kind else None
    if resource is None:
        return {name: _replaced(inner, table, kind) for name, inner in data.items()}
    fields = {name: _replaced(inner, table, kind) for name, inner in data.items() if name != _FIELD}
    return {**fields, "endpoint": REFERRED[kind](resource)}


def _is_reference(data: Any, name: object) -> TypeGuard[Mapping[str, Any]]:
    return name == _FIELD and isinstance(data, Mapping) and data.get("kind") in REFERRED

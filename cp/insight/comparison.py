"""What proxies are served in two Worlds: the resources that differ, byte by byte, and the fields in which they do."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from cp.insight.fields import ABSENT, ChangedField, differing_fields
from cp.model.canonical import canonical_json
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.failure import Failure
from cp.model.names import Key
from cp.policies import Policies
from cp.resources.world import World
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.packing import SHORT, TYPES, PackedResource
from cp.translate.snapshot import Snapshot, SnapshotPart

Decode: TypeAlias = Callable[[PackedResource], Mapping[str, Any]]
"""A resource as Envoy's API writes it in JSON."""

SnapshotOrFailure: TypeAlias = Snapshot | Failure
"""What a proxy is served, or the fault of ours for which nobody can tell."""

_Parts: TypeAlias = tuple[tuple[SnapshotPart, ...], tuple[SnapshotPart, ...]]
"""The parts of two snapshots."""


LARGEST: Final = 1 << 20
"""Bytes of a resource of which fields are compared."""

MOST_FIELDS: Final = 1000
"""Fields of one resource that are told: nobody reads more."""

_AROUND: Final = 100
"""Bytes of a field beside what is in it."""

_TOO_LARGE: Final = "too large to say what is different"
_NOWHERE: Final = HTTPStatus.INTERNAL_SERVER_ERROR


@dataclass(frozen=True, slots=True)
class ChangedResource:
    """A resource that is not the same in two snapshots; None: it is in one of them alone."""

    type_url: str
    name: str
    before: PackedResource | None
    after: PackedResource | None

    @property
    def type(self) -> str:
        return SHORT[self.type_url]

    @property
    def is_large(self) -> bool:
        """Whether it takes so long to read that it is not: nobody would read what differs either."""
        return any(_size(side) > LARGEST for side in (self.before, self.after))


def _size(side: PackedResource | None) -> int:
    return 0 if side is None else len(side.body)


@dataclass(frozen=True, slots=True)
class ProxyDifference:
    """A resource that is not served as before, to all proxies for which it changes in the same way."""

    resource: ChangedResource
    proxies: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class MeshComparison:
    """What the proxies of a mesh are served in one World, beside another."""

    mesh: str
    in_both: tuple[Key, ...]
    """The proxies that are in both, and could be compiled in both."""

    added: tuple[Key, ...]
    removed: tuple[Key, ...]
    differences: tuple[ProxyDifference, ...]
    failures: Mapping[Key, Failure]
    """The proxies that could not be compiled in one of them, so that nobody can tell what is different for them."""


def mesh_comparison(
    worlds: tuple[World, World], mesh: str, policies: Policies, checkpoint: Checkpoint = never_stopped
) -> MeshComparison:
    """What is different for the proxies of a mesh in the second of two Worlds."""
    before, after = (_outcomes(world, mesh, policies, checkpoint) for world in worlds)
    return comparison_of(mesh, before, after, checkpoint)


def comparison_of(
    mesh: str,
    before: Mapping[Key, SnapshotOrFailure],
    after: Mapping[Key, SnapshotOrFailure],
    checkpoint: Checkpoint = never_stopped,
) -> MeshComparison:
    """What is different between the snapshots of the proxies of a mesh, and others of them."""
    sides = _snapshots(before), _snapshots(after)
    in_both = tuple(proxy for proxy in sides[0] if proxy in sides[1])
    together: dict[ChangedResource, list[Key]] = {}
    of_parts = _ChangesOfParts()
    for proxy in checked(in_both, checkpoint):
        for resource in of_parts.changes(sides[0][proxy], sides[1][proxy]):
            together.setdefault(resource, []).append(proxy)
    differences = tuple(ProxyDifference(resource, tuple(proxies)) for resource, proxies in together.items())
    failures = {
        proxy: outcome for side in (before, after) for proxy, outcome in side.items() if isinstance(outcome, Failure)
    }
    return MeshComparison(mesh, in_both, _without(after, before), _without(before, after), differences, failures)


def _snapshots(outcomes: Mapping[Key, SnapshotOrFailure]) -> Mapping[Key, Snapshot]:
    return {proxy: outcome for proxy, outcome in outcomes.items() if isinstance(outcome, Snapshot)}


def _without(proxies: Iterable[Key], present: Collection[Key]) -> tuple[Key, ...]:
    return tuple(proxy for proxy in proxies if proxy not in present)


def _outcomes(world: World, mesh: str, policies: Policies, checkpoint: Checkpoint) -> Mapping[Key, SnapshotOrFailure]:
    compiler = Compiler(policies)
    dataplanes = checked(world.table("Dataplane", mesh), checkpoint)
    return {dataplane.key: snapshot_or_failure(compiler.proxy_or_failure(world, dataplane)) for dataplane in dataplanes}


def snapshot_or_failure(proxy: CompiledProxy | Failure) -> SnapshotOrFailure:
    return proxy if isinstance(proxy, Failure) else proxy.snapshot


def changed_resources(before: Snapshot, after: Snapshot) -> Iterator[ChangedResource]:
    """The resources of which not every byte is the same."""
    return _changes(*_differing_parts(before, after))


class _ChangesOfParts:
    """What differs between parts of snapshots, worked out once for all proxies that share the parts."""

    def __init__(self) -> None:
        self._known: dict[_Parts, tuple[ChangedResource, ...]] = {}

    def changes(self, before: Snapshot, after: Snapshot) -> tuple[ChangedResource, ...]:
        parts = _differing_parts(before, after)
        if parts not in self._known:
            self._known[parts] = tuple(_changes(*parts))
        return self._known[parts]


def _differing_parts(before: Snapshot, after: Snapshot) -> _Parts:
    """The parts that are not the same object in both: most changes leave most parts as they are."""
    old = tuple(part for part in before.parts if part not in after.parts)
    return old, tuple(part for part in after.parts if part not in before.parts)


def _changes(before: Iterable[SnapshotPart], after: Iterable[SnapshotPart]) -> Iterator[ChangedResource]:
    for type_url in TYPES:
        old = {packed.name: packed for part in before for packed in part.of(type_url).values()}
        new = {packed.name: packed for part in after for packed in part.of(type_url).values()}
        for name in sorted(old.keys() | new.keys()):
            was, is_now = old.get(name), new.get(name)
            if was is not is_now and (was is None or is_now is None or was.body != is_now.body):
                yield ChangedResource(type_url, name, was, is_now)


def changed_fields(resource: ChangedResource, decode: Decode) -> list[ChangedField]:
    """In which fields a resource differs. Where none can be told the bytes differ all the same, and it says so."""
    if resource.is_large:
        return [ChangedField("", f"{_size(resource.before)} bytes", f"{_size(resource.after)} bytes, {_TOO_LARGE}")]
    before = ABSENT if resource.before is None else decode(resource.before)
    after = ABSENT if resource.after is None else decode(resource.after)
    return list(differing_fields(before, after)) or [ChangedField("", "the same fields", "in other bytes")]


def size_of_field(field: ChangedField) -> int:
    """About as many bytes as it has in an answer."""
    return _AROUND + len(field.path) + size_of(field.before) + size_of(field.after)


def size_of(value: Any) -> int:
    """Bytes of a value as JSON."""
    if value is ABSENT:
        return 0
    try:
        return len(canonical_json(value))
    except (OverflowError, TypeError):  # a number that takes more than 64 bits
        return len(repr(value))


def differs_in_names_alone(resource: ChangedResource, decode: Decode, names: Mapping[str, str]) -> bool:
    """Whether all that is different is what policies and routes are called, or how a prefix is written: Envoy treats
    calls as before.

    `names` has the new name of each policy with the old one.
    """
    if resource.before is None or resource.after is None or resource.is_large:
        return False
    before, after = decode(resource.before), decode(resource.after)
    return before != after and bool(_nameless(before, names) == _nameless(after, names))


def _nameless(value: Any, names: Mapping[str, str]) -> Any:
    """A value with old names of policies, and without those of routes."""
    if isinstance(value, list):
        return [_nameless(item, names) for item in value]
    if not isinstance(value, Mapping):
        return value
    is_route = "match" in value and "name" in value
    fields = _without_names(value) if is_route else value
    return {names.get(name, name): _nameless(field, names) for name, field in fields.items()}


def _without_names(route: Mapping[str, Any]) -> Mapping[str, Any]:
    """A route without its name, and without the reason that names it where nobody can be asked."""
    answer = route.get("directResponse") or {}
    is_reason = answer.get("status") == _NOWHERE
    fields = {name: route[name] for name in route if name != "name"} | {"match": _in_one_form(route["match"])}
    return fields | ({"directResponse": _NOWHERE} if is_reason else {})


def _in_one_form(match: Mapping[str, Any]) -> Mapping[str, Any]:
    """A match with a prefix of the text as the expression that Envoy finds in the same paths."""
    if "prefix" not in match:
        return match
    expression = {"safeRegex": {"regex": f"{re.escape(match['prefix'])}.*"}}
    return {name: match[name] for name in match if name != "prefix"} | expression

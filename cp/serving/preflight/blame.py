"""`Blame`: which documents a NACK in preflight follows from, those of the change first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from cp.insight.plan import ChangedProxy, UpcomingResource
from cp.model.names import Key
from cp.model.paths import steps
from cp.resources.world import World
from cp.serving.delivery.causes import CauseFinder, PolicyPart
from cp.serving.preflight.rounds import NewResource
from cp.translate.packing import SHORT, PackedResource


@dataclass(frozen=True, slots=True)
class RefusedResource:
    """A resource that an Envoy NACKs, in its words, and the documents that it was made of."""

    dataplane: Key
    """A proxy that would be served it."""

    type_url: str
    name: str
    reason: str
    written: tuple[PolicyPart, ...] = ()
    """The parts of documents that the change writes, those that it makes different first."""

    policies: tuple[PolicyPart, ...] = ()
    """The parts of policies that stay as they are stored."""

    earlier: str = ""
    """The NACK for what proxies are served now in its place; empty if Envoy takes that, or there is nothing."""

    @property
    def type(self) -> str:
        return SHORT.get(self.type_url, self.type_url)

    @property
    def is_older(self) -> bool:
        """True if Envoy NACKs it for the same reason without the change."""
        return self.earlier == self.reason


class Blame:
    """Finds the documents of NACKed resources."""

    def __init__(self, written: AbstractSet[Key], earlier: Mapping[PackedResource, str]) -> None:
        """`earlier`: the NACKs for what proxies are served now."""
        self._written, self._earlier = written, earlier
        self._finders: dict[World, CauseFinder] = {}

    def refused(self, resource: NewResource, reason: str) -> Iterator[RefusedResource]:
        """Yield the resource for each mesh: in each it is made of other policies, and other users may know of it."""
        for owner in resource.owners.values():
            written, policies = self._parts(owner, resource)
            served = _served(owner, resource)
            earlier = "" if served is None else self._earlier.get(served, "")
            yield RefusedResource(owner.compiled.dataplane.key, *resource.name, reason, written, policies, earlier)

    def _parts(
        self, owner: ChangedProxy, resource: NewResource
    ) -> tuple[tuple[PolicyPart, ...], tuple[PolicyPart, ...]]:
        finder = self._finders.setdefault(owner.world, CauseFinder(owner.world))
        causes = finder.of(owner.compiled, *resource.name)
        written = [part for part in (*causes.policies, *causes.resources) if part.policy in self._written]
        written.sort(key=lambda part: not _is_changed(part, owner))
        return tuple(written), tuple(part for part in causes.policies if part.policy not in self._written)


def served_versions(resources: Iterable[NewResource]) -> Iterator[ChangedProxy]:
    """Yield the proxies to which some resources are new, with what they are served now in place of these."""
    served: dict[Key, tuple[ChangedProxy, list[UpcomingResource]]] = {}
    for resource in resources:
        for owner in resource.owners.values():
            key = owner.compiled.dataplane.key
            if (packed := _served(owner, resource)) is not None:
                served.setdefault(key, (owner, []))[1].append(UpcomingResource(packed, (key,)))
    for owner, new in served.values():
        if owner.before is not None:
            yield replace(owner, compiled=owner.before, new=tuple(new), before=None)


def _served(owner: ChangedProxy, resource: NewResource) -> PackedResource | None:
    return None if owner.before is None else owner.before.snapshot.get(*resource.name)


def _is_changed(part: PolicyPart, owner: ChangedProxy) -> bool:
    """True if the change makes this part of a document different, and not only another one."""
    if owner.world_before is None:
        return True
    sides = (world.get(part.policy) for world in (owner.world_before, owner.world))
    before, after = (None if side is None else _value(side.document.data, part.path) for side in sides)
    return before != after


def _value(data: Any, path: str) -> Any:
    for step in steps(path):
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data

"""Which of the changed documents a difference follows from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from cp.insight.plan.model import ValueChange
from cp.insight.sources import ResourceSource
from cp.model.dependency import Name
from cp.model.names import Key
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.change_scope import names_of_services

_OF_ALL: Final = frozenset({"Mesh", "MeshIdentity", "MeshTrust"})
"""The kinds that reach whole proxies."""


@dataclass(frozen=True, slots=True)
class ChangedDocuments:
    """The changed documents that can reach a mesh."""

    keys: tuple[Key, ...]
    worlds: tuple[World, World]

    @classmethod
    def of_mesh(cls, keys: Iterable[Key], mesh: str, worlds: tuple[World, World]) -> ChangedDocuments:
        """Those in the mesh, and those that are in no mesh but for other Meshes."""
        reaching = (key for key in keys if (key.name if key.type == "Mesh" else key.mesh) in {"", mesh})
        return cls(tuple(sorted(reaching)), worlds)

    def behind(
        self,
        proxies: Collection[Key],
        sources: Iterable[ResourceSource],
        values: Iterable[ValueChange],
        *,
        is_explained: bool = True,
    ) -> tuple[Key, ...]:
        """Those from which a difference follows: all that are no policies, or simply all, where none can be told.

        Those that set a value of it come first. `is_explained`: all of it follows from values.
        """
        sources, setters = tuple(sources), {*_setters(values)}
        policies = {*setters, *(origin.policy for source in sources for origin in source.structure)}
        named = {*policies, *proxies}
        names = frozenset[Name]().union(*(source.names for source in sources))
        behind = [key for key in self.keys if key in named or not names.isdisjoint(self._names(key))]
        behind.sort(key=lambda key: key not in setters)
        no_policies = [key for key in self.keys if not self._is_policy(key)]
        if not is_explained and all(map(self._is_policy, behind)):  # such as TLS, by which no resource names its Mesh
            behind += [key for key in no_policies if key.type in _OF_ALL]
        return tuple(behind or no_policies or self.keys)

    def _names(self, key: Key) -> Iterator[Name]:
        """The names by which resources depend on a document."""
        yield key.type, key.name
        for resource in self._versions(key):
            yield key.type, resource.display_name
            if key.type == "Dataplane":
                yield from (name for name in names_of_services(resource, self.worlds) if name[1] != "*")

    def _versions(self, key: Key) -> Iterator[Resource]:
        return (resource for world in self.worlds if (resource := world.get(key)) is not None)

    def _is_policy(self, key: Key) -> bool:
        return any(resource.kind.policy is not None for resource in self._versions(key))


def _setters(values: Iterable[ValueChange]) -> Iterator[Key]:
    sides = (side for value in values for side in (value.before, value.after))
    return (side.policy for side in sides if side is not None and side.policy is not None)

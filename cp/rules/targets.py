"""The resources that `to` items may refer to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cp.model.names import Identity
from cp.resources.resource import Resource
from cp.resources.targets import ROUTE_KINDS
from cp.resources.world import Table, World

_KINDS: Final = ("MeshService", "MeshExternalService", "MeshMultiZoneService", *ROUTE_KINDS)
_INDEXES: Final = {kind: index for index, kind in enumerate(_KINDS)}
_EMPTY: Final = Table({})


@dataclass(frozen=True, slots=True)
class TargetTables:
    """The tables of those resources of one mesh. Two are equal as long as none of the resources changed."""

    tables: tuple[Table, ...] = ()

    @classmethod
    def of(cls, world: World, mesh: str) -> TargetTables:
        return cls(tuple(world.table(kind, mesh) for kind in _KINDS))

    def table(self, kind: str) -> Table:
        index = _INDEXES.get(kind)
        return self.tables[index] if index is not None and self.tables else _EMPTY

    def find(self, identity: Identity) -> Resource | None:
        return self.table(identity.type).by_identity.get(identity.whole)

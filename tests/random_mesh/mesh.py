"""Random meshes as files, which fail small: hypothesis leaves out documents, then items of those that are left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import yaml
from hypothesis import strategies as st

from cp.model.document import Document
from cp.model.source import read_documents, universal
from cp.model.violation import Severity
from cp.policies import kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from tests.random_mesh import proxies
from tests.random_mesh.documents import EVERY, data
from tests.random_mesh.words import Data
from tests.snapshots import policies

FILE: Final = "mesh.yaml"
_PARTS: Final = 96
_KEPT: Final = st.sampled_from([False, *[True] * 9])
"""What comes first is simpler: less."""

_INLINE: Final = frozenset({"spec", "networking"})
_LISTS: Final = frozenset({"to", "from", "rules", "ports", "outbound"})


@dataclass(frozen=True, eq=False)
class Mesh:
    """The documents of one mesh.

    Printed, it is a file that `koguma render`, `koguma lint` and `koguma explain` take with `-f`.
    """

    documents: tuple[Data, ...]
    seed: int | None = None

    @property
    def text(self) -> str:
        text: str = yaml.dump_all(self.documents, Dumper=yaml.CSafeDumper, sort_keys=False)
        return text

    def read(self) -> tuple[Document, ...]:
        reading = read_documents(self.text, FILE)
        assert not reading.findings, [str(finding) for finding in reading.findings]
        return reading.documents

    def world(self) -> World:
        """Its World. A document that is made here and that a validator refuses is a fault of one of the two."""
        world = World.of(self.read(), kinds(policies()))
        errors = [str(finding) for finding in world.findings if finding.severity is Severity.ERROR]
        assert not errors, errors
        return world

    def __repr__(self) -> str:
        return f"Mesh of seed {self.seed}, which is this file:\n{self.text}"


def mesh_of(seed: int, of_kinds: Sequence[str] = EVERY, keep: Sequence[bool] = ()) -> Mesh:
    """The mesh of a seed, less the parts that are not kept. What is beyond `keep` is kept."""
    return Mesh(tuple(_kept(list(_documents(Random(seed), of_kinds)), iter(keep))), seed)


@st.composite
def meshes(draw: st.DrawFn, of_kinds: Sequence[str] = EVERY) -> Mesh:
    """Meshes with proxies, services, routes and policies; or with what of that is of the given kinds."""
    seed = draw(st.integers(0, 2**32))
    return mesh_of(seed, of_kinds, draw(st.lists(_KEPT, min_size=_PARTS, max_size=_PARTS)))


def dataplanes(world: World) -> list[Resource]:
    return list(world.table("Dataplane", "default"))


def _documents(chance: Random, of_kinds: Sequence[str]) -> Iterator[Data]:
    """The Mesh first, then a proxy and whatever else comes, at most one of each name."""
    yield proxies.mesh(chance)
    drawn = (proxies.dataplane(chance), *(data(chance, of_kinds) for _ in range(chance.randint(4, 26))))
    yield from {_key(made): made for made in drawn if made.get("type") != "Mesh"}.values()


def _key(made: Data) -> tuple[str, str]:
    fields = universal(made)
    return fields["type"], fields["name"]


def _kept(documents: list[Data], keep: Iterator[bool]) -> Iterator[Data]:
    """The Mesh stays. Of the others, and then of their lists, what is not kept is left out."""
    whole, *others = documents
    yield whole
    left = [made for made in others if next(keep, True)]
    yield from (_thinned(made, keep) for made in left)


def _thinned(made: Data, keep: Iterator[bool]) -> Data:
    return {name: _less(name, value, keep) for name, value in made.items()}


def _less(name: str, value: Any, keep: Iterator[bool]) -> Any:
    """A list with fewer items, and never without any that had some."""
    if name in _INLINE:
        return _thinned(value, keep)
    if name in _LISTS and isinstance(value, list):
        return [item for item in value if next(keep, True)] or value[:1]
    return value

"""Random meshes, as files have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import yaml

from cp.model.document import Document
from cp.model.source import read_documents, universal
from cp.model.violation import Severity
from cp.policies import kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from tests.random_mesh import legacy_policies, proxies
from tests.random_mesh.documents import EVERY, data
from tests.random_mesh.words import Data
from tests.snapshots import policies

FILE: Final = "mesh.yaml"


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
        return read_documents(self.text, FILE).documents

    def errors(self) -> list[str]:
        """What is invalid in it. A document of this maker's that a validator refuses is a fault of one of them."""
        reading = read_documents(self.text, FILE)
        findings = (*reading.findings, *World.of(reading.documents, kinds(policies())).findings)
        return [str(finding) for finding in findings if finding.severity is Severity.ERROR]

    def world(self) -> World:
        return World.of(self.read(), kinds(policies()))

    def __repr__(self) -> str:
        return f"Mesh of seed {self.seed}, which is this file:\n{self.text}"


def mesh_of(seed: int, of_kinds: Sequence[str] = EVERY) -> Mesh:
    """A mesh with proxies, services, routes and policies; or with what of that is of the given kinds."""
    return Mesh(tuple(_documents(Random(seed), of_kinds)), seed)


def dataplanes(world: World) -> list[Resource]:
    return list(world.table("Dataplane", "default"))


def _documents(chance: Random, of_kinds: Sequence[str]) -> Iterator[Data]:
    """The Mesh first, with whom it trusts, then a proxy and whatever else comes, at most one of each name."""
    mesh_data = (proxies if legacy_policies.MAKES.keys().isdisjoint(of_kinds) else legacy_policies).mesh(chance)
    yield mesh_data
    yield from proxies.trust(mesh_data)
    first = (proxies if legacy_policies.MAKES.keys().isdisjoint(of_kinds) else legacy_policies).dataplane(chance)
    drawn = (first, *(data(chance, of_kinds) for _ in range(chance.randint(4, 26))))
    yield from {
        _key(document_data): document_data for document_data in drawn if document_data.get("type") != "Mesh"
    }.values()


def _key(document_data: Data) -> tuple[str, str]:
    fields = universal(document_data)
    return fields["type"], fields["name"]

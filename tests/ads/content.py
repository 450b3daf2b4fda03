"""Resources whose content a test can read back: what they point at, and how a client takes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, PackedResource
from cp.translate.snapshot import Snapshot, SnapshotPart

GOOD, BAD, POISON = "good", "bad", "poison"
"""A bad resource is refused by name, and what came with it is applied; a poisonous one spoils the whole response."""


@dataclass(frozen=True)
class Content:
    name: str
    revision: int = 0
    taste: str = GOOD
    to: tuple[str, ...] = ()


def pack(type_url: str, content: Content) -> PackedResource:
    body = json.dumps([content.name, content.revision, content.taste, content.to])
    return PackedResource.of(type_url, content.name, body.encode())


def unpack(packed: PackedResource) -> Content:
    name, revision, taste, to = json.loads(packed.body)
    return Content(name, revision, taste, tuple(to))


def cluster(name: str, revision: int = 0, taste: str = GOOD) -> PackedResource:
    return pack(CLUSTER, Content(name, revision, taste))


def endpoints(name: str, revision: int = 0) -> PackedResource:
    return pack(ENDPOINTS, Content(name, revision))


def listener(name: str, *routes: str, revision: int = 0, taste: str = GOOD) -> PackedResource:
    return pack(LISTENER, Content(name, revision, taste, routes))


def routes(name: str, *clusters: str, revision: int = 0, taste: str = GOOD) -> PackedResource:
    return pack(ROUTES, Content(name, revision, taste, clusters))


def secret(name: str, revision: int = 0) -> PackedResource:
    return pack(SECRET, Content(name, revision))


def snapshot(*resources: PackedResource) -> Snapshot:
    return Snapshot(SnapshotPart(resources))


@dataclass(frozen=True)
class Mesh:
    """A whole snapshot in a few words: clusters with their endpoints, and tables with the listeners that use them."""

    clusters: tuple[Content, ...] = ()
    assignments: tuple[Content, ...] = ()
    tables: tuple[Content, ...] = ()
    listeners: tuple[Content, ...] = field(default=())

    def snapshot(self, shared: Iterable[str] = ()) -> Snapshot:
        """Cut into two parts: what has a name that is shared, and what has not."""
        resources = [
            *(pack(CLUSTER, content) for content in self.clusters),
            *(pack(ENDPOINTS, content) for content in self.assignments),
            *(pack(LISTENER, content) for content in self.listeners),
            *(pack(ROUTES, content) for content in self.tables),
        ]
        names = set(shared)
        return Snapshot(
            SnapshotPart(p for p in resources if p.name in names),
            SnapshotPart(p for p in resources if p.name not in names),
        )

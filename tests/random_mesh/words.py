"""The names that random documents share, where a document comes from, and how a part of one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import universal

Data = dict[str, Any]
Make = Callable[[Random], Any]

SERVICES: Final = ("backend", "orders", "redis")
"""The display names of services of every kind, and the values of `kuma.io/service`."""

MISSING: Final = "nobody"
DATAPLANES: Final = ("dp-1", "dp-2", "dp-3", "dp-4")
GATEWAYS: Final = ("edge", "edge-2")
ROUTES: Final = ("route-a", "route-b")
TCP_ROUTES: Final = ("route-a", "tcp-a")
PORTS: Final = (80, 81)
PATHS: Final = ("/", "/api", "/api/v1", "/slow")
TEAMS: Final = ("red", "blue")
ZONES: Final = ("east", "west", "north")
NAMESPACES: Final = ("ns-a", "ns-b")
COLLECTORS: Final = ("near", "far")
SECRETS: Final = ("s1", "s2")
PROTOCOLS: Final = ("http", "http", "http2", "grpc", "tcp")

NAME_LABEL: Final = "kuma.io/display-name"
NAMESPACE_LABEL: Final = "k8s.kuma.io/namespace"
ZONE_LABEL: Final = "kuma.io/zone"
ORIGIN_LABEL: Final = "kuma.io/origin"
ROLE_LABEL: Final = "kuma.io/policy-role"


def document(type_: str, name: str, **fields: Any) -> Document:
    return Document(Key(type_, "default", name), {"type": type_, "mesh": "default", "name": name, **fields})


MESH: Final = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})


def document_of(data: Data) -> Document:
    """The document that a file with this data would have, in either of its forms."""
    fields = universal(data)
    return Document(Key(fields["type"], fields.get("mesh", ""), fields["name"]), fields)


@dataclass(frozen=True)
class Home:
    """Where a document was written: in a namespace, in another zone, or neither."""

    namespace: str = ""
    zone: str = ""
    origin: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    def named(self, kind: str, name: str, labels: dict[str, str], **fields: Any) -> Data:
        """A document in Universal form that has the display name and what tells it from others of that name."""
        stored = ".".join(part for part in (name, self.namespace, self.zone) if part)
        of_place = {NAME_LABEL: name} if stored != name else {}
        of_place |= {NAMESPACE_LABEL: self.namespace} if self.namespace else {}
        of_place |= {ZONE_LABEL: self.zone} if self.zone else {}
        of_place |= {ORIGIN_LABEL: self.origin} if self.origin else {}
        all_labels = {**of_place, **self.labels, **labels}
        return {
            "type": kind,
            "mesh": "default",
            "name": stored,
            **({"labels": all_labels} if all_labels else {}),
            **fields,
        }


def in_kubernetes(kind: str, name: str, namespace: str, labels: dict[str, str], spec: Data) -> Data:
    """The same in the form of Kubernetes."""
    meta = {"name": name, "namespace": namespace, "labels": {"kuma.io/mesh": "default", **labels}}
    return {"apiVersion": "kuma.io/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def home(chance: Random) -> Home:
    """Most are from nowhere in particular, as on Universal."""
    if chance.random() < 0.6:
        return Home(origin="global" if apart(chance).random() < 0.1 else "")
    if chance.random() < 0.7:
        return Home(namespace=chance.choice(NAMESPACES))
    return Home(zone=chance.choice(ZONES), origin=apart(chance).choice(["zone", "zone", "zone", "global", ""]))


def some_of(chance: Random, fields: dict[str, Make]) -> Data:
    """An object with some of its fields, and at least one."""
    names = chance.sample(sorted(fields), chance.randint(1, len(fields)))
    return {name: fields[name](chance) for name in sorted(names)}


def nullable(chance: Random, conf: Data, share: float = 0.15) -> Data:
    """Now and then a field is an explicit null, which takes away what others say. One field keeps its value."""
    kept = chance.choice(sorted(conf)) if conf else ""
    return {name: None if name != kept and chance.random() < share else value for name, value in conf.items()}


def apart(chance: Random) -> Random:
    """Another source of chance that depends on this one. Drawing from it leaves what comes later as it would be."""
    return Random(hash(chance.getstate()[1]))


def several(chance: Random, make: Make, least: int, most: int) -> list[Any]:
    return [make(chance) for _ in range(chance.randint(least, most))]


def team(chance: Random) -> dict[str, str]:
    return {"team": chance.choice(TEAMS)}


def sometimes(chance: Random, share: float, data: Data) -> Data:
    return data if chance.random() < share else {}


def weighted(choices: Sequence[tuple[int, Make]]) -> Make:
    """One of several ways to make something, each as often as its number says."""
    makes = [make for _, make in choices]
    numbers = [number for number, _ in choices]
    return lambda chance: chance.choices(makes, numbers)[0](chance)

"""A plan: what a change would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cp.insight.comparison import ChangedResource
from cp.model.failure import Failure
from cp.model.names import Key
from cp.model.violation import Finding


class DocumentChange(StrEnum):
    """What becomes of a document."""

    CREATED = "Created"
    UPDATED = "Updated"
    DELETED = "Deleted"


@dataclass(frozen=True, slots=True)
class PlannedDocument:
    """A document that would be another one, and where it is written."""

    key: Key
    change: DocumentChange
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """A value of a conf, and who set it."""

    value: Any
    policy: Key | None
    """None: it is built in."""

    path: str = ""
    """The path of the value in the document of the policy."""

    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A field of an effective conf with another value, or a value on one side alone."""

    kind: str
    field: str
    route: str
    """The route for which it holds; empty: whichever route a call takes."""

    before: PlannedValue | None
    after: PlannedValue | None


@dataclass(frozen=True, slots=True)
class PlannedField:
    """A field of an Envoy resource with another value. Of a resource that comes or goes it is the whole."""

    path: str
    before: Any
    after: Any
    values: tuple[int, ...] = ()
    """The places of the values from which it follows, among those of the difference.

    None where it follows from something else, such as an address, where the resource or its part comes or goes, and
    where too many values of the resource are others to look at each (`ValueFinder`).
    """


@dataclass(frozen=True, slots=True)
class ToldFields:
    """The fields in which a resource would be different, and the values from which they follow."""

    fields: tuple[PlannedField, ...]
    values: tuple[tuple[ValueChange, ...], ...]
    """For each field of a conf what of it is different: of a list there may be many elements.

    Each is here once, as thousands of fields may follow from one list with thousands of elements.
    """

    more: int
    """How many fields are different beyond those."""


@dataclass(frozen=True, slots=True)
class PlannedDifference:
    """A resource that would not be served as before, to all proxies for which it changes in the same way."""

    resource: ChangedResource
    proxies: tuple[Key, ...]
    told_fields: ToldFields
    causes: tuple[Key, ...]
    """The changed documents from which it follows."""

    drain: str = ""
    """Which connections Envoy ends because of it, in words; empty: none."""


@dataclass(frozen=True, slots=True)
class ProxyGroup:
    """Proxies that change in the same way."""

    proxies: tuple[Key, ...]
    differences: tuple[int, ...]
    """The places of their differences in the plan of the mesh."""


@dataclass(frozen=True, slots=True)
class MeshPlan:
    """What a change would do to the proxies of a mesh."""

    mesh: str
    proxy_count: int
    """How many proxies are there both before and after, and were compared."""

    added: tuple[Key, ...]
    removed: tuple[Key, ...]
    differences: tuple[PlannedDifference, ...]
    failures: Mapping[Key, Failure] = field(default_factory=dict)
    """The proxies that cannot be compiled before or after, so that they are not compared."""

    @property
    def reached(self) -> tuple[Key, ...]:
        """The proxies, of those that are there before and after, that would be sent something."""
        return tuple(sorted({proxy for difference in self.differences for proxy in difference.proxies}))

    @property
    def groups(self) -> tuple[ProxyGroup, ...]:
        """The same proxies, by what they would be sent: the largest group first."""
        of_proxy: dict[Key, list[int]] = {}
        for place, difference in enumerate(self.differences):
            for proxy in difference.proxies:
                of_proxy.setdefault(proxy, []).append(place)
        together: dict[tuple[int, ...], list[Key]] = {}
        for proxy, places in sorted(of_proxy.items()):
            together.setdefault(tuple(places), []).append(proxy)
        groups = (ProxyGroup(tuple(proxies), places) for places, proxies in together.items())
        return tuple(sorted(groups, key=lambda group: -len(group.proxies)))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a change would do."""

    documents: tuple[PlannedDocument, ...]
    meshes: tuple[MeshPlan, ...]
    appearing: tuple[Finding, ...] = ()
    """What lint would say that it does not say now."""

    vanishing: tuple[Finding, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it would change no document."""
        return not self.documents

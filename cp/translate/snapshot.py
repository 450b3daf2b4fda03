"""`Snapshot`: what one proxy should have, as bytes versioned by their content.

A snapshot is a few parts. All proxies of a class share one part, the same object, and each adds a part of its own;
so a thousand proxies that see a thousand services hold a thousand services once, and whatever is worked out
about a shared part (its version, its message, how it differs from its predecessor) is worked out once.

See record 0012 and record 0013.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from types import MappingProxyType
from weakref import WeakKeyDictionary, ref

from cp.model.remembered import remembered

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105  # a type, not a secret

# The order in which a change is sent so that nothing refers to what is not there yet (make before break).
TYPES = (CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET)
SHORT = MappingProxyType(
    {CLUSTER: "clusters", ENDPOINTS: "endpoints", LISTENER: "listeners", ROUTES: "routes", SECRET: "secrets"}
)

_NOTHING: Mapping[str, PackedResource] = MappingProxyType({})
_DIGEST_BITS = 128
_MANY = 32


@dataclass(frozen=True, slots=True)
class PackedResource:
    """One Envoy resource, serialised, hashed and framed once, whoever it is sent to."""

    type_url: str
    name: str
    body: bytes = field(repr=False)
    version: str
    digest: int = field(repr=False, compare=False)
    frame: bytes = field(repr=False, compare=False)
    delta_frame: bytes = field(repr=False, compare=False)

    @classmethod
    def of(cls, type_url: str, name: str, body: bytes) -> PackedResource:
        version = hashlib.sha256(body).hexdigest()[:16]
        inner = text_field(1, type_url) + bytes_field(2, body)
        return cls(
            type_url=type_url,
            name=name,
            body=body,
            version=version,
            digest=digest_of(f"{type_url}\0{name}\0{version}"),
            frame=bytes_field(2, inner),
            delta_frame=bytes_field(2, text_field(1, version) + bytes_field(2, inner) + text_field(3, name)),
        )


class ResourceBatch:
    """Resources of one type that are sent together; every stream that sends the same ones shares one batch."""

    def __init__(self, resources: Iterable[PackedResource] = ()) -> None:
        self.resources = tuple(resources)
        self._messages: dict[bool, tuple[bytes, bytes]] = {}
        self._bodies: dict[bool, bytes] = {}

    @remembered
    def names(self) -> frozenset[str]:
        return frozenset(packed.name for packed in self.resources)

    @remembered
    def digest(self) -> int:
        return sum(packed.digest for packed in self.resources)

    @remembered
    def size(self) -> int:
        return sum(len(packed.frame) for packed in self.resources)

    def frames(self, *, delta: bool) -> Iterator[bytes]:
        return (packed.delta_frame if delta else packed.frame for packed in self.resources)

    def message(self, header: bytes, *, delta: bool) -> bytes:
        """The resources behind a header: the very same object for everyone who asks with the same header."""
        kept = self._messages.get(delta)
        if kept is None or kept[0] != header:
            kept = self._messages[delta] = (header, b"".join((header, *self.frames(delta=delta))))
        return kept[1]

    def body(self, *, delta: bool) -> bytes:
        """The resources for a message in which there are others too. Many are put together once."""
        if len(self.resources) < _MANY:
            return b"".join(self.frames(delta=delta))
        if delta not in self._bodies:
            self._bodies[delta] = b"".join(self.frames(delta=delta))
        return self._bodies[delta]

    def __len__(self) -> int:
        return len(self.resources)

    def __iter__(self) -> Iterator[PackedResource]:
        return iter(self.resources)

    def __eq__(self, other: object) -> bool:
        return self.resources == other.resources if isinstance(other, ResourceBatch) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Batch({[packed.name for packed in self.resources]})"


@dataclass(frozen=True, slots=True)
class PartDifference:
    """What has to be said to get from one set of resources to another."""

    updated: ResourceBatch = field(default_factory=ResourceBatch)
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return len(self.updated) > 0 or len(self.removed) > 0


class SnapshotPart:
    """Some resources that go together, shared by every proxy that has them."""

    __slots__ = ("__weakref__", "_names", "_recent", "_since", "_types", "_versions", "_whole", "digest")

    def __init__(self, resources: Iterable[PackedResource] = ()) -> None:
        types: dict[str, dict[str, PackedResource]] = {}
        for packed in resources:
            types.setdefault(packed.type_url, {})[packed.name] = packed
        self._types = {type_url: dict(sorted(of_type.items())) for type_url, of_type in types.items()}
        self.digest = sum(packed.digest for of_type in self._types.values() for packed in of_type.values())
        self._whole: dict[str, ResourceBatch] = {}
        self._versions: dict[str, Mapping[str, str]] = {}
        self._since: WeakKeyDictionary[SnapshotPart, Mapping[str, PartDifference]] = WeakKeyDictionary()
        self._recent: tuple[ref[SnapshotPart], Mapping[str, PartDifference]] | None = None
        self._names: dict[str, frozenset[str]] = {}

    def of(self, type_url: str) -> Mapping[str, PackedResource]:
        return self._types.get(type_url, _NOTHING)

    def names(self, type_url: str) -> frozenset[str]:
        """The names of a type: one object for all successors in which none came or went."""
        if type_url not in self._names:
            self._names[type_url] = frozenset(self.of(type_url))
        return self._names[type_url]

    def whole(self, type_url: str) -> ResourceBatch:
        """All resources of a type, as one batch."""
        if type_url not in self._whole:
            self._whole[type_url] = ResourceBatch(self.of(type_url).values())
        return self._whole[type_url]

    def versions(self, type_url: str) -> Mapping[str, str]:
        """The version of each resource of a type."""
        if type_url not in self._versions:
            self._versions[type_url] = {name: packed.version for name, packed in self.of(type_url).items()}
        return self._versions[type_url]

    def version(self, type_url: str) -> str:
        """What all resources of a type amount to: equal for equal resources."""
        return version_of(self.whole(type_url).digest)

    def frames(self, type_url: str) -> bytes:
        """The resources of a type as they stand in a state-of-the-world response."""
        return b"".join(self.whole(type_url).frames(delta=False))

    def select(self, type_url: str, names: AbstractSet[str]) -> ResourceBatch:
        """The resources that have these names."""
        of_type = self.of(type_url)
        if of_type.keys() <= names:
            return self.whole(type_url)
        return ResourceBatch(of_type[name] for name in sorted(names & of_type.keys()))

    def since(self, before: SnapshotPart) -> Mapping[str, PartDifference]:
        """How it differs from an earlier part, for each type that does; worked out once for each pair."""
        if self._recent is not None and self._recent[0]() is before:  # as every stream of a class asks
            return self._recent[1]
        known = self._since.get(before)
        if known is None:
            every = dict.fromkeys((*before._types, *self._types))
            differences = {type_url: _difference(before, self, type_url) for type_url in every}
            known = self._since[before] = {t: difference for t, difference in differences.items() if difference}
        self._recent = (ref(before), known)
        return known

    def updated(self, resources: Iterable[PackedResource]) -> SnapshotPart:
        """These resources in place of those of the same names; whole types that stay as they are are shared."""
        changed: dict[str, dict[str, PackedResource]] = {}
        for packed in resources:
            if self.of(packed.type_url)[packed.name] != packed:
                changed.setdefault(packed.type_url, {})[packed.name] = packed
        if not changed:
            return self
        part = SnapshotPart()
        part._types = {url: {**of_type, **changed.get(url, {})} for url, of_type in self._types.items()}
        # Type by type: this runs in a thread, while streams on the event loop may have another type put together.
        kept = ((url, self._whole.get(url)) for url in self._types if url not in changed)
        part._whole = {url: batch for url, batch in kept if batch is not None}
        part._names = self._names  # what either of them works out holds for both
        part.digest = self.digest + sum(
            packed.digest - self.of(url)[name].digest for url, new in changed.items() for name, packed in new.items()
        )
        return part

    def __len__(self) -> int:
        return sum(map(len, self._types.values()))

    def __iter__(self) -> Iterator[PackedResource]:
        for type_url in TYPES:
            yield from self.of(type_url).values()


class Snapshot:
    """Everything that one proxy should have. No name is in two parts."""

    __slots__ = ("parts",)

    def __init__(self, *parts: SnapshotPart) -> None:
        self.parts = parts

    def get(self, type_url: str, name: str) -> PackedResource | None:
        for part in self.parts:
            if (found := part.of(type_url).get(name)) is not None:
                return found
        return None

    def of(self, type_url: str) -> Iterator[PackedResource]:
        for part in self.parts:
            yield from part.of(type_url).values()

    def names(self, type_url: str) -> Iterator[str]:
        for part in self.parts:
            yield from part.of(type_url)

    def count(self, type_url: str) -> int:
        return sum(len(part.of(type_url)) for part in self.parts)

    def digest(self, type_url: str) -> int:
        """A sum over the resources, so that it does not matter how they are cut into parts."""
        return sum(part.whole(type_url).digest for part in self.parts)

    def versions(self, type_url: str) -> Mapping[str, str]:
        """The version of each resource of a type."""
        filled = [part for part in self.parts if part.of(type_url)]
        if len(filled) == 1:
            return filled[0].versions(type_url)
        merged: dict[str, str] = {}
        for part in filled:
            merged.update(part.versions(type_url))
        return merged

    def version(self, type_url: str) -> str:
        """The version of a whole type. Equal content has equal versions, however it is cut into parts."""
        return version_of(self.digest(type_url))

    def frames(self, type_url: str) -> bytes:
        return b"".join(part.frames(type_url) for part in self.parts)

    def whole(self, type_url: str) -> tuple[ResourceBatch, ...]:
        """All resources of a type, in batches that are shared where the parts are."""
        return tuple(part.whole(type_url) for part in self.parts if part.of(type_url))

    def select(self, type_url: str, names: AbstractSet[str]) -> tuple[ResourceBatch, ...]:
        """The resources that have these names, in batches that are shared where the names cover a whole part."""
        return tuple(batch for part in self.parts if (batch := part.select(type_url, names)))

    def steps(self, before: Snapshot, type_url: str) -> tuple[PartDifference, ...]:
        """How the resources of a type differ from those of an earlier snapshot, part by part.

        Shared parts cost nothing, and streams that go from the same part to the same part share the difference.
        """
        ways = self._ways(before)
        steps = tuple(way[type_url] for way in ways if type_url in way)
        moved = {name for step in steps for name in step.removed if self.get(type_url, name) is not None}
        return tuple(filter(None, self._without(moved, before, steps))) if moved else steps

    def touched(self, before: Snapshot) -> frozenset[str]:
        """The types in which it may differ from an earlier snapshot; in all others it does not."""
        return frozenset(chain.from_iterable(self._ways(before)))

    def _ways(self, before: Snapshot) -> list[Mapping[str, PartDifference]]:
        ours = [part for part in self.parts if part not in before.parts]
        theirs = [part for part in before.parts if part not in self.parts]
        return [new.since(old) for new, old in zip_longest(ours, theirs, fillvalue=NO_PART)]

    def since(self, before: Snapshot, type_url: str) -> PartDifference:
        """How the resources of a type differ from those of an earlier snapshot."""
        steps = self.steps(before, type_url)
        if len(steps) == 1:
            return steps[0]
        return PartDifference(
            ResourceBatch(chain.from_iterable(step.updated for step in steps)),
            tuple(chain.from_iterable(step.removed for step in steps)),
        )

    def _without(
        self, moved: AbstractSet[str], before: Snapshot, steps: Iterable[PartDifference]
    ) -> Iterator[PartDifference]:
        """A resource that only moved from one part to another is neither new nor gone."""
        for step in steps:
            updated = (p for p in step.updated if p.name not in moved or before.get(p.type_url, p.name) != p)
            yield PartDifference(ResourceBatch(updated), tuple(name for name in step.removed if name not in moved))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        return sum(part.digest for part in self.parts) == sum(part.digest for part in other.parts)

    __hash__ = None  # type: ignore[assignment]  # equality is by content, and content is not cheap to hash

    def __len__(self) -> int:
        return sum(map(len, self.parts))


NO_PART = SnapshotPart()
EMPTY = Snapshot()


def _difference(before: SnapshotPart, after: SnapshotPart, type_url: str) -> PartDifference:
    old, new = before.of(type_url), after.of(type_url)
    changed = [packed for name, packed in new.items() if name not in old or old[name].version != packed.version]
    updated = after.whole(type_url) if len(changed) == len(new) else ResourceBatch(changed)
    return PartDifference(updated, tuple(name for name in old if name not in new))


def version_of(digest: int) -> str:
    return f"{digest % (1 << 64):016x}"


def digest_of(content: str) -> int:
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[: _DIGEST_BITS // 8])


_LOW_BITS = 0x7F


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > _LOW_BITS:
        out.append((number & _LOW_BITS) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def bytes_field(field_number: int, value: bytes) -> bytes:
    """A length-delimited protobuf field. Messages join by concatenation, so framed resources can be joined too."""
    return _varint(field_number << 3 | 2) + _varint(len(value)) + value


def text_field(field_number: int, value: str) -> bytes:
    return bytes_field(field_number, value.encode())

"""`Snapshot`: everything that one proxy should have, and how that differs from an earlier snapshot.

A snapshot is a few parts. All proxies of a class share one part, the same object, and each adds a part of its own;
so a thousand proxies that see a thousand services hold a thousand services once, and whatever is worked out
about a shared part (its version, its message, how it differs from its predecessor) is worked out once (record 0013).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from types import MappingProxyType
from weakref import WeakKeyDictionary, ref

from cp.translate.packing import SECRET, TYPES, PackedResource, ResourceBatch, version_of

_NOTHING: Mapping[str, PackedResource] = MappingProxyType({})


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
            type_urls = dict.fromkeys((*before._types, *self._types))
            differences = {type_url: _difference(before, self, type_url) for type_url in type_urls}
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
    """Everything that one proxy should have. No name is in two parts.

    `active_parts` are what was made for the proxy. While its listeners drain it is sent more (record 0098): `parts` has
    what old listeners need too, and `draining`, the last of these parts, is for old listeners alone.
    """

    __slots__ = ("active_parts", "draining", "parts")

    def __init__(
        self,
        *active_parts: SnapshotPart,
        draining: tuple[SnapshotPart, ...] = (),
        sent_parts: tuple[SnapshotPart, ...] | None = None,
    ) -> None:
        """`sent_parts` are the active parts as they are sent, if they are not sent as they are."""
        self.active_parts = active_parts
        self.draining = draining
        self.parts = (*(active_parts if sent_parts is None else sent_parts), *draining)

    def with_part(self, part: SnapshotPart) -> Snapshot:
        """With a part in place of those that have one of its secrets."""
        kept = (other for other in self.active_parts if other.names(SECRET).isdisjoint(part.names(SECRET)))
        return Snapshot(*kept, part, draining=self.draining)

    def without(self, part: SnapshotPart) -> Snapshot:
        kept = (other for other in self.active_parts if other is not part)
        return Snapshot(*kept, draining=self.draining)

    def has_same_active_parts(self, other: Snapshot) -> bool:
        """The active parts of both have the same content."""
        return _digest(self.active_parts) == _digest(other.active_parts)

    def get(self, type_url: str, name: str) -> PackedResource | None:
        for part in self.parts:
            if (packed := part.of(type_url).get(name)) is not None:
                return packed
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

    def active_version(self, type_url: str) -> str:
        """The version of a whole type as it is sent, without what is for draining listeners alone."""
        active = self.parts[: len(self.parts) - len(self.draining)]
        return version_of(sum(part.whole(type_url).digest for part in active))

    def frames(self, type_url: str) -> bytes:
        return b"".join(part.frames(type_url) for part in self.parts)

    def whole(self, type_url: str) -> tuple[ResourceBatch, ...]:
        """All resources of a type, in batches that are shared where the parts are."""
        return tuple(part.whole(type_url) for part in self.parts if part.of(type_url))

    def select(self, type_url: str, names: AbstractSet[str]) -> tuple[ResourceBatch, ...]:
        """The resources that have these names, in batches that are shared where the names cover a whole part."""
        return tuple(batch for part in self.parts if part.of(type_url) and (batch := part.select(type_url, names)))

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
        return [new.since(old) for new, old in pairs_of(self.parts, before.parts)]

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
            updated = step.updated
            if not updated.names.isdisjoint(moved):  # otherwise it stays the batch that other streams share
                kept = (p for p in updated if p.name not in moved or before.get(p.type_url, p.name) != p)
                updated = ResourceBatch(kept)
            yield PartDifference(updated, tuple(name for name in step.removed if name not in moved))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        return _digest(self.parts) == _digest(other.parts)

    __hash__ = None  # type: ignore[assignment]  # equality is by content, and content is not cheap to hash

    def __len__(self) -> int:
        return sum(map(len, self.parts))


NO_PART = SnapshotPart()
EMPTY = Snapshot()


def pairs_of(
    after: Iterable[SnapshotPart], before: Iterable[SnapshotPart]
) -> Iterator[tuple[SnapshotPart, SnapshotPart]]:
    """The parts that differ: each new one with an old one whose place it takes, or with `NO_PART`."""
    after, before = tuple(after), tuple(before)
    new_parts = (part for part in after if part not in before)
    old_parts = (part for part in before if part not in after)
    return zip_longest(new_parts, old_parts, fillvalue=NO_PART)


def _digest(parts: Iterable[SnapshotPart]) -> int:
    return sum(part.digest for part in parts)


def _difference(before: SnapshotPart, after: SnapshotPart, type_url: str) -> PartDifference:
    old, new = before.of(type_url), after.of(type_url)
    changed = [packed for name, packed in new.items() if name not in old or old[name].version != packed.version]
    updated = after.whole(type_url) if len(changed) == len(new) else ResourceBatch(changed)
    return PartDifference(updated, tuple(name for name in old if name not in new))

"""`ClientResources`: what a client has of one type, without a list of it.

It has what `base` has, a snapshot that all streams share, but for the few names that stand `apart`: what it refused,
what it is to lose only later, what it brought along from an earlier stream.
"""

from __future__ import annotations

from collections.abc import Iterable

from cp.ads.session.messages import NackedResource
from cp.translate.packing import CLUSTER, LISTENER, PackedResource, ResourceBatch
from cp.translate.snapshot import EMPTY, PartDifference, Snapshot, SnapshotPart

# Types that a client may ask for without a name; what is gone is taken out of them. Of the others Envoy keeps the last
# value it had, and drops it by unsubscribing.
LISTED = frozenset({CLUSTER, LISTENER})

ABSENT, UNKNOWN = "", "?"


_MANY = 32


class Subscription:
    """What a client wants of one type: all there is, or these names."""

    __slots__ = ("_covered", "names", "type_url", "wildcard")

    def __init__(self, type_url: str) -> None:
        self.type_url = type_url
        self.wildcard = False
        self.names: frozenset[str] = frozenset()
        self._covered: tuple[frozenset[str], frozenset[str]] | None = None

    def __contains__(self, name: str) -> bool:
        return self.wildcard or name in self.names

    def of(self, snapshot: Snapshot) -> tuple[ResourceBatch, ...]:
        if self.wildcard:
            return snapshot.whole(self.type_url)
        return tuple(batch for part in snapshot.parts if (batch := self._of(part)))

    def _of(self, part: SnapshotPart) -> ResourceBatch:
        """A part whose names are all asked for goes on being so; that is found out once for it and its successors."""
        there = part.names(self.type_url)
        if self._covered is not None and self._covered[0] is self.names and self._covered[1] is there:
            return part.whole(self.type_url)
        if len(there) >= _MANY and there <= self.names:
            self._covered = (self.names, there)
        return part.select(self.type_url, self.names)

    def news(self, updated: ResourceBatch, but: frozenset[str]) -> ResourceBatch:
        if not but and (self.wildcard or updated.names <= self.names):
            return updated
        return ResourceBatch(packed for packed in updated if packed.name in self and packed.name not in but)


class ClientResources:
    __slots__ = ("_keeps", "_kept", "_subscription", "_type_url", "apart", "base", "refused")

    def __init__(self, subscription: Subscription, *, keeps: bool) -> None:
        self.base = EMPTY
        self.apart: dict[str, str] = {}  # name -> the version that the client has instead of that in `base`
        self.refused: dict[str, str] = {}
        self._kept: dict[str, PackedResource] = {}  # what the client has instead, where that has to be repeated
        self._keeps = keeps
        self._subscription = subscription
        self._type_url = subscription.type_url

    @property
    def is_even(self) -> bool:
        """Nothing stands apart that is still to be said."""
        return not (self.refused or (self.apart and self._type_url in LISTED))

    def is_refused(self, packed: PackedResource | None) -> bool:
        return packed is not None and self.refused.get(packed.name) == packed.version

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.apart.pop(name, None)
            self.refused.pop(name, None)
            self._kept.pop(name, None)

    # --- on the way to another snapshot ---

    def follow(self, step: PartDifference, fresh: frozenset[str]) -> ResourceBatch:
        """What is new to the client in one step; what vanished stands apart until something is said about it."""
        but = fresh | self.apart.keys() if self.apart else fresh
        for name in step.removed:
            if name in self._subscription and name not in but:
                self._set_apart(name, self.base.get(self._type_url, name))
        return self._subscription.news(step.updated, but)

    def _set_apart(self, name: str, has: PackedResource | None) -> None:
        self.apart[name] = UNKNOWN if has is None else has.version
        if self._keeps and has is not None:
            self._kept[name] = has

    def settle(self, wanted: Snapshot, fallback: Snapshot, *, removing: bool) -> tuple[list[PackedResource], list[str]]:
        """What can be said now of the names that stand apart: new content, or that they are gone."""
        updated: list[PackedResource] = []
        removed: list[str] = []
        goes = removing and self._type_url in LISTED
        for name, has in list(self.apart.items()):
            want = wanted.get(self._type_url, name) or fallback.get(self._type_url, name)
            if self.is_refused(want):
                continue
            self.refused.pop(name, None)
            if want is not None:
                self.take(want, wanted)
                updated += [want] if want.version != has else []
            elif goes:
                del self.apart[name]
                removed.append(name)
        return updated, removed

    def take(self, packed: PackedResource, wanted: Snapshot) -> None:
        """The client has it now. What is only there for a while still, behind the snapshot, stands apart."""
        if wanted.get(self._type_url, packed.name) is None:
            self.apart[packed.name] = packed.version
        else:
            self.apart.pop(packed.name, None)

    # --- what the client says ---

    def accept(self) -> None:
        for name in self._kept.keys() - self.apart.keys():
            del self._kept[name]

    def quarantine(self, updated: list[PackedResource], culprits: list[PackedResource], good: Snapshot) -> None:
        """Hold back what was refused until it changes; what came with it may not have been applied: say it again."""
        for packed in updated:
            if self.base.get(self._type_url, packed.name) == packed and self._is_at_base(packed.name):
                self.apart[packed.name] = UNKNOWN
                self._keep(good.get(self._type_url, packed.name), packed)
                if packed in culprits:
                    self.refused[packed.name] = packed.version

    def repeat_removal(self, names: Iterable[str]) -> None:
        for name in names:
            if self.base.get(self._type_url, name) is None and self._is_at_base(name):
                self.apart[name] = UNKNOWN

    def release(self, names: Iterable[str]) -> None:
        """Let these be sent again, though they were refused."""
        for name in names:
            self.refused.pop(name, None)

    @property
    def held(self) -> tuple[NackedResource, ...]:
        """What was refused, and what the client has instead."""
        found = ((name, version, self._kept.get(name)) for name, version in self.refused.items())
        return tuple(
            NackedResource(name, version, "" if kept is None else kept.version) for name, version, kept in found
        )

    def _is_at_base(self, name: str) -> bool:
        return name in self._subscription and name not in self.apart

    def _keep(self, good: PackedResource | None, refused: PackedResource) -> None:
        if good is not None and good != refused:
            self._kept.setdefault(refused.name, good)

    # --- what it amounts to ---

    def content(self, snapshot: Snapshot) -> tuple[ResourceBatch, ...]:
        """All that the client should have now: also what goes only later, or stays in place of what was refused."""
        asked = self._subscription.of(snapshot)
        if not self.apart:
            return asked
        stays = [packed for batch in asked for packed in batch if packed.name not in self.apart]
        kept = [self._kept[name] for name in self.apart if name in self._kept]
        return (ResourceBatch(stays + kept),)

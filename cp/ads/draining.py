"""`DrainingResources`: resources that an edit took from proxies, kept until the listeners that used them have drained.

Envoy keeps the connections of a listener that was replaced, for as long as its drain time, and what they are sent goes
to the clusters of the old configuration. So a cluster, its endpoints or a route table that disappears from what a proxy
should have stays in its snapshot, as one of the parts in `Snapshot.draining`. The drain time begins when the proxy has
ACKed the edit: before that its old listeners are still in use.

A cluster that stays, but is no longer one of HTTP, keeps its HTTP options for as long: HTTP/2 that old listeners send
through it would become HTTP/1. A listener that proxies TCP does not use them.

Secrets are not kept: Envoy keeps a secret by itself for as long as a listener or a cluster refers to it, and a secret
that was withdrawn is not sent to anyone again. Neither are listeners, whose removal is what starts the draining.

What two proxies lose at once is one part for both, and moments of expiry lie on a grid, so that it stays one part for
both. There is no I/O in here: `PublisherSide.end_drains` waits for `next_expiry` and takes what is `expired`.

See record 0098.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from cp.translate.packing import CLUSTER, ENDPOINTS, ROUTES, SHORT, PackedResource
from cp.translate.snapshot import NO_PART, Snapshot, SnapshotPart, pairs_of

KEPT_TYPES: Final = (CLUSTER, ENDPOINTS, ROUTES)

_HTTP: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
"""The key of a cluster's HTTP options, and of what a part has in place of a type for those that a cluster lost."""

MOST_RESOURCES: Final = 1_000
"""Resources that a proxy keeps at most, unless it had more before the edit: a single edit never exceeds the limit."""

MOST_BYTES: Final = 8 * 1024 * 1024
"""The same for the bytes of these resources."""

_MARGIN: Final = 1.0
"""Seconds beyond the drain time: a worker of Envoy begins to drain a moment after the ACK."""

_STEPS: Final = 4
"""Expiry is rounded up to a multiple of this part of the drain time, which bounds how many parts a proxy has."""

_WAITING: Final = math.inf
"""The moment of expiry of what was lost with an edit that the proxy has not ACKed."""


Names: TypeAlias = AbstractSet[tuple[str, str]]
"""The types and names of some resources."""


@dataclass(frozen=True, slots=True)
class DrainingResource:
    """A resource that a proxy has only for draining listeners."""

    type_url: str
    name: str
    until: float | None
    """When it is removed, in seconds since 1970; None until the proxy has ACKed the edit that took it."""


class DrainingResources:
    """Those of all proxies."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """The clock tells seconds, and never goes back."""
        self._clock = clock
        self._kept: dict[str, dict[float, SnapshotPart]] = {}
        """Proxy -> moment of expiry -> resources. No name is in two parts of a proxy, or also in its active parts."""

        self._due: dict[float, set[str]] = {}
        self._lost = _PairMemo(_lost)
        self._joined = _PairMemo(_joined)
        self._without = _PairMemo(_without)
        self._with_options = _PairMemo(_with_options)
        self.dropped = 0
        """Resources that were removed before the end of their drain time, to stay within the limits."""

    def keep(
        self, proxy: str, before: Snapshot, snapshot: Snapshot, nacked: Callable[[], Names] = frozenset
    ) -> Snapshot:
        """Return the next snapshot of a proxy, with all that it loses by it and that may still be in use.

        `nacked` returns what the proxy does not have, because it NACKed it.
        """
        lost = self._lost_between(before, snapshot)
        if lost is not NO_PART:
            lost = _except(lost, nacked())
        kept = self._kept.pop(proxy, {})
        if not kept and lost is NO_PART:
            return snapshot
        new_parts = [part for part in snapshot.active_parts if part not in before.active_parts]
        kept = {until: self._outside(part, new_parts) for until, part in kept.items()}
        self._add(kept, _WAITING, lost)
        kept = {until: kept[until] for until in sorted(kept) if kept[until] is not NO_PART}
        self._limit(kept, lost, before)
        if kept:
            self._kept[proxy] = kept
        return self.with_draining(snapshot, tuple(kept.values()))

    def with_draining(self, snapshot: Snapshot, draining: tuple[SnapshotPart, ...]) -> Snapshot:
        """The active parts of a snapshot, with what is kept."""
        sent_parts = snapshot.active_parts
        for kept in (part for part in draining if part.of(_HTTP)):
            sent_parts = tuple(
                part if part.names(CLUSTER).isdisjoint(kept.names(_HTTP)) else self._with_options(part, kept)
                for part in sent_parts
            )
        return Snapshot(*snapshot.active_parts, draining=draining, sent_parts=sent_parts)

    def start(self, proxy: str, seconds: float) -> bool:
        """Begin the drain time of what a proxy lost by edits that it has ACKed by now. Returns whether it lost any."""
        kept = self._kept.get(proxy)
        if kept is None or _WAITING not in kept:
            return False
        step = max(seconds, 1.0) / _STEPS
        until = math.ceil((self._clock() + seconds + _MARGIN) / step) * step
        self._add(kept, until, kept.pop(_WAITING))
        self._due.setdefault(until, set()).add(proxy)
        return True

    def next_expiry(self) -> float | None:
        """When something expires next; None while nothing drains."""
        return min(self._due, default=None)

    def expired(self) -> Iterator[tuple[str, tuple[SnapshotPart, ...]]]:
        """The proxies for which something has expired since the last time, and what they keep."""
        now = self._clock()
        for until in [until for until in self._due if until <= now]:
            for proxy in self._due.pop(until):
                kept = self._kept.get(proxy, {})
                if kept.pop(until, None) is None:
                    continue
                yield proxy, tuple(kept[later] for later in sorted(kept))
                if not kept:
                    del self._kept[proxy]

    def drop(self, proxy: str, nacked: Names) -> tuple[SnapshotPart, ...] | None:
        """Keep no longer what a proxy has NACKed. Returns what it keeps, or None if nothing has changed."""
        before = self._kept.get(proxy, {})
        kept = {until: _except(part, nacked) for until, part in before.items()}
        if kept == before:
            return None
        self._kept[proxy] = {until: part for until, part in kept.items() if part is not NO_PART}
        return tuple(self._kept[proxy].values())

    def forget(self, proxy: str) -> None:
        self._kept.pop(proxy, None)

    def of(self, proxy: str, now: float) -> Iterator[DrainingResource]:
        """The resources that a proxy keeps. `now` is in seconds since 1970."""
        for until, part in self._kept.get(proxy, {}).items():
            moment = None if until == _WAITING else now + until - self._clock()
            yield from (DrainingResource(*_shown(packed), moment) for packed in _all(part))

    def counts(self) -> Mapping[str, int]:
        """How many resources of each type proxies keep; a resource counts for each proxy that has it."""
        counts = Counter({SHORT[type_url]: 0 for type_url in KEPT_TYPES})
        for kept in self._kept.values():
            for part in kept.values():
                counts.update({SHORT[type_url]: len(part.of(type_url)) for type_url in KEPT_TYPES})
        return counts

    def _lost_between(self, before: Snapshot, snapshot: Snapshot) -> SnapshotPart:
        lost = NO_PART
        for new, old in pairs_of(snapshot.active_parts, before.active_parts):
            lost = self._both(lost, self._lost(new, old))
        return self._outside(lost, snapshot.active_parts)  # a resource may have moved from one part to another

    def _outside(self, part: SnapshotPart, parts: Iterable[SnapshotPart]) -> SnapshotPart:
        """The resources of a part that are in none of some parts."""
        for other in parts:
            if part is not NO_PART and _share_names(part, other):
                part = self._without(part, other)
        return part

    def _both(self, first: SnapshotPart, second: SnapshotPart) -> SnapshotPart:
        if first is NO_PART or second is NO_PART:
            return second if first is NO_PART else first
        return self._joined(first, second)

    def _add(self, kept: dict[float, SnapshotPart], until: float, part: SnapshotPart) -> None:
        kept[until] = self._both(kept.get(until, NO_PART), part)

    def _limit(self, kept: dict[float, SnapshotPart], newest: SnapshotPart, before: Snapshot) -> None:
        """Drop the oldest parts until the others are within the limits."""
        most = max(MOST_RESOURCES, sum(map(len, before.active_parts)))
        most_bytes = max(MOST_BYTES, _size(before.active_parts))
        while sum(map(len, kept.values())) > most or _size(kept.values()) > most_bytes:
            oldest = next(iter(kept))
            dropped = kept.pop(oldest)
            if oldest == _WAITING and newest is not NO_PART:
                kept[oldest] = newest
            self.dropped += len(dropped) - len(kept.get(oldest, ()))


class _PairMemo:
    """Results for two parts, computed once for all proxies that have both. It keeps neither of them alive."""

    def __init__(self, compute: Callable[[SnapshotPart, SnapshotPart], SnapshotPart]) -> None:
        self._compute = compute
        self._known: WeakKeyDictionary[SnapshotPart, WeakKeyDictionary[SnapshotPart, SnapshotPart | None]]
        self._known = WeakKeyDictionary()

    def __call__(self, first: SnapshotPart, second: SnapshotPart) -> SnapshotPart:
        of_first = self._known.setdefault(first, WeakKeyDictionary())
        if second not in of_first:
            computed = self._compute(first, second)
            of_first[second] = None if computed is first else computed  # it would keep itself alive
        known = of_first[second]
        return first if known is None else known


def _lost(new: SnapshotPart, old: SnapshotPart) -> SnapshotPart:
    differences = new.since(old)
    urls = [type_url for type_url in KEPT_TYPES if type_url in differences]
    lost = [old.of(type_url)[name] for type_url in urls for name in differences[type_url].removed]
    if CLUSTER in differences:
        clusters = old.of(CLUSTER)
        changed = ((clusters.get(after.name), after) for after in differences[CLUSTER].updated)
        less = (before for before, after in changed if before and _has_options(before) > _has_options(after))
        lost += filter(None, map(_options, less))
    return _part(lost)


def _has_options(cluster: PackedResource) -> bool:
    """It is a cluster of HTTP."""
    return _HTTP.encode() in cluster.body


def _options(cluster: PackedResource) -> PackedResource | None:
    """The HTTP options of a cluster: fields that make it one of HTTP again when they are appended to it.

    None for those that need a certain transport socket, which the cluster may have lost too.
    """
    options = Cluster.FromString(cluster.body).typed_extension_protocol_options
    http = HttpProtocolOptions.FromString(options[_HTTP].value)
    if http.HasField("auto_config"):
        return None
    body = Cluster(typed_extension_protocol_options=options).SerializeToString(deterministic=True)
    return PackedResource.of(_HTTP, cluster.name, body)


def _with_options(part: SnapshotPart, kept: SnapshotPart) -> SnapshotPart:
    """A part whose clusters have the HTTP options that are kept for them, unless they have others."""
    clusters, options = part.of(CLUSTER), kept.of(_HTTP)
    changed = [clusters[name] for name in options if name in clusters and not _has_options(clusters[name])]
    return part.updated(PackedResource.of(CLUSTER, old.name, old.body + options[old.name].body) for old in changed)


def _share_names(part: SnapshotPart, other: SnapshotPart) -> bool:
    """True if both have a resource under one name, of a type that is kept."""
    return not all(part.names(type_url).isdisjoint(other.names(type_url)) for type_url in KEPT_TYPES)


def _joined(first: SnapshotPart, second: SnapshotPart) -> SnapshotPart:
    return _part((*_all(first), *_all(second)))


def _without(part: SnapshotPart, other: SnapshotPart) -> SnapshotPart:
    return _part(packed for packed in _all(part) if packed.name not in other.of(packed.type_url))


def _except(part: SnapshotPart, names: Names) -> SnapshotPart:
    if not names or not any(_shown(packed) in names for packed in _all(part)):
        return part
    return _part(packed for packed in _all(part) if _shown(packed) not in names)


def _shown(packed: PackedResource) -> tuple[str, str]:
    """The type and name of the resource that an operator sees."""
    return (CLUSTER if packed.type_url == _HTTP else packed.type_url, packed.name)


def _all(part: SnapshotPart) -> Iterator[PackedResource]:
    for type_url in (*KEPT_TYPES, _HTTP):
        yield from part.of(type_url).values()


def _part(resources: Iterable[PackedResource]) -> SnapshotPart:
    part = SnapshotPart(resources)
    return part if len(part) else NO_PART


def _size(parts: Iterable[SnapshotPart]) -> int:
    return sum(part.whole(type_url).size for part in parts for type_url in KEPT_TYPES)

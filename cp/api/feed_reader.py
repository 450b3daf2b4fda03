"""`FeedReader`: what one reader of the feed may know and does not know yet, as server-sent events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Any, Final, Self, TypeAlias

import msgspec

from cp.api.caller import ApiCaller
from cp.api.fleet_data import FleetNews
from cp.api.numbers import natural
from cp.api.recent_changes import RecentChanges
from cp.api.write_data import write_data
from cp.serving.instances.fleet import Fleet
from cp.store.port import ChangeNote, Closed, Store, Unusable

_DATAPLANE: Final = "Dataplane"
_PARTS: Final = 4

Event: TypeAlias = tuple["FeedPlace", bytes]
"""An event, and the place of a reader who has it."""


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """Up to where a reader has been told everything: a version of a fleet, and a revision of the store."""

    fleet: str
    audience: str
    """Who he was, with which rights: he has been told nothing else."""

    version: int
    revision: int

    @classmethod
    def in_fleet(cls, fleet: Fleet, caller: ApiCaller) -> Self:
        """That of somebody who knows the whole fleet of now."""
        return cls(fleet.id, audience_of(caller), fleet.version, fleet.revision)

    @classmethod
    def parse(cls, text: str) -> Self:
        """What is no place of ours is a place in a fleet that is not there."""
        parts = text.split(".")
        version, revision = (natural(part) for part in parts[2:]) if len(parts) == _PARTS else (None, None)
        return cls("", "", 0, 0) if version is None or revision is None else cls(parts[0], parts[1], version, revision)

    def __str__(self) -> str:
        return f"{self.fleet}.{self.audience}.{self.version}.{self.revision}"


def audience_of(caller: ApiCaller) -> str:
    """Names a user with his rights. In another process the same user has another name."""
    return f"{hash((caller.user, caller.rights)) & 0xFFFF_FFFF_FFFF_FFFF:x}"


@dataclass(frozen=True, slots=True)
class FeedSources:
    """What all feeds share."""

    fleet: Fleet
    news: FleetNews
    changes: RecentChanges
    store: Store
    follows: Callable[[], bool]

    @classmethod
    def of(cls, fleet: Fleet, store: Store, follows: Callable[[], bool]) -> Self:
        return cls(fleet, FleetNews(fleet), RecentChanges(store), store, follows)

    async def refresh(self) -> None:
        """Find out what is new. While the store is away that is the fleet alone; changes are read when it is back."""
        await self.fleet.refreshed()
        with suppress(Unusable, Closed):
            await self.changes.read_up_to(self.fleet.revision, self.fleet.id)

    @property
    def contact(self) -> Mapping[str, Any]:
        """Whether the store can be read and written, as `/ready` says it, and how many of the others do not answer."""
        outage, refusal = self.store.outage, self.store.refusal
        return {"follows": self.follows(), "writes": not (outage or refusal), "silent": self.fleet.silent}


class FeedReader:
    """`place` is where the reader was before; None: it begins now."""

    def __init__(self, caller: ApiCaller, sources: FeedSources, place: FeedPlace | None) -> None:
        self._sources, self._place = sources, place
        self._served: int | None = None
        """The revision of the last event `world` of this connection."""

        self._contact: Mapping[str, Any] = {}
        """The data of its last event `contact`."""

        self.judge(caller)

    def judge(self, caller: ApiCaller) -> None:
        """Note who reads, and what he may see by now."""
        self._caller, self._audience = caller, audience_of(caller)
        self._may_read = cache(lambda mesh: caller.may_read(_DATAPLANE, mesh))

    async def news(self) -> bytes:
        """Events about what has happened since the last time. Each has the id of the place that it leads to."""
        sources, read = self._sources, self._sources.changes
        # Both before the first await: what others read meanwhile belongs to a later place.
        before, now = self._place, FeedPlace(read.count, self._audience, sources.fleet.version, read.newest)
        changes = () if before is None else read.since(before.revision)
        rows: Mapping[str, bytes] | None = {}
        if before is not None and before.fleet == now.fleet:
            rows = await sources.news.since(before.version)
        self._place = now
        if before is None:
            events = [*self._state(now)]
        elif reason := _gap(before, now, changes, rows):
            events = [(now, event("reload", {"reason": reason})), *self._state(now)]
        else:
            events = [*self._state(before), *self._changes(before, changes or ()), *self._fleet(now, rows or {})]
        if events:  # who has the last one has been told everything
            events[-1] = (now, events[-1][1])
        return b"".join(b"id: %s\n%s" % (str(place).encode(), text) for place, text in events)

    def _state(self, place: FeedPlace) -> Iterator[Event]:
        """What is told at the beginning of a connection, and again when it has changed. It leads to no other place."""
        if self._served != self._sources.fleet.revision:
            self._served = self._sources.fleet.revision
            yield place, event("world", {"revision": self._served})
        if self._contact != (contact := self._sources.contact):
            self._contact = contact
            yield place, event("contact", contact)

    def _changes(self, before: FeedPlace, changes: Sequence[ChangeNote]) -> Iterator[Event]:
        """An event for each write."""
        readable = (change for change in changes if self._caller.may_read_key(change.key))
        for revision, of_write in groupby(readable, key=lambda change: change.revision):
            yield replace(before, revision=revision), event("changes", write_data(list(of_write)))

    def _fleet(self, now: FeedPlace, rows: Mapping[str, bytes]) -> Iterator[Event]:
        readable = [msgspec.json.encode(mesh) + b":" + rows[mesh] for mesh in rows if self._may_read(mesh)]
        if readable:
            meshes = b",".join(readable)
            data = b'{"silent":%d,"meshes":{%s}}' % (self._sources.fleet.silent, meshes)
            yield now, b"event: fleet\ndata: %s\n\n" % data


def _gap(
    before: FeedPlace, now: FeedPlace, changes: Sequence[ChangeNote] | None, rows: Mapping[str, bytes] | None
) -> str:
    """Why a reader cannot be told everything that has happened since a place; empty where he can."""
    if before.fleet == now.fleet and before.audience != now.audience:
        return "other things may be read now"
    if before.fleet != now.fleet or changes is None or rows is None:
        return "what has happened since is not remembered"
    return ""


def event(name: str, data: Mapping[str, Any]) -> bytes:
    """JSON has no line breaks of its own."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))

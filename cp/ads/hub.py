"""`Hub`: the newest snapshot of each proxy, and who is connected; between those who compute and those who serve.

There are no queues: whoever is slow gets the newest when it is ready for it. Everything happens on the event loop;
who computes in a thread comes back with `loop.call_soon_threadsafe(hub.publish, ...)`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from cp.ads.connection import Connection as Connection
from cp.ads.connection import ConnectionRecord
from cp.ads.connection import StreamSession as StreamSession
from cp.ads.session import wire
from cp.ads.session.messages import Nack, Node
from cp.ads.session.name_sets import NameSets
from cp.metrics import Metrics
from cp.translate.snapshot import Snapshot

REMEMBERED: Final = 10_000
"""Proxies that are gone of which it is remembered when they were here."""


class ProxyWatch:
    """For one who waits: the proxies that came, went or answered since he looked last."""

    def __init__(self) -> None:
        self._proxies: set[str] = set()
        self._any = asyncio.Event()

    def tell(self, proxy: str) -> None:
        self._proxies.add(proxy)
        self._any.set()

    async def news(self) -> frozenset[str]:
        await self._any.wait()
        self._any.clear()
        told, self._proxies = frozenset(self._proxies), set()
        return told


class Hub:
    def __init__(self, clock: Callable[[], float] = time.time, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self.names = NameSets(wire.said)
        self.metrics = Metrics() if metrics is None else metrics
        self._snapshots: dict[str, Snapshot] = {}
        self._unconfirmed: set[str] = set()  # proxies that have left: their snapshot, if any, may be outdated
        self._behind: dict[str, float] = {}  # since when proxies have not confirmed what is published
        self._under_way: dict[str, float] = {}  # proxies that have not confirmed a change yet, and when it was made
        self._seats: dict[str, list[Connection]] = {}
        self._doubtful: set[str] = set()  # proxies whose last stream broke off while something was under way
        self._arrived: dict[str, Node] = {}
        self._departed: set[str] = set()
        self._arrival = asyncio.Event()
        self._answer = asyncio.Event()
        self._waiting = 0
        self._watches: list[ProxyWatch] = []
        self._left: dict[str, ConnectionRecord] = {}
        self._refusing: set[str] = set()
        self._refusal = asyncio.Event()

    # --- for those who compute ---

    def publish(self, proxy: str, snapshot: Snapshot, changed: float | None = None) -> bool:
        """Make this the newest snapshot of a proxy, and wake its streams unless it has the same content already.

        `changed` is the moment (`monotonic`) of the change from which it follows, if it follows from one.
        """
        known = self._snapshots.get(proxy)
        if known is not None and known == snapshot:
            self.confirm(proxy)
            return False
        if proxy in self._seats:  # who has left meanwhile is not told of what is changed from now on
            self._unconfirmed.discard(proxy)
        is_next = proxy not in self._behind or self.is_in_sync(proxy)
        if is_next:
            self._behind[proxy] = self._clock()
        if changed is not None and (is_next or proxy not in self._under_way):
            self._under_way[proxy] = changed
        self._snapshots[proxy] = snapshot
        for seat in self._seats.get(proxy, ()):
            seat.wake()
        return True

    def confirm(self, proxy: str) -> None:
        """The snapshot of a proxy that came back is still its newest, or the last that could be made."""
        if proxy in self._unconfirmed and proxy in self._seats:
            self._unconfirmed.remove(proxy)
            for seat in self._seats[proxy]:
                seat.wake()

    def knows(self, proxy: str) -> bool:
        """Whether the proxy was given a snapshot before, in this visit or an earlier one."""
        return proxy in self._snapshots

    def forget(self, proxy: str) -> None:
        """The proxy is no more."""
        self._snapshots.pop(proxy, None)
        self._unconfirmed.discard(proxy)
        self._behind.pop(proxy, None)
        self._left.pop(proxy, None)
        self._doubtful.discard(proxy)
        self._under_way.pop(proxy, None)

    async def arrivals(self) -> Mapping[str, Node]:
        """Wait for proxies to connect: all that did since the last time."""
        await self._arrival.wait()
        self._arrival.clear()
        arrived, self._arrived = self._arrived, {}
        return arrived

    @property
    def arriving(self) -> frozenset[str]:
        """The proxies that `arrivals` would answer with now."""
        return frozenset(self._arrived)

    def departures(self) -> frozenset[str]:
        """All proxies whose last stream ended since the last time; some of them may be back."""
        departed, self._departed = frozenset(self._departed), set()
        return departed

    async def refusing(self) -> frozenset[str]:
        """Wait for proxies to refuse something: all that did since the last time."""
        await self._refusal.wait()
        self._refusal.clear()
        refusing, self._refusing = frozenset(self._refusing), set()
        return refusing

    # --- for those who serve ---

    def newest(self, proxy: str) -> Snapshot | None:
        """What a proxy should have; nothing until that is known.

        What is kept from an earlier visit may be from before a change that everybody else has. It is no answer until
        whoever computes has looked at who came back, and so a proxy is never told twice.
        """
        return None if proxy in self._unconfirmed else self._snapshots.get(proxy)

    def trusts(self, proxy: str) -> bool:
        """The versions that the proxy names on a new stream tell what it has."""
        return proxy not in self._doubtful and all(seat.session.is_settled for seat in self.of(proxy))

    @contextmanager
    def seat(self, seat: Connection) -> Iterator[Connection]:
        """Take part for as long as the stream lasts."""
        proxy = seat.node.id
        seat.since = seat.heard_at = self._clock()
        self._seats.setdefault(proxy, []).append(seat)
        self._arrived[proxy] = seat.node
        self._arrival.set()
        self._news(proxy)
        try:
            yield seat
        finally:
            self._leave(proxy, seat)

    def _leave(self, proxy: str, seat: Connection) -> None:
        self._seats[proxy].remove(seat)
        (self._doubtful.discard if seat.session.is_settled else self._doubtful.add)(proxy)
        if not self._seats[proxy]:
            del self._seats[proxy]
            self._departed.add(proxy)
            self._unconfirmed.add(proxy)  # also what is still being computed for it may be outdated when it returns
            self._under_way.pop(proxy, None)
            self._left.pop(proxy, None)
            self._left[proxy] = seat.visit(until=self._clock())
            if len(self._left) > REMEMBERED:
                del self._left[next(iter(self._left))]
        self._news(proxy)

    def answered(self, seat: Connection, type_url: str, nack: Nack | None = None) -> None:
        """A client said something to a response."""
        seat.hear(type_url, nack, self._clock())
        if nack is not None:
            self._refusing.add(seat.node.id)
            self._refusal.set()
        self.caught_up(seat)

    def caught_up(self, seat: Connection) -> None:
        """A client may have all that it should have: it answered, or there was nothing to say."""
        proxy = seat.node.id
        if proxy in self._behind and self.is_in_sync(proxy):
            del self._behind[proxy]
            if (changed := self._under_way.pop(proxy, None)) is not None:
                self.metrics.in_force_after(changed)
        self._news(proxy)

    def _news(self, proxy: str) -> None:
        """Whoever waits for something may look again."""
        for watch in self._watches:
            watch.tell(proxy)
        if self._waiting > 0:
            self._answer.set()
            self._answer = asyncio.Event()

    # --- for those who want to know ---

    @property
    def seats(self) -> Mapping[str, tuple[Connection, ...]]:
        """The streams of each connected proxy."""
        return {proxy: tuple(seats) for proxy, seats in self._seats.items()}

    def of(self, proxy: str) -> tuple[Connection, ...]:
        return tuple(self._seats.get(proxy, ()))

    def streams(self) -> Mapping[str, int]:
        """How many streams there are of each kind."""
        return Counter(seat.kind for seats in self._seats.values() for seat in seats)

    def standings(self) -> Mapping[str, int]:
        """How many connected proxies are in sync, behind, or refuse something."""
        found = Counter({"in sync": 0, "behind": 0, "refusing": 0})
        for proxy, seats in self._seats.items():
            settled = self.is_in_sync(proxy)
            refusing = not settled and any(seat.refusals for seat in seats)
            found["in sync" if settled else "refusing" if refusing else "behind"] += 1
        return found

    def is_in_sync(self, proxy: str) -> bool:
        """The proxy is connected, and every stream of it has confirmed everything that it should have."""
        snapshot, seats = self.newest(proxy), self._seats.get(proxy)
        return snapshot is not None and seats is not None and all(s.session.is_at(snapshot) for s in seats)

    def since(self, proxy: str) -> float | None:
        """Since when a connected proxy has been in sync, or not."""
        seats = self.of(proxy)
        if not seats:
            return None
        if self.is_in_sync(proxy):
            return max(seat.heard_at for seat in seats)
        return max(self._behind.get(proxy, 0.0), min(seat.since for seat in seats))

    def left(self, proxy: str) -> ConnectionRecord | None:
        """When a proxy that is not connected was so last."""
        return self._left.get(proxy)

    def now(self) -> float:
        """The moment, on the clock by which everything here is timed."""
        return self._clock()

    @contextmanager
    def watch(self) -> Iterator[ProxyWatch]:
        """Hear of every proxy that comes, goes or answers, for as long as the block lasts."""
        watch = ProxyWatch()
        self._watches.append(watch)
        try:
            yield watch
        finally:
            self._watches.remove(watch)

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until something holds that depends on what clients answer."""
        self._waiting += 1
        try:
            while not done():
                await self._answer.wait()
        finally:
            self._waiting -= 1

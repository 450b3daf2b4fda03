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
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

from cp.ads.messages import Nack, Node, Status
from cp.metrics import Metrics
from cp.snapshot import Snapshot


class Session(Protocol):
    """What the hub asks of a stream's session."""

    @property
    def statuses(self) -> tuple[Status, ...]: ...

    @property
    def is_settled(self) -> bool: ...

    def is_at(self, snapshot: Snapshot) -> bool: ...


@dataclass(slots=True, eq=False)
class Seat:
    """A connected stream, as seen from outside. Times are those of the hub's clock."""

    node: Node
    kind: str
    session: Session
    wake: Callable[[], None]
    since: float = 0.0
    heard_at: float = 0.0  # when it answered a response last

    @property
    def refusals(self) -> tuple[Nack, ...]:
        return tuple(nack for status in self.session.statuses for nack in status.refused)


class Hub:
    def __init__(self, clock: Callable[[], float] = time.time, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self.metrics = Metrics() if metrics is None else metrics
        self._snapshots: dict[str, Snapshot] = {}
        self._published: dict[str, float] = {}
        self._under_way: dict[str, float] = {}  # proxies that have not confirmed a change yet, and when it was made
        self._seats: dict[str, list[Seat]] = {}
        self._doubtful: set[str] = set()  # proxies whose last stream broke off while something was under way
        self._arrived: dict[str, Node] = {}
        self._arrival = asyncio.Event()
        self._answer = asyncio.Event()
        self._waiting = 0
        self._names: WeakValueDictionary[int, frozenset[str]] = WeakValueDictionary()

    # --- for those who compute ---

    def publish(self, proxy: str, snapshot: Snapshot, changed: float | None = None) -> bool:
        """Make this the newest snapshot of a proxy, and wake its streams unless it has the same content already.

        `changed` is the moment (`monotonic`) of the change from which it follows, if it follows from one.
        """
        known = self._snapshots.get(proxy)
        if known is not None and known == snapshot:
            return False
        if changed is not None and (proxy not in self._under_way or self.is_in_sync(proxy)):
            self._under_way[proxy] = changed
        self._snapshots[proxy], self._published[proxy] = snapshot, self._clock()
        for seat in self._seats.get(proxy, ()):
            seat.wake()
        return True

    def forget(self, proxy: str) -> None:
        """The proxy is no more. Streams that it still has keep what they were sent."""
        self._snapshots.pop(proxy, None)
        self._published.pop(proxy, None)
        self._doubtful.discard(proxy)
        self._under_way.pop(proxy, None)

    async def arrivals(self) -> Mapping[str, Node]:
        """Wait for proxies to connect: all that did since the last time."""
        await self._arrival.wait()
        self._arrival.clear()
        arrived, self._arrived = self._arrived, {}
        return arrived

    # --- for those who serve ---

    def newest(self, proxy: str) -> Snapshot | None:
        return self._snapshots.get(proxy)

    def trusts(self, proxy: str) -> bool:
        """The versions that the proxy names on a new stream tell what it has."""
        return proxy not in self._doubtful and all(seat.session.is_settled for seat in self.of(proxy))

    @contextmanager
    def seat(self, seat: Seat) -> Iterator[Seat]:
        """Take part for as long as the stream lasts."""
        proxy = seat.node.id
        seat.since = seat.heard_at = self._clock()
        self._seats.setdefault(proxy, []).append(seat)
        self._arrived[proxy] = seat.node
        self._arrival.set()
        try:
            yield seat
        finally:
            self._leave(proxy, seat)

    def _leave(self, proxy: str, seat: Seat) -> None:
        self._seats[proxy].remove(seat)
        (self._doubtful.discard if seat.session.is_settled else self._doubtful.add)(proxy)
        if not self._seats[proxy]:
            del self._seats[proxy]
            self._under_way.pop(proxy, None)
        self._news()

    def answered(self, seat: Seat) -> None:
        """A client said something to a response."""
        seat.heard_at = self._clock()
        proxy = seat.node.id
        if proxy in self._under_way and self.is_in_sync(proxy):
            self.metrics.in_force_after(self._under_way.pop(proxy))
        self._news()

    def _news(self) -> None:
        """Whoever waits for something may look again."""
        if self._waiting > 0:
            self._answer.set()
            self._answer = asyncio.Event()

    def shared(self, names: frozenset[str]) -> frozenset[str]:
        """One set for all streams that ask for the same names, as those of a class do."""
        known = self._names.get(hash(names))
        if known is not None and known == names:
            return known
        self._names[hash(names)] = names
        return names

    # --- for those who want to know ---

    @property
    def seats(self) -> Mapping[str, tuple[Seat, ...]]:
        """The streams of each connected proxy."""
        return {proxy: tuple(seats) for proxy, seats in self._seats.items()}

    def of(self, proxy: str) -> tuple[Seat, ...]:
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
        snapshot, seats = self._snapshots.get(proxy), self._seats.get(proxy)
        return snapshot is not None and seats is not None and all(s.session.is_at(snapshot) for s in seats)

    def since(self, proxy: str) -> float | None:
        """Since when a connected proxy has been in sync, or not."""
        seats = self.of(proxy)
        if not seats:
            return None
        if self.is_in_sync(proxy):
            return max(seat.heard_at for seat in seats)
        return max(self._published.get(proxy, 0.0), min(seat.since for seat in seats))

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until something holds that depends on what clients answer."""
        self._waiting += 1
        try:
            while not done():
                await self._answer.wait()
        finally:
            self._waiting -= 1

"""`Hub`: the newest snapshot of each proxy, and which proxies are connected.

Three audiences meet here, and each has a side of its own:

    publisher   `PublisherSide`   makes snapshots, and wants to know for whom
    streams     `StreamSide`      send them to proxies, and tell what proxies answer
    observer    `ObserverSide`    asks where proxies stand, or waits for that to change

There are no queues: a slow stream gets the newest snapshot when it is ready for it, and never those before.

There are no locks either. Everything happens on the event loop, and no method awaits between two changes of the state
that belong together. Whoever computes in a thread comes back with `loop.call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from cp.ads.connection import Connection, ConnectionRecord, drain_time
from cp.ads.draining import DrainingResource, DrainingResources
from cp.ads.push_tally import PushTally
from cp.ads.session import wire
from cp.ads.session.messages import Nack, Node
from cp.ads.session.name_sets import NameSets
from cp.metrics import Metrics
from cp.model.names import dataplane_key
from cp.precedence import Precedence
from cp.translate.packing import SHORT
from cp.translate.snapshot import EMPTY, Snapshot, SnapshotPart

REMEMBERED: Final = 10_000
"""Proxies that have left of which it is remembered when they were connected."""


_LONGEST_SLEEP: Final = 1.0
"""Seconds after which a sooner moment of expiry is noticed."""


class ProxyWatch:
    """The proxies of which there is news since the last question: one audience, one watch."""

    def __init__(self) -> None:
        self._proxies: dict[str, None] = {}
        self._has_news = asyncio.Event()

    def tell(self, proxy: str) -> None:
        self._proxies[proxy] = None
        self._has_news.set()

    async def news(self) -> frozenset[str]:
        """Wait for news: all proxies of which there was some since the last time."""
        await self._has_news.wait()
        return self.take()

    def take(self) -> frozenset[str]:
        self._has_news.clear()
        proxies, self._proxies = self.proxies, {}
        return proxies

    @property
    def proxies(self) -> frozenset[str]:
        """The proxies that `news` would return now."""
        return frozenset(self._proxies)


@dataclass(slots=True, eq=False)
class _HubState:
    """What the three sides share. All keys are node ids."""

    clock: Callable[[], float]  # tells dates, and may be set; `stopwatch` never goes back
    stopwatch: Callable[[], float]
    metrics: Metrics
    drain_time: float
    draining: DrainingResources
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    # Proxies that have left since their snapshot was published, which may so be from before a change that they miss.
    unconfirmed: set[str] = field(default_factory=set)
    behind_since: dict[str, float] = field(default_factory=dict)  # of proxies that have not ACKed all of their snapshot
    changed_at: dict[str, float] = field(default_factory=dict)  # the same: when the change was made (`monotonic`)
    connections: dict[str, list[Connection]] = field(default_factory=dict)
    last_connections: dict[str, ConnectionRecord] = field(default_factory=dict)  # of proxies that have left
    unsettled: set[str] = field(default_factory=set)  # proxies whose last stream broke off while something was pending
    certified: Counter[str] = field(default_factory=Counter)  # how many streams of a gRPC client find certificates
    arrivals: ProxyWatch = field(default_factory=ProxyWatch)
    departures: ProxyWatch = field(default_factory=ProxyWatch)
    nacks: ProxyWatch = field(default_factory=ProxyWatch)
    has_drains: asyncio.Event = field(default_factory=asyncio.Event)
    watches: list[ProxyWatch] = field(default_factory=list)
    tallies: list[PushTally] = field(default_factory=list)

    late_meshes: dict[str, float] = field(default_factory=dict)  # since when a change waits that is not computed

    def newest(self, proxy: str) -> Snapshot | None:
        """What a proxy should have; nothing until that is known.

        A snapshot of an earlier visit may be from before a change that everybody else has. It counts only once the
        publisher has looked at who came back, so that a proxy is not sent something old and then something new.
        """
        return None if proxy in self.unconfirmed else self.snapshots.get(proxy)

    def connections_of(self, proxy: str) -> tuple[Connection, ...]:
        return tuple(self.connections.get(proxy, ()))

    def is_in_sync(self, proxy: str) -> bool:
        """The proxy is connected, and has ACKed on each of its streams all that it should have."""
        return self.late_since(proxy) is None and self.has_acked(proxy)

    def late_since(self, proxy: str) -> float | None:
        """Since when a change waits that may concern a proxy; None if none does."""
        return self.late_meshes.get(dataplane_key(proxy).mesh) if self.late_meshes else None

    def has_acked(self, proxy: str) -> bool:
        """The proxy is connected, and has ACKed on each of its streams all that it was given."""
        snapshot, connections = self.newest(proxy), self.connections.get(proxy)
        if snapshot is None or connections is None:
            return False
        return all(connection.session.is_at(snapshot) for connection in connections)

    def held_back(self, proxy: str) -> frozenset[tuple[str, str]]:
        """The types and names of what a proxy does not have, because it NACKed it."""
        statuses = (status for connection in self.connections_of(proxy) for status in connection.session.statuses)
        return frozenset((status.type_url, held.name) for status in statuses for held in status.held_back)

    def drain_time_of(self, proxy: str) -> float:
        """How long the listeners of a proxy drain, in seconds."""
        connections = self.connections.get(proxy, ())
        times = (drain_time(connection.node, self.drain_time) for connection in connections)
        return max(times, default=self.drain_time)

    def replace(self, proxy: str, snapshot: Snapshot) -> bool:
        """Set the newest snapshot of a proxy and wake its streams. Returns whether the proxy was not behind before."""
        # A proxy that is still behind stays so since the first change that it has not ACKed.
        is_newly_behind = proxy not in self.behind_since or self.has_acked(proxy)
        if is_newly_behind:
            self.behind_since[proxy] = self.clock()
        self.snapshots[proxy] = snapshot
        self.wake(proxy)
        return is_newly_behind

    def wake(self, proxy: str) -> None:
        for connection in self.connections.get(proxy, ()):
            connection.wake()

    def tell_watches(self, proxy: str) -> None:
        for watch in self.watches:
            watch.tell(proxy)


class PublisherSide:
    """For whoever makes snapshots."""

    def __init__(self, state: _HubState) -> None:
        self._state = state
        self.metrics = state.metrics

    def publish(self, proxy: str, snapshot: Snapshot, changed: float | None = None) -> bool:
        """Make this the newest snapshot of a proxy, and wake its streams unless it has the same content already.

        `changed` is the moment (`monotonic`) of the change from which it follows, if it follows from one.
        """
        state = self._state
        published = state.snapshots.get(proxy)
        # Most changes change nothing for most proxies. The snapshot that is there stays, the object that sessions have.
        if published is not None and published.has_same_active_parts(snapshot):
            self.confirm(proxy)
            return False
        if published is not None and state.drain_time_of(proxy) > 0:
            snapshot = state.draining.keep(proxy, published, snapshot, partial(state.held_back, proxy))
        else:
            state.draining.forget(proxy)
        if proxy in state.connections:  # a proxy that has left misses the changes from now on, so it stays unconfirmed
            state.unconfirmed.discard(proxy)
        is_newly_behind = state.replace(proxy, snapshot)
        if changed is not None and (is_newly_behind or proxy not in state.changed_at):
            state.changed_at[proxy] = changed
        return True

    async def end_drains(self) -> None:
        """Remove from proxies, until cancelled, what their listeners have stopped using (`DrainingResources`)."""
        state = self._state
        while True:
            if (moment := state.draining.next_expiry()) is None:  # no clock runs while nothing drains
                state.has_drains.clear()
                await state.has_drains.wait()
                continue
            await asyncio.sleep(min(max(moment - state.stopwatch(), 0.0), _LONGEST_SLEEP))
            for proxy, draining in state.draining.expired():
                state.replace(proxy, state.draining.with_draining(state.snapshots[proxy], draining))

    def confirm(self, proxy: str) -> None:
        """The snapshot of a proxy that came back is still its newest, or the last that could be made."""
        if proxy in self._state.unconfirmed and proxy in self._state.connections:
            self._state.unconfirmed.remove(proxy)
            self._state.wake(proxy)

    def publish_part(self, proxy: str, part: SnapshotPart) -> bool:
        """Replace a part of the newest snapshot of a proxy, of which nothing else is known now."""
        snapshot = self._state.snapshots.get(proxy)
        return snapshot is not None and self.publish(proxy, snapshot.with_part(part))

    def withdraw(self, proxy: str, part: SnapshotPart) -> None:
        """Keep no longer a part of what a proxy that has left was given; it is given another one when it is back."""
        snapshot = self._state.snapshots.get(proxy)
        if snapshot is not None and proxy not in self._state.connections:
            self._state.snapshots[proxy] = snapshot.without(part)

    def knows(self, proxy: str) -> bool:
        """Whether the proxy was given a snapshot before, in this visit or an earlier one."""
        return proxy in self._state.snapshots

    def forget(self, proxy: str) -> None:
        """The proxy is gone for good."""
        state = self._state
        state.snapshots.pop(proxy, None)
        state.draining.forget(proxy)
        state.unconfirmed.discard(proxy)
        state.behind_since.pop(proxy, None)
        state.last_connections.pop(proxy, None)
        state.unsettled.discard(proxy)
        state.changed_at.pop(proxy, None)

    def note_late(self, mesh: str) -> None:
        """Count no proxy of a mesh as in sync: a change that may concern it is not computed yet."""
        self._state.late_meshes.setdefault(mesh, self._state.clock())
        self._tell_of_mesh(mesh)

    def note_caught_up(self, mesh: str) -> None:
        self._state.late_meshes.pop(mesh, None)
        self._tell_of_mesh(mesh)

    def _tell_of_mesh(self, mesh: str) -> None:
        for proxy in self._state.connections:
            if dataplane_key(proxy).mesh == mesh:
                self._state.tell_watches(proxy)

    async def arrivals(self) -> frozenset[str]:
        """Wait for proxies to connect: all that did since the last time."""
        return await self._state.arrivals.news()

    @property
    def arriving(self) -> frozenset[str]:
        """The proxies that `arrivals` would return now."""
        return self._state.arrivals.proxies

    def departures(self) -> frozenset[str]:
        """All proxies whose last stream ended since the last time; some of them may be back."""
        return self._state.departures.take()

    def is_connected(self, proxy: str) -> bool:
        return proxy in self._state.connections

    @property
    def certified_clients(self) -> frozenset[str]:
        """The gRPC clients of which a stream says that the library finds certificates."""
        return frozenset(self._state.certified)

    def now(self) -> float:
        """The moment, on the clock by which everything here is timed."""
        return self._state.clock()


class StreamSide:
    """For the streams that serve proxies."""

    def __init__(self, state: _HubState) -> None:
        self._state = state
        self.metrics = state.metrics
        self.names = NameSets(wire.encoded_names)

    def newest(self, proxy: str) -> Snapshot | None:
        """What a proxy should have; nothing until that is known."""
        return self._state.newest(proxy)

    def given(self, proxy: str) -> Snapshot:
        """What a proxy should have or, while that is not known, what it was given last."""
        return self._state.snapshots.get(proxy, EMPTY)

    def unknown_drain_time(self, node: Node) -> float:
        """How long listeners may drain of which this process knows nothing: those of a proxy that is new to it."""
        return 0.0 if node.id in self._state.snapshots else drain_time(node, self._state.drain_time)

    def note_start(self, connection: Connection) -> None:
        """The client has just started, so that no listener of it drains."""
        state, proxy = self._state, connection.node.id
        snapshot = state.snapshots.get(proxy)
        if snapshot is not None and snapshot.draining and len(state.connections[proxy]) == 1:
            state.draining.forget(proxy)
            state.snapshots[proxy] = Snapshot(*snapshot.active_parts)

    def trusts_versions(self, proxy: str) -> bool:
        """The versions that the proxy names on a new stream tell what it has."""
        connections = self._state.connections.get(proxy, ())
        return proxy not in self._state.unsettled and all(connection.session.is_settled for connection in connections)

    @contextmanager
    def connected(self, connection: Connection) -> Iterator[Connection]:
        """Count a proxy as connected for as long as the block lasts."""
        state, proxy = self._state, connection.node.id
        connection.since = connection.answered_at = state.clock()
        state.connections.setdefault(proxy, []).append(connection)
        if connection.finds_certificates:
            state.certified[proxy] += 1
            if state.certified[proxy] == 1:  # what others under its name were given is without TLS
                state.unconfirmed.add(proxy)
        state.arrivals.tell(proxy)
        state.tell_watches(proxy)
        try:
            yield connection
        finally:
            self._disconnect(proxy, connection)

    def _disconnect(self, proxy: str, connection: Connection) -> None:
        state = self._state
        state.connections[proxy].remove(connection)
        if connection.finds_certificates:
            self._forget_certificates(proxy)
        # A proxy that left while a response was pending may have applied it or not, whatever version it names later.
        (state.unsettled.discard if connection.session.is_settled else state.unsettled.add)(proxy)
        if not state.connections[proxy]:
            del state.connections[proxy]
            state.departures.tell(proxy)
            state.unconfirmed.add(proxy)  # also what is still being computed for it may be outdated when it returns
            state.changed_at.pop(proxy, None)
            self._remember(proxy, connection.record(until=state.clock()))
        state.tell_watches(proxy)

    def _forget_certificates(self, proxy: str) -> None:
        """The last stream that found certificates may leave others, which are to be served without them from now on."""
        state = self._state
        state.certified[proxy] -= 1
        if not state.certified[proxy]:
            del state.certified[proxy]
            if state.connections[proxy]:
                state.arrivals.tell(proxy)

    def _remember(self, proxy: str, record: ConnectionRecord) -> None:
        records = self._state.last_connections
        records.pop(proxy, None)  # so that the newest is the last, and the first is the oldest
        records[proxy] = record
        if len(records) > REMEMBERED:
            del records[next(iter(records))]

    def sending(self, connection: Connection, type_name: str, resources: int, size: int) -> None:
        """A client is about to be sent a response. Its answer may come before it is known to be written."""
        for tally in self._state.tallies:
            tally.sent(connection.node.id, type_name, resources, size)

    def answered(self, connection: Connection, type_url: str, nack: Nack | None = None) -> None:
        """A client has ACKed or NACKed a response."""
        connection.note_answer(type_url, nack, self._state.clock())
        for tally in self._state.tallies:
            tally.answered(connection.node.id, SHORT[type_url], is_ack=nack is None)
        if nack is not None:
            self._state.nacks.tell(connection.node.id)
            self._drop_nacked(connection.node.id)
        self.caught_up(connection)

    def _drop_nacked(self, proxy: str) -> None:
        """What a proxy NACKed it does not use, so that it need not be kept for its listeners."""
        state = self._state
        draining = state.draining.drop(proxy, state.held_back(proxy))
        if draining is not None:
            state.replace(proxy, state.draining.with_draining(state.snapshots[proxy], draining))

    def caught_up(self, connection: Connection) -> None:
        """A client may have all that it should have: it has answered, or there was nothing to send."""
        state, proxy = self._state, connection.node.id
        # Only a proxy that is behind is looked at: `has_acked` goes through all channels of all its streams.
        if proxy in state.behind_since and state.has_acked(proxy):
            del state.behind_since[proxy]
            if state.draining.start(proxy, state.drain_time_of(proxy)):
                state.has_drains.set()
            if (changed := state.changed_at.pop(proxy, None)) is not None:
                state.metrics.in_force_after(changed)
        state.tell_watches(proxy)


class ObserverSide:
    """For whoever asks where proxies stand."""

    def __init__(self, state: _HubState) -> None:
        self._state = state

    @property
    def connections(self) -> Mapping[str, tuple[Connection, ...]]:
        """The connections of each connected proxy."""
        return {proxy: tuple(connections) for proxy, connections in self._state.connections.items()}

    def of(self, proxy: str) -> tuple[Connection, ...]:
        return self._state.connections_of(proxy)

    @property
    def behind(self) -> tuple[str, ...]:
        """The connected proxies that have not ACKed all that they should have."""
        return tuple(proxy for proxy in self._state.behind_since if proxy in self._state.connections)

    @property
    def departed(self) -> tuple[str, ...]:
        """The proxies that are not connected, as far as they are remembered."""
        return tuple(proxy for proxy in self._state.last_connections if proxy not in self._state.connections)

    def newest(self, proxy: str) -> Snapshot | None:
        """What a proxy should have; nothing until that is known."""
        return self._state.newest(proxy)

    def is_in_sync(self, proxy: str) -> bool:
        """The proxy is connected, and has ACKed on each of its streams all that it should have."""
        return self._state.is_in_sync(proxy)

    def late_since(self, proxy: str) -> float | None:
        """Since when a change waits that may concern a proxy and is not computed yet; None if none does."""
        return self._state.late_since(proxy)

    def draining(self, proxy: str) -> tuple[DrainingResource, ...]:
        """The resources that a connected proxy has only for draining listeners."""
        state = self._state
        return tuple(state.draining.of(proxy, state.clock())) if proxy in state.connections else ()

    def draining_counts(self) -> Mapping[str, int]:
        """How many resources of each type proxies have only for draining listeners."""
        return self._state.draining.counts()

    def dropped_early(self) -> int:
        """How many resources were removed before the end of a drain time, to stay within the limits."""
        return self._state.draining.dropped

    def since(self, proxy: str) -> float | None:
        """Since when a connected proxy has been in sync, or not."""
        connections = self.of(proxy)
        if not connections:
            return None
        if self.is_in_sync(proxy):
            return max(connection.answered_at for connection in connections)
        connected_since = min(connection.since for connection in connections)
        behind_since = self._state.behind_since.get(proxy) or self._state.late_since(proxy) or 0.0
        return max(behind_since, connected_since)

    def last_connection(self, proxy: str) -> ConnectionRecord | None:
        """The newest connection of a proxy that is not connected now."""
        return self._state.last_connections.get(proxy)

    def stream_counts(self) -> Mapping[str, int]:
        """How many streams there are of each kind."""
        connected = self._state.connections.values()
        return Counter(connection.kind for connections in connected for connection in connections)

    def standings(self) -> Mapping[str, int]:
        """How many connected proxies are in sync, are behind, or NACK something."""
        counts = Counter({"in sync": 0, "behind": 0, "refusing": 0})
        counts.update(self._standing(proxy) for proxy in self._state.connections)
        return counts

    def _standing(self, proxy: str) -> str:
        if self.is_in_sync(proxy):
            return "in sync"
        return "refusing" if any(connection.nacks for connection in self.of(proxy)) else "behind"

    async def nacking(self) -> frozenset[str]:
        """Wait for proxies to NACK something: all that did since the last time."""
        return await self._state.nacks.news()

    def add_tally(self, tally: PushTally) -> None:
        """Count what is sent and answered from now on."""
        self._state.tallies.append(tally)

    def remove_tally(self, tally: PushTally) -> None:
        self._state.tallies.remove(tally)

    @contextmanager
    def watch(self) -> Iterator[ProxyWatch]:
        """Hear of every proxy that comes, goes or answers, for as long as the block lasts."""
        watch = ProxyWatch()
        self._state.watches.append(watch)
        try:
            yield watch
        finally:
            self._state.watches.remove(watch)


class Hub:
    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        metrics: Metrics | None = None,
        *,
        drain_time: float = 0.0,
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        """`drain_time`: how long listeners drain, in seconds, of proxies that do not say so themselves.

        The clock is for dates; what lasts is measured with the stopwatch, which nobody sets.
        """
        shared_metrics = Metrics() if metrics is None else metrics
        state = _HubState(clock, stopwatch, shared_metrics, drain_time, DrainingResources(stopwatch))
        self.publisher = PublisherSide(state)
        self.streams = StreamSide(state)
        self.observer = ObserverSide(state)
        self.metrics = state.metrics
        self.precedence = Precedence()
        """Claimed while changes are computed, and while streams have something to do."""

"""Control planes on one database as discrete events: what waits for what, and for how long.

A write, as it is simulated:

    the instance that is asked   its program, and one question to the database
    its queue of writes          those that wait go into one transaction, 64 at the most
    the transaction              five round trips; from the second on it has the row that all writers lock
    the commit                   a wait for the disk, and a notification to each instance
    each instance                asks what is new, once for all news that came while it asked the last time
    its turn                     when no change has come for a moment, or after a while in any case
    its proxies                  are each sent what differs, and answer

The pauses and limits are those of the control plane itself, the costs are what a run has measured (`costs`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from bench.instances.costs import Costs
from bench.instances.events import Clock, News, Process, Processors, Program, Queue, Wait
from cp.serving.instances.fleet import EVERY
from cp.serving.reconcile import Pace
from cp.store.postgres.address import CONNECTIONS
from cp.store.postgres.rows import MOST_TOGETHER

STATEMENTS: Final = 5
"""Round trips of a transaction that writes: it begins, locks, reads, writes and commits."""

ANSWER: Final = 0.25
"""The part of what a proxy costs that comes with its answer."""

BEAT: Final = 0.5
"""Seconds after which is spent what an instance spends at rest."""

LOCK: Final = "the lock of the writers"
FULL: Final = 0.9
"""From this share of its time on something is called full."""

DRAIN: Final = 5.0
"""Seconds after the last write in which all must be in force: else writes come faster than they are served."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What runs where."""

    instances: int
    proxies: int
    """Of each instance."""

    shared: int = 0
    """The processors on which all of it runs, clients and proxies as well; 0: each on a machine of its own."""

    database: int = 4
    """Processors of the database, unless all share some."""

    network: float = 0.0
    """Seconds from one machine to another."""

    has_readers: bool = False
    """Whether somebody follows the feed of each instance, as pages do: these then ask each other."""

    statements: int = STATEMENTS
    """Fewer than there are: it locks, reads and writes at once, and commits."""

    pause: float = 0.0
    """Seconds for which an instance collects news before it asks what is new: none, in the control plane that is."""


@dataclass(frozen=True, slots=True)
class Traffic:
    seconds: float
    writes: float = 0.0
    """In a second, that concern no proxy. They go to the instances in turn."""

    edit_every: float = 0.0
    """Seconds between writes that concern every proxy, at the first instance; 0: there are none."""

    is_even: bool = False
    """Whether writes come in equal distances, as those of the bench do, and not by chance."""

    clients: int = 0
    """Of each instance, that write again as soon as they are answered."""

    asked: int = 0
    """How many instances are written to; 0: all."""

    seed: int = 1


@dataclass(eq=False, slots=True)
class Write:
    began: float
    concerns_proxies: bool
    committed: News
    missing: int = 0
    """How many proxies do not have it yet."""


@dataclass(slots=True)
class Outcome:
    """What was seen. Times are in seconds since a write was begun."""

    answered: list[float] = field(default_factory=list)
    served: list[float] = field(default_factory=list)
    """Until a turn with it is over, of each write at each instance."""

    at_proxies: list[float] = field(default_factory=list)
    """Until a proxy has an edit, of each edit at each proxy."""

    in_force: list[float] = field(default_factory=list)
    """Until the last proxy has it, of each edit."""

    begun: int = 0
    edits: int = 0
    transactions: int = 0
    reads: int = 0
    turns: int = 0
    is_kept_up: bool = False
    """Whether all that was written is known everywhere and in force soon after the last write."""

    writes_a_second: float = 0.0
    instance_cpu: float = 0.0
    """Processor seconds of an instance in a second, and of the database."""

    database_cpu: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of the time of writing, by what was busy for so long."""

    def note_at_proxy(self, write: Write, moment: float) -> None:
        self.at_proxies.append(moment - write.began)
        write.missing -= 1
        if write.missing == 0:
            self.in_force.append(moment - write.began)

    @property
    def busiest(self) -> str:
        """What there is too little of, if there is. The lock is held by who waits for a processor, too."""
        processors = {name: share for name, share in self.shares.items() if name != LOCK}
        busiest = max(processors, key=lambda name: processors[name])
        return busiest if processors[busiest] >= min(FULL, self.shares[LOCK]) else LOCK


class Simulation:
    def __init__(self, costs: Costs, layout: Layout, traffic: Traffic) -> None:
        self.costs, self.layout, self.traffic = costs, layout, traffic
        self.clock, self.outcome = Clock(), Outcome()
        self.shared = Processors(self.clock, layout.shared, costs.slowed) if layout.shared > 0 else None
        self.database = Database(self)
        self.planes = [Plane(self) for _ in range(layout.instances)]
        self._clients = self.program() if layout.shared > 0 else None
        self._chance = random.Random(traffic.seed)

    def run(self) -> Outcome:
        for process in self._processes():
            self.clock.start(process)
        outcome, seconds = self.outcome, self.traffic.seconds
        self.clock.run(seconds)
        outcome.shares = self._shares()
        outcome.writes_a_second = len(outcome.answered) / seconds
        outcome.instance_cpu = sum(plane.program.spent for plane in self.planes) / len(self.planes) / seconds
        outcome.database_cpu = self.database.spent / seconds
        self.clock.run(seconds + DRAIN)
        at_proxies = outcome.edits * self.layout.instances * self.layout.proxies
        outcome.is_kept_up = len(outcome.at_proxies) == at_proxies and all(
            count == outcome.begun for count in (len(outcome.answered), *(plane.seen for plane in self.planes))
        )
        return outcome

    def program(self) -> Program:
        """One more, on a machine of its own unless all share one."""
        return Program(self.clock, self.shared or Processors(self.clock, 1))

    @property
    def network(self) -> Wait:
        return self.clock.pause(self.layout.network)

    def _processes(self) -> Iterator[Process]:
        for plane in self.planes:
            yield from (plane.commits(), plane.follows(), plane.turns(), plane.rests())
            yield from (self._client(plane) for _ in range(self.traffic.clients))
            if self.layout.has_readers:
                yield plane.asks_others()
        if self.traffic.writes > 0:
            yield self._writes()
        if self.traffic.edit_every > 0:
            yield self._edits()

    def _writes(self) -> Process:
        asked = self.planes[: self.traffic.asked or None]
        for number in count():
            seconds = 1 / self.traffic.writes
            yield self.clock.pause(seconds if self.traffic.is_even else self._chance.expovariate(1 / seconds))
            if self.clock.now > self.traffic.seconds:
                return
            self.clock.start(self._write(asked[number % len(asked)], concerns_proxies=False))

    def _edits(self) -> Process:
        while True:
            yield self.clock.pause(self.traffic.edit_every)
            if self.clock.now > self.traffic.seconds:
                return
            self.outcome.edits += 1
            self.clock.start(self._write(self.planes[0], concerns_proxies=True))

    def _client(self, plane: Plane) -> Process:
        while self.clock.now < self.traffic.seconds:
            yield from self._write(plane, concerns_proxies=False)

    def _write(self, plane: Plane, *, concerns_proxies: bool) -> Process:
        missing = self.layout.instances * self.layout.proxies if concerns_proxies else 0
        write = Write(self.clock.now, concerns_proxies, News(self.clock), missing)
        self.outcome.begun += 1
        if self._clients is not None:
            yield from self._clients.work(self.costs.client)
        yield self.network
        yield from plane.asked(write)
        yield self.network
        self.outcome.answered.append(self.clock.now - write.began)

    def _shares(self) -> dict[str, float]:
        programs = max(plane.program.queue.share for plane in self.planes)
        shares = {"an instance": programs, LOCK: self.database.head.share}
        if self.shared is not None:
            return {**shares, "the processors of all": self.shared.queue.share}
        return {**shares, "the processors of the database": self.database.processors.queue.share}


class Database:
    """Its log is the writes in the order of their commits."""

    def __init__(self, simulation: Simulation) -> None:
        clock, layout = simulation.clock, simulation.layout
        self.processors = simulation.shared or Processors(clock, layout.database)
        self.head = Queue(clock)
        self.log: list[Write] = []
        self.spent = 0.0
        """Processor seconds."""

        self._simulation = simulation

    def work(self, seconds: float) -> Process:
        self.spent += seconds
        yield from self.processors.work(seconds)

    def commit(self, writes: list[Write]) -> None:
        self.log += writes
        self.head.leave()
        for plane in self._simulation.planes:
            self._simulation.clock.start(self._notify(plane))

    def _notify(self, plane: Plane) -> Process:
        yield from self.work(self._simulation.costs.database_notice)
        yield self._simulation.network
        plane.news.publish()


class Plane:
    """An instance, with the proxies that are connected to it."""

    def __init__(self, simulation: Simulation) -> None:
        clock = simulation.clock
        self._simulation, self._costs, self._clock = simulation, simulation.costs, clock
        self._pace, self._outcome = Pace(), simulation.outcome
        self.program = simulation.program()
        self._proxies = simulation.program() if simulation.shared is not None else None
        self._connections = Queue(clock, CONNECTIONS)
        self._waiting: deque[Write] = deque()
        self._arrivals, self.news, self._wake = News(clock), News(clock), News(clock)
        self._pending: list[Write] = []
        self._batches = self.seen = 0
        """Up to which place in the log of the database it knows the writes."""

    # --- what it writes ---

    def asked(self, write: Write) -> Process:
        """Make a write, for somebody who waits for it."""
        yield from self.program.work(self._costs.request)
        yield from self._statement(0, self._costs.database_question)  # how far the store is
        self._waiting.append(write)
        self._arrivals.publish()
        yield write.committed.after(0)

    def commits(self) -> Process:
        while True:
            edition = self._arrivals.edition
            if not self._waiting:
                yield self._arrivals.after(edition)
            together = [self._waiting.popleft() for _ in range(min(MOST_TOGETHER, len(self._waiting)))]
            if together:
                yield from self._transaction(together)

    def _transaction(self, together: list[Write]) -> Process:
        costs, database, writes = self._costs, self._simulation.database, len(together)
        statements = self._simulation.layout.statements
        here = (costs.transaction + costs.row * writes) / statements
        there = (costs.database_transaction + costs.database_row * writes) / statements
        self._outcome.transactions += 1
        yield self._connections.enter
        for _ in range(statements - 4):  # begins
            yield from self._statement(here, there)
        yield from self._statement(here, there, database.head.enter)
        for _ in range(min(2, statements - 2)):  # reads, and writes
            yield from self._statement(here, there)
        yield from self.program.work(here)
        yield self._simulation.network
        yield from database.work(there)
        yield self._clock.pause(costs.disk)
        database.commit(together)
        yield self._simulation.network
        self._connections.leave()
        for write in together:
            write.committed.publish()

    def _statement(self, here: float, there: float, before: Wait | None = None) -> Process:
        yield from self.program.work(here)
        yield self._simulation.network
        if before is not None:
            yield before
        yield from self._simulation.database.work(there)
        yield self._simulation.network

    # --- what it serves ---

    def follows(self) -> Process:
        database, costs = self._simulation.database, self._costs
        while True:
            edition = self.news.edition
            yield self._connections.enter
            yield from self.program.work(costs.read / 2)
            yield self._simulation.network
            yield from database.work(costs.database_read)
            newest = len(database.log)
            yield self._simulation.network
            yield from self.program.work(costs.read / 2)
            self._connections.leave()
            self._outcome.reads += 1
            if newest > self.seen:
                self._pending += database.log[self.seen : newest]
                self.seen = newest
                self._batches += 1
                self._wake.publish()
            yield self.news.after(edition)
            yield self._clock.pause(self._simulation.layout.pause)

    def turns(self) -> Process:
        costs, edition = self._costs, 0
        while True:
            yield self._wake.after(edition)
            yield from self._until_quiet()
            edition = self._wake.edition
            pending, self._pending, self._batches = self._pending, [], 0
            edits = [write for write in pending if write.concerns_proxies]
            concerned = self._simulation.layout.proxies if edits else 0
            of_proxies = costs.looked * self._simulation.layout.proxies + costs.computed * concerned
            yield from self.program.work(costs.turn + costs.change * len(pending) + of_proxies)
            self._outcome.turns += 1
            self._outcome.served += [self._clock.now - write.began for write in pending]
            for _ in range(concerned):
                self._clock.start(self._push(edits))

    def _until_quiet(self) -> Process:
        """As `Reconciler` waits for changes that belong together."""
        deadline, before = self._clock.now + self._pace.at_most, -1
        while before != self._batches and self._clock.now < deadline:
            before = self._batches
            yield self._clock.pause(self._pace.quiet)

    def _push(self, edits: Sequence[Write]) -> Process:
        """A proxy that is sent several edits at once has all of them with the last."""
        yield from self.program.work(self._costs.pushed * (1 - ANSWER))
        yield self._simulation.network
        if self._proxies is not None:
            yield from self._proxies.work(self._costs.proxy)
        for write in edits:
            self._outcome.note_at_proxy(write, self._clock.now)
        yield self._simulation.network
        yield from self.program.work(self._costs.pushed * ANSWER)

    # --- what it does besides ---

    def rests(self) -> Process:
        """Heartbeats, the roster, and what any process does by itself."""
        costs = self._costs
        while True:
            yield self._clock.pause(BEAT)
            yield from self._statement(costs.idle * BEAT, costs.database_idle * BEAT)

    def asks_others(self) -> Process:
        """For those who follow the feed."""
        while True:
            yield self._clock.pause(EVERY)
            for other in self._simulation.planes:
                if other is not self:
                    yield from self.program.work(self._costs.asked_peer)
                    self._clock.start(other.program.work(self._costs.asked_peer))

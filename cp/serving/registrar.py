"""`Registrar`: removes the Dataplane that a proxy registered some time after the proxy disconnected.

No control plane knows by itself that a proxy is gone: it may have connected to another one. So a control plane that
misses a proxy first says so in a label of its Dataplane, and removes the Dataplane only if nobody writes it for a while
after that. The control plane that serves the proxy sees the label and takes it off, which is a write. See record 0050.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol, TypeAlias

import structlog

from cp.model.names import Key, ProxyId, proxy_id
from cp.model.registration import MISSED_BY, OWNER, label, labelled
from cp.resources.world import Table, World
from cp.serving.restoring import SWEEPER, DataplaneRestorer, ProxyTexts
from cp.store.port import (
    ABSENT,
    Closed,
    Conflict,
    Delete,
    LeaseLost,
    Put,
    ReadOnly,
    Store,
    StoreUnreachable,
    Unusable,
)
from cp.store.roster import Fence

_DATAPLANE: Final = "Dataplane"
_SWEEPS: Final = 8
"""How often all registered Dataplanes are checked while a delay passes."""

_PATIENT: Final = 4
_MOST_PATIENT: Final = 4
"""After the n-th objection in a row, `_PATIENT ** n` delays pass before a proxy counts as missing again; this is the
largest n. An objection means that another control plane serves the proxy. That one may end together with the proxy, so
the proxy is not given up for good."""

_LONGEST_PAUSE: Final = 1.0
_STALE: Final = 3.0
"""Delays after which a mark is taken over: the control plane that wrote it did not act on it, so it has ended."""


Clock: TypeAlias = Callable[[], float]
"""One that never goes back."""


class ProxySightings(ProxyTexts, Protocol):
    """Which proxies are connected, to this control plane in any of its processes."""

    async def owners(self) -> Mapping[str, frozenset[str]]:
        """The runs of each connected proxy, by the ids that it sends; the id is empty if it sends none."""
        ...


class ChoresLeadership(Protocol):
    """Whether to look for those that are gone is for this control plane."""

    @property
    def leads(self) -> bool: ...

    @property
    def fence(self) -> Fence | None: ...


class _Alone:
    """Nobody else is there."""

    leads = True
    fence: Fence | None = None


ALONE: Final = _Alone()


class CurrentWorld(Protocol):
    """What is in force."""

    @property
    def world(self) -> World: ...


@dataclass(frozen=True, slots=True)
class RegistrarTimes:
    """How long to wait, in seconds."""

    delay: float
    """From the end of a proxy's connection until what it registered is removed."""

    grace: float
    """From the start, and from the moment at which the first proxy comes or the last one goes: that many vanish at
    once is more likely to be our fault, or the network's, than theirs. For so long nobody counts as missing."""

    clock: Clock = monotonic


@dataclass(frozen=True, slots=True)
class _Mark:
    """The label with which we said that a proxy is missing, at the revision at which we wrote it."""

    revision: int
    since: float


@dataclass(frozen=True, slots=True)
class OwnedDataplane:
    """A Dataplane that a proxy registered."""

    key: Key
    owner: str
    missed_by: str

    @property
    def proxy(self) -> ProxyId:
        return proxy_id(self.key)


@dataclass(slots=True)
class _Memory:
    """What earlier sweeps saw. The keys of the tables are runs: a Dataplane and its owner."""

    unsettled: float
    """When it changed last whether any proxy is connected at all."""

    is_any_connected: bool = False
    missing: dict[tuple[Key, str], float] = field(default_factory=dict)
    """Since when a run has been missing."""

    marks: dict[tuple[Key, str], _Mark] = field(default_factory=dict)
    objections: dict[tuple[Key, str], int] = field(default_factory=dict)
    """How often in a row another control plane has written a Dataplane that we had marked."""


class Registrar:
    """`name` tells control planes on one store apart."""

    def __init__(  # noqa: PLR0913  # what it looks at, and whom it speaks for
        self,
        store: Store,
        current: CurrentWorld,
        sightings: ProxySightings,
        times: RegistrarTimes,
        *,
        name: str,
        leadership: ChoresLeadership = ALONE,
    ) -> None:
        self._store, self._current, self._sightings, self._leadership = store, current, sightings, leadership
        self._times, self._name, self._clock = times, name, times.clock
        self._memory = _Memory(unsettled=times.clock())
        self._restorer = DataplaneRestorer(store, lambda: current.world, sightings)
        self._trouble = ""
        """Why the last sweep ended early."""

        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Sweep until cancelled, which has to be before streams are drained: a proxy that we close has not ended."""
        while True:
            await asyncio.sleep(min(self._times.delay / _SWEEPS, _LONGEST_PAUSE))
            try:
                await self._try_to_sweep()
            except Closed:
                return

    async def _try_to_sweep(self) -> None:
        """Sweep. What could not be done is tried again in the next sweep, and told once until one succeeds."""
        try:
            await self.sweep()
        except Closed:
            raise
        except StoreUnreachable:  # the store tells of it itself, when it begins and when it ends
            return
        except Exception as error:  # noqa: BLE001  # as above
            if (trouble := repr(error)) != self._trouble:
                self._trouble = trouble
                self._log.error("registrations.unswept", reason=str(error), exc_info=not isinstance(error, Unusable))
        else:
            self._trouble = ""

    async def sweep(self) -> None:
        """Check every registered Dataplane once: mark it, remove it or take its mark off."""
        now, connected = self._clock(), await self._sightings.owners()
        if bool(connected) != self._memory.is_any_connected:
            self._memory.is_any_connected, self._memory.unsettled = bool(connected), now
        world = self._current.world
        owned = list(_owned(world))
        self._keep_memory_of(owned)
        for dataplane in owned:
            if dataplane.owner in connected.get(dataplane.proxy, ()):
                await self._take_mark_off(dataplane)
            else:
                await self._look_after_missing(dataplane, now)
        await self._restorer.restore(world, connected)

    def _keep_memory_of(self, owned: list[OwnedDataplane]) -> None:
        runs = {(dataplane.key, dataplane.owner) for dataplane in owned}
        memory = self._memory
        memory.missing = {run: since for run, since in memory.missing.items() if run in runs}
        memory.marks = {run: mark for run, mark in memory.marks.items() if run in runs}
        memory.objections = {run: count for run, count in memory.objections.items() if run in runs}

    async def _take_mark_off(self, dataplane: OwnedDataplane) -> None:
        """Forget that the proxy was missing, and tell other control planes that it is connected, by a write."""
        run = dataplane.key, dataplane.owner
        self._memory.missing.pop(run, None)
        self._memory.marks.pop(run, None)
        self._memory.objections.pop(run, None)
        if dataplane.missed_by:
            await self._write_label(dataplane, missed_by="")

    async def _look_after_missing(self, dataplane: OwnedDataplane, now: float) -> None:
        run = dataplane.key, dataplane.owner
        if not self._leadership.leads:  # we do not know who is connected elsewhere
            self._memory.missing.pop(run, None)
            return
        since = self._memory.missing.setdefault(run, now)
        half = self._times.delay / 2
        if now < max(since + half, self._memory.unsettled + self._times.grace):
            return
        mark = self._memory.marks.get(run)
        if mark is None:
            if not dataplane.missed_by or now >= since + self._times.delay * _STALE:
                await self._mark(dataplane)
        elif now >= mark.since + half:
            del self._memory.marks[run]
            await self._remove(dataplane, mark)

    async def _mark(self, dataplane: OwnedDataplane) -> None:
        revision = await self._write_label(dataplane, missed_by=self._name)
        if revision != ABSENT:
            self._memory.marks[dataplane.key, dataplane.owner] = _Mark(revision, self._clock())

    async def _write_label(self, dataplane: OwnedDataplane, *, missed_by: str) -> int:
        """The revision at which the label has that value; `ABSENT` if the Dataplane was written meanwhile."""
        stored = await self._store.get(dataplane.key)
        if stored is None or label(stored.document, OWNER) != dataplane.owner:
            return ABSENT
        document = labelled(stored.document, missed_by=missed_by)
        if document is stored.document:
            return stored.revision
        try:
            fence = self._leadership.fence if missed_by else None
            return await self._store.write(Put(document, stored.revision), author=SWEEPER, fence=fence)
        except (Conflict, ReadOnly, Unusable):
            return ABSENT

    async def _remove(self, dataplane: OwnedDataplane, mark: _Mark) -> None:
        """Remove it if nobody has written it since it was marked."""
        try:
            fence = self._leadership.fence
            revision = await self._store.write(Delete(dataplane.key, mark.revision), author=SWEEPER, fence=fence)
        except LeaseLost:
            return
        except Conflict:
            self._note_objection(dataplane)
            return
        except (ReadOnly, Unusable):
            return
        about = {"resource": str(dataplane.key), "owner": dataplane.owner, "user": SWEEPER.name}
        self._log.info("proxy.removed", revision=revision, **about)

    def _note_objection(self, dataplane: OwnedDataplane) -> None:
        """Wait longer before the next mark: another control plane serves the proxy and would take it off again."""
        run, memory = (dataplane.key, dataplane.owner), self._memory
        memory.objections[run] = min(memory.objections.get(run, 0) + 1, _MOST_PATIENT)
        memory.missing[run] = self._clock() + self._times.delay * _PATIENT ** memory.objections[run]


def _owned(world: World) -> Iterator[OwnedDataplane]:
    for mesh in world.table("Mesh"):
        yield from world.table(_DATAPLANE, mesh.name).derived(_owned_in)


def _owned_in(table: Table) -> tuple[OwnedDataplane, ...]:
    return tuple(
        OwnedDataplane(dataplane.key, dataplane.labels[OWNER], dataplane.labels.get(MISSED_BY, ""))
        for dataplane in table
        if dataplane.labels.get(OWNER)
    )

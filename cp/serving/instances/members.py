"""`Members`: which control planes share the store with this one, and which of them does the chores.

Each member reports to the store every other second, and at the same time keeps the lease of the chores or tries to take
it. A member that has not reported for the length of a lease is taken for gone. See record 0083.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic, time
from typing import Final, Protocol

import structlog

from cp.model.names import Key
from cp.serving.background import in_background
from cp.serving.delivery import Attendance
from cp.store.port import UNKNOWN, Author, Closed, Delete, LeaseLost, Put, Stored, StoreUnreachable, Unusable
from cp.store.roster import Fence, Instance, Lease, Roster, RosterEntry

LEASE: Final = 8.0
"""Seconds. So long a member may be silent, and so long the chores wait when the one that does them dies."""

_BEAT: Final = 2.0
_FRESH: Final = 0.25
"""Seconds for which the roster is not read again."""

_FAREWELL: Final = 2.0
"""Seconds to say that we leave. A member that cannot say so is taken for gone a little later."""

CHORES: Final = "chores"


class Leadership(Protocol):
    """Whether what only one control plane may do is for this one."""

    @property
    def fence(self) -> Fence | None:
        """What such a write shows; None while another control plane may make it."""
        ...


@dataclass(frozen=True, slots=True)
class _Holding:
    """The lease as it was seen last, and until when it is surely not given to another one."""

    lease: Lease
    until: float


class Members:
    """`id_` is that of this control plane."""

    def __init__(self, roster: Roster, id_: str, clock: Callable[[], float] = monotonic) -> None:
        self._roster, self.id, self._clock = roster, id_, clock
        self._attendance = Attendance(time())
        """Who was there beside this one; in seconds since 1970, as all moments of proxies are."""

        self.worker_lost_at = 0.0
        """When this control plane lost a worker last, in seconds since 1970; 0: it has lost none."""

        self._other_worker_lost_at = 0.0
        """When any of the other control planes did, as far as they have answered."""

        self._entries: Sequence[RosterEntry] = ()
        self._read_at = -_FRESH
        self._reading = asyncio.Lock()
        self._holding: _Holding | None = None
        self._log = structlog.get_logger()
        self._trouble = ""
        """Why the roster was of no use the last time, unless the store could not be reached."""

        self._is_blind = False
        self._spared: Collection[str] = ()
        """The members that were there when we lost the store: perhaps they have lost it too, and cannot report."""

        self._spared_until = 0.0
        self.overdue: Collection[str] = ()
        """The members that no longer report to the store, and still answer when they are asked."""

    @property
    def fence(self) -> Fence | None:
        holding = self._holding
        is_ours = holding is not None and holding.lease.holder == self.id and self._clock() < holding.until
        return holding.lease.fence if holding is not None and is_ours else None

    @property
    def leads(self) -> bool:
        return self.fence is not None

    @property
    def leader(self) -> str:
        """Who does the chores, as far as we know."""
        return "" if self._holding is None else self._holding.lease.holder

    async def entries(self) -> Sequence[RosterEntry]:
        """All that have reported and not left, as it was when the store could be asked."""
        async with self._reading:
            if self._clock() - self._read_at >= _FRESH:
                await self._look()
        return self._entries

    async def _look(self) -> None:
        try:
            self._entries = await self._roster.instances()
        except Closed:
            raise
        except Exception as error:  # noqa: BLE001  # whatever stands there, proxies are served all the same
            self._lose_sight(error)
            return
        self._read_at = self._clock()
        if self._is_blind:
            self._is_blind, self._spared_until = False, self._clock() + LEASE
        self._attendance.note(self.present - {self.id}, time())

    def _lose_sight(self, error: Exception) -> None:
        """Log it once, and try again. An outage of the store is logged by the store."""
        if not self._is_blind:
            self._spared = {entry.instance.id for entry in self._entries if self.may_serve(entry)}
            self._is_blind = True
        if not isinstance(error, StoreUnreachable) and (trouble := repr(error)) != self._trouble:
            self._trouble = trouble
            self._log.error("instance.unreported", reason=str(error), exc_info=not isinstance(error, Unusable))

    @property
    def present(self) -> frozenset[str]:
        """The ids of the members that were there at the last look, this one among them."""
        return frozenset(entry.instance.id for entry in self._entries if self.may_serve(entry))

    @property
    def present_processes(self) -> frozenset[str]:
        """An element of it disappears whenever a control plane has gone, or a worker of one."""
        lost_at = max(self.worker_lost_at, self._other_worker_lost_at)
        return self.present | {f"workers since {lost_at}"}

    @property
    def alike_since(self) -> float:
        """Since when this control plane is there, and neither another one nor a worker has gone."""
        return max(self._attendance.alike_since, self.worker_lost_at, self._other_worker_lost_at)

    def note_lost_worker(self) -> None:
        """Expect the proxies of a worker of this control plane back: it has gone."""
        self.worker_lost_at = time()

    def note_lost_elsewhere(self, lost_at: float) -> None:
        """Expect the proxies of another control plane's worker back. 0: it has lost none, or does not say.

        The moment is on the clock of this machine.
        """
        self._other_worker_lost_at = max(self._other_worker_lost_at, min(lost_at, time()))

    @property
    def present_count(self) -> int:
        return len(self.present)

    def is_one_of_several(self) -> bool:
        return self.present_count > 1

    async def others_present(self) -> Sequence[Instance]:
        """The other control planes that may serve proxies now."""
        entries = await self.entries()
        return [entry.instance for entry in entries if entry.instance.id != self.id and self.may_serve(entry)]

    def may_serve(self, entry: RosterEntry) -> bool:
        """Whether a member is not gone. While the roster cannot be read, and for a while afterwards, none goes."""
        is_spared = self._is_blind or self._clock() < self._spared_until
        id_ = entry.instance.id
        return entry.silence < LEASE or id_ in self.overdue or (is_spared and id_ in self._spared)

    @asynccontextmanager
    async def joined(self, describe: Callable[[], Instance]) -> AsyncIterator[None]:
        """A member for as long as the block lasts. `describe` is asked again each time."""
        with suppress(Unusable):
            await self._roster.succeed(describe())
        await self._beat(describe())
        try:
            async with in_background(self._beats(describe)):
                yield
        finally:
            await self._leave()

    async def _beats(self, describe: Callable[[], Instance]) -> None:
        while True:
            await asyncio.sleep(_BEAT)
            with suppress(Closed):
                await self._beat(describe())

    async def _beat(self, own: Instance) -> None:
        try:
            await self._report(own)
        except Closed:
            raise
        except Exception as error:  # noqa: BLE001  # as above
            self._lose_sight(error)
        if not self._is_blind:
            self._trouble = ""

    async def _report(self, own: Instance) -> None:
        began = self._clock()  # before the store gives the lease: what we believe of it ends before the lease does
        await self._roster.report(own)
        lease = await self._roster.lease(CHORES, own.id, LEASE)
        self._tell(lease)
        self._holding = _Holding(lease, began + LEASE)
        await self.entries()

    def _tell(self, lease: Lease) -> None:
        if lease.holder == self.id and (self.leader != self.id):
            self._log.info("instance.leads", term=lease.term)
        elif lease.holder != self.id and self.leader == self.id:
            self._log.warning("instance.leads_no_longer", term=lease.term, leader=lease.holder)

    async def _leave(self) -> None:
        self._holding = None
        with suppress(Unusable, Closed, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await self._roster.leave(self.id)


class FencedStore(Protocol):
    """A store that takes fences: what `LeadersStore` stands before."""

    async def get(self, key: Key) -> Stored | None: ...

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int: ...


class LeadersStore:
    """A store into which one control plane writes at a time: the one that has the lease of the chores."""

    def __init__(self, store: FencedStore, leadership: Leadership) -> None:
        self._store, self._leadership = store, leadership

    async def get(self, key: Key) -> Stored | None:
        return await self._store.get(key)

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN) -> int:
        """Raises `LeaseLost` where another one does the chores."""
        fence = self._leadership.fence
        if fence is None:
            raise LeaseLost(CHORES)
        return await self._store.write(*writes, author=author, fence=fence)

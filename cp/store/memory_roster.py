"""`MemoryRoster`: the roster of a store that one process has for itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cp.store.port import LeaseLost
from cp.store.roster import FORGOTTEN_AFTER, Fence, Instance, Lease, RosterEntry


@dataclass(slots=True)
class _Held:
    lease: Lease
    ends: float


class MemoryRoster:
    """The roster of a store that one process has for itself."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reports: dict[str, tuple[Instance, float]] = {}
        self._leases: dict[str, _Held] = {}

    async def report(self, instance: Instance) -> None:
        now = self._clock()
        self._reports[instance.id] = instance, now
        dated = {id_: (of, min(at, now)) for id_, (of, at) in self._reports.items()}
        self._reports = {id_: (of, at) for id_, (of, at) in dated.items() if now - at < FORGOTTEN_AFTER}

    async def succeed(self, instance: Instance) -> None:
        for earlier, _ in tuple(self._reports.values()):
            if earlier.id != instance.id and (earlier.name, earlier.address) == (instance.name, instance.address):
                await self.leave(earlier.id)
        await self.report(instance)

    async def leave(self, id_: str) -> None:
        self._reports.pop(id_, None)
        for held in self._leases.values():
            if held.lease.holder == id_:
                held.ends = self._clock()

    async def instances(self) -> Sequence[RosterEntry]:
        now = self._clock()
        listed = sorted(self._reports.values(), key=lambda report: (report[0].started, report[0].id))
        return tuple(RosterEntry(instance, max(0.0, now - at)) for instance, at in listed)

    async def lease(self, name: str, holder: str, seconds: float) -> Lease:
        now, held = self._clock(), self._leases.get(name)
        if held is not None and held.lease.holder != holder and held.ends > now:
            return held.lease
        term = 1 if held is None else held.lease.term + (held.lease.holder != holder)
        self._leases[name] = _Held(Lease(name, holder, term), now + seconds)
        return self._leases[name].lease

    def check(self, fence: Fence | None) -> None:
        """Raises `LeaseLost` if somebody else has taken the lease since."""
        must_be_current(fence, {name: held.lease.term for name, held in self._leases.items()})


def must_be_current(fence: Fence | None, terms: Mapping[str, int]) -> None:
    """Raises `LeaseLost` if a lease has another term by now than the fence says."""
    if fence is not None and terms.get(fence.lease) != fence.term:
        raise LeaseLost(fence.lease)

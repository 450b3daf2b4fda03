"""`RequestWatch`: what Envoys count of the requests at the proxies of a step, from its beginning on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from cp.model.names import Key
from cp.serving.rollouts.conditions import ErrorLimit, RequestCounts, RequestVerdict

MOST_ASKED: Final = 200
"""Proxies of a step whose counters are read."""

_AT_ONCE: Final = 50
_WITHIN: Final = 10.0
"""Seconds within which all of them answer: meanwhile nobody looks after the rollout."""


class NoCounts(Exception):
    """The counters of a proxy cannot be read. The text says why."""


class RequestCounters(Protocol):
    """Envoy's own counters."""

    async def counts(self, dataplane: Key) -> RequestCounts:
        """Of all requests to a proxy's listeners. Raises `NoCounts`."""
        ...


class RequestWatch:
    """The counters of some proxies, and those with which they began: what each had when it was read first."""

    def __init__(self, counters: RequestCounters, mesh: str, names: Sequence[str]) -> None:
        self._counters, self._mesh, self._names = counters, mesh, some_of(names)
        self._first: dict[str, RequestCounts] = {}

    async def begin(self) -> None:
        """Read the counters of all. Raises `NoCounts` where those of one cannot be read."""
        self._first, unreadable = await self._read()
        for why in unreadable.values():
            raise why

    async def verdict(self, limit: ErrorLimit) -> tuple[RequestVerdict, str]:
        """What has come since then says of a limit, and why. Of proxies that cannot be read nothing good is known."""
        counts, unreadable = await self._read()
        since = {name: now.since(self._first.setdefault(name, now)) for name, now in counts.items()}
        verdict, reason = limit.judge(since)
        if verdict is RequestVerdict.FAILS:
            return verdict, reason
        for why in unreadable.values():
            return RequestVerdict.UNREADABLE, str(why)
        return verdict, reason

    async def _read(self) -> tuple[dict[str, RequestCounts], Mapping[str, NoCounts]]:
        counts: dict[str, RequestCounts] = {}
        unreadable: dict[str, NoCounts] = {}
        turns = asyncio.Semaphore(_AT_ONCE)

        end = asyncio.get_running_loop().time() + _WITHIN

        async def read(name: str) -> None:
            try:
                async with asyncio.timeout_at(end), turns:
                    counts[name] = await self._counters.counts(Key("Dataplane", self._mesh, name))
            except NoCounts as why:
                unreadable[name] = why
            except TimeoutError:
                unreadable[name] = NoCounts(f"the Envoy of {name} has not answered within {_WITHIN:g} s")

        async with asyncio.TaskGroup() as group:
            for name in self._names:
                group.create_task(read(name))
        return counts, dict(sorted(unreadable.items()))


def some_of(names: Sequence[str]) -> Sequence[str]:
    """So many as are asked, from the first to the last: who is alike is often named alike."""
    return names[:: -(-len(names) // MOST_ASKED)] if names else names

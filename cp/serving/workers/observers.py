"""`CombinedObserver`: what the observers of all workers see, put together as if it were one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cp.model.names import Key
from cp.serving.delivery import ChangeProgress, Delivery, NackReport, Presence, ProxyState
from cp.serving.workers.crew import Crew, SilentWorkers

_EVERY: Final = 0.25
"""Seconds after which workers say how far something has come, even if it has not come further."""


class CombinedObserver:
    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        keys = list(dataplanes)
        seen = await self._ask("presences", keys)
        return {key: together(one[key] for one in seen) for key in keys}

    async def owners(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for seen in await self._ask("owners"):
            found |= {proxy: owners | found.get(proxy, frozenset()) for proxy, owners in seen.items()}
        return found

    async def brought(self, proxy: str, owner: str) -> str:
        return next(filter(None, await self._ask("brought", proxy, owner)), "")

    async def delivery(self, dataplane: Key) -> Delivery:
        seen: list[Delivery] = await self._ask("delivery", dataplane)
        streams = tuple(stream for one in seen for stream in one.streams)
        failed = tuple(dict.fromkeys(finding for one in seen for finding in one.failed))
        return Delivery(dataplane, together(one.presence for one in seen), streams, failed)

    async def complaints(self) -> Iterable[NackReport]:
        return [one for some in await self._ask("complaints") for one in some]

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while True:
            left = max(0.0, deadline - loop.time())
            seen, silent = await self._so_far(list(revisions), list(resources), min(left, _EVERY))
            whole = added(seen)
            if silent:  # nobody knows what their proxies have
                whole = replace(whole, waiting=(*whole.waiting, *(f"all of worker {number}" for number in silent)))
            is_done = not whole.waiting and whole.revision >= max(revisions, default=0)
            if is_done or left <= 0:
                yield whole
                return
            yield _unfinished(whole)
            if not seen:  # they died, and will be replaced
                await asyncio.sleep(_EVERY)

    async def _so_far(self, *about: Any) -> tuple[list[ChangeProgress], Sequence[int]]:
        """What workers answer, and which of them do not."""
        try:
            return await self._ask("so_far", *about), ()
        except SilentWorkers as silent:
            return list(silent.answers.values()), silent.workers

    async def _ask(self, what: str, *about: Any) -> list[Any]:
        return list((await self._crew.ask(what, *about)).values())


def together(seen: Iterable[Presence]) -> Presence:
    """A proxy is where it is connected; if that is nowhere, it was where it left last."""
    found = list(seen)
    connected = [one for one in found if one.state is not ProxyState.OFFLINE]
    if not connected:
        visits = [visit for one in found for visit in one.connections]
        return Presence(ProxyState.OFFLINE, None, tuple(sorted(visits, key=lambda visit: visit.until or 0.0)[-1:]))
    worst = max(connected, key=lambda one: _SEVERITY.index(one.state))
    return Presence(worst.state, worst.since, tuple(visit for one in connected for visit in one.connections))


_SEVERITY: Final = (ProxyState.ONLINE, ProxyState.OUT_OF_SYNC, ProxyState.REFUSED, ProxyState.FAILED)


def added(seen: Iterable[ChangeProgress]) -> ChangeProgress:
    """How far a change has come everywhere. A proxy that left one worker for another is not gone."""
    found = list(seen)
    here = {proxy for one in found for proxy in (*one.refusing, *one.waiting)}
    gone = {proxy for one in found for proxy in one.gone} - here
    return ChangeProgress(
        revision=min((one.revision for one in found), default=0),
        proxies=len(here | gone) + sum(one.have for one in found),
        have=sum(one.have for one in found),
        refusing=_every(one.refusing for one in found),
        waiting=_every(one.waiting for one in found),
        gone=tuple(sorted(gone)),
        failed=_every(one.failed for one in found),
        complaints=tuple(complaint for one in found for complaint in one.complaints),
        is_done=True,
    )


def _every(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted({name for some in names for name in some}))


def _unfinished(progress: ChangeProgress) -> ChangeProgress:
    return replace(progress, complaints=(), is_done=False)

"""`CombinedObserver`: what the observers of all workers see, put together as if it were one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cp.model.names import Key
from cp.serving.delivery import ChangeProgress, Delivery, NackReport, Presence, ProxyState
from cp.serving.workers.crew import Crew, SilentWorkers
from cp.serving.workers.messages import (
    from_message,
    keys_message,
    nack_reports_of,
    owners_of,
    presences_of,
    to_message,
)
from koguma.v1 import workers_pb2 as pb

_EVERY: Final = 0.25
"""Seconds after which workers say how far something has come, even if it has not come further."""


class CombinedObserver:
    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        keys = list(dataplanes)
        answers = await self._ask(pb.Request(presences=keys_message(keys)))
        of_workers = [presences_of(answer.presences) for answer in answers]
        return {key: together(presences[key] for presences in of_workers) for key in keys}

    async def owners(self) -> Mapping[str, frozenset[str]]:
        owners: dict[str, frozenset[str]] = {}
        for answer in await self._ask(pb.Request(owners=pb.Nothing())):
            for proxy, of_proxy in owners_of(answer.owners).items():
                owners[proxy] = owners.get(proxy, frozenset()) | of_proxy
        return owners

    async def dataplane_text(self, proxy: str, owner: str) -> str:
        answers = await self._ask(pb.Request(dataplane_text=pb.ProxyRun(proxy=proxy, owner=owner)))
        return next((answer.dataplane_text for answer in answers if answer.dataplane_text), "")

    async def delivery(self, dataplane: Key) -> Delivery:
        answers = await self._ask(pb.Request(delivery=to_message(dataplane)))
        deliveries = [from_message(answer.delivery, Delivery) for answer in answers]
        streams = tuple(stream for delivery in deliveries for stream in delivery.streams)
        failed = tuple(dict.fromkeys(finding for delivery in deliveries for finding in delivery.failed))
        return Delivery(dataplane, together(delivery.presence for delivery in deliveries), streams, failed)

    async def nack_reports(self) -> Iterable[NackReport]:
        answers = await self._ask(pb.Request(nack_reports=pb.Nothing()))
        return [report for answer in answers for report in nack_reports_of(answer.nack_reports)]

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while True:
            remaining = max(0.0, deadline - loop.time())
            scope = pb.ChangeScope(
                revisions=revisions, resources=map(to_message, resources), within=min(remaining, _EVERY)
            )
            of_workers, silent = await self._progress_of_workers(scope)
            whole = added(of_workers)
            if silent:  # nobody knows what their proxies have
                whole = replace(whole, waiting=(*whole.waiting, *(f"all of worker {number}" for number in silent)))
            is_done = not whole.waiting and whole.revision >= max(revisions, default=0)
            if is_done or remaining <= 0:
                yield whole
                return
            yield _unfinished(whole)
            if not of_workers:  # they died, and will be replaced
                await asyncio.sleep(_EVERY)

    async def _progress_of_workers(self, scope: pb.ChangeScope) -> tuple[list[ChangeProgress], Sequence[int]]:
        """What workers answer, and the numbers of those that do not."""
        silent: Sequence[int] = ()
        try:
            answers = await self._ask(pb.Request(final_progress=scope))
        except SilentWorkers as error:
            answers, silent = list(error.answers.values()), error.workers
        return [from_message(answer.final_progress, ChangeProgress) for answer in answers], silent

    async def _ask(self, request: pb.Request) -> list[pb.Answer]:
        return list((await self._crew.ask(request)).values())


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
        nack_reports=tuple(report for one in found for report in one.nack_reports),
        is_done=True,
    )


def _every(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted({name for some in names for name in some}))


def _unfinished(progress: ChangeProgress) -> ChangeProgress:
    return replace(progress, nack_reports=(), is_done=False)

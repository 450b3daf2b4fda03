"""`CombinedObserver`: asks the observers of all workers, and combines their answers as if there were one process."""

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
"""Seconds after which workers answer how far a change has come, even if it has not come further."""


class CombinedObserver:
    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        keys = list(dataplanes)
        answers = await self._ask(pb.Request(presences=keys_message(keys)))
        of_workers = [presences_of(answer.presences) for answer in answers]
        return {key: combined_presence(presences[key] for presences in of_workers) for key in keys}

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
        return Delivery(dataplane, combined_presence(delivery.presence for delivery in deliveries), streams, failed)

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
            combined = combined_progress(of_workers)
            if silent:  # nobody knows what their proxies have
                unknown = (f"all of worker {number}" for number in silent)
                combined = replace(combined, waiting=(*combined.waiting, *unknown))
            is_done = not combined.waiting and combined.revision >= max(revisions, default=0)
            if is_done or remaining <= 0:
                yield combined
                return
            yield _unfinished(combined)
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


def combined_presence(presences: Iterable[Presence]) -> Presence:
    """Of a proxy with streams to several workers the worst state; of one with none its last connection."""
    of_workers = list(presences)
    connected = [presence for presence in of_workers if presence.state is not ProxyState.OFFLINE]
    if not connected:
        ended = [record for presence in of_workers for record in presence.connections]
        return Presence(ProxyState.OFFLINE, None, tuple(sorted(ended, key=lambda record: record.until or 0.0)[-1:]))
    worst = max(connected, key=lambda presence: _SEVERITY.index(presence.state))
    connections = tuple(record for presence in connected for record in presence.connections)
    issued = [presence.certificate for presence in connected if presence.certificate is not None]
    newest = max(issued, key=lambda certificate: certificate.issued, default=None)
    return Presence(worst.state, worst.since, connections, newest)


_SEVERITY: Final = (ProxyState.ONLINE, ProxyState.OUT_OF_SYNC, ProxyState.REFUSED, ProxyState.FAILED)


def combined_progress(progress: Iterable[ChangeProgress]) -> ChangeProgress:
    """How far a change has come everywhere. A proxy that left one worker for another is not gone."""
    of_workers = list(progress)
    connected = {proxy for worker in of_workers for proxy in (*worker.refusing, *worker.waiting)}
    gone = {proxy for worker in of_workers for proxy in worker.gone} - connected
    have = sum(worker.have for worker in of_workers)
    return ChangeProgress(
        revision=min((worker.revision for worker in of_workers), default=0),
        proxies=len(connected | gone) + have,
        have=have,
        refusing=_union(worker.refusing for worker in of_workers),
        waiting=_union(worker.waiting for worker in of_workers),
        gone=tuple(sorted(gone)),
        failed=_union(worker.failed for worker in of_workers),
        nack_reports=tuple(report for worker in of_workers for report in worker.nack_reports),
        is_done=True,
    )


def _union(of_workers: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted({name for names in of_workers for name in names}))


def _unfinished(progress: ChangeProgress) -> ChangeProgress:
    return replace(progress, nack_reports=(), is_done=False)

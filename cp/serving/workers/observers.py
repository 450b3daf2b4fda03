"""`CombinedObserver`: asks the observers of all workers, and combines their answers as if there were one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cp.model.names import Key
from cp.serving.delivery import (
    SEVERITY,
    ChangeProgress,
    ChangeReach,
    Delivery,
    FleetDelta,
    NackReport,
    OwnRevision,
    Presence,
    ProxyState,
)
from cp.serving.workers.crew import Crew, SilentWorkers
from cp.serving.workers.messages import (
    deltas_of,
    from_message,
    keys_message,
    nack_reports_of,
    owners_of,
    presences_of,
    reaches_of,
    to_message,
    versions_message,
)
from koguma.v1 import workers_pb2 as pb

_EVERY: Final = 0.25
"""Seconds after which workers answer how far a change has come, even if it has not come further."""


@dataclass(frozen=True, slots=True)
class ProgressRound:
    """What those answer who serve proxies, asked once."""

    answers: Sequence[ChangeProgress]
    silent: Sequence[str]
    """Who does not answer."""

    def combined(self) -> ChangeProgress:
        combined = combined_progress(self.answers)
        unknown = (f"all of {name}" for name in self.silent)  # nobody knows what their proxies have
        return replace(combined, waiting=(*combined.waiting, *unknown))


async def progress_of_all(
    ask: Callable[[pb.ChangeScope], Awaitable[ProgressRound]], scope: pb.ChangeScope, within: float
) -> AsyncIterator[ChangeProgress]:
    """How far a change has come, again and again until every proxy has answered everywhere."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        remaining = max(0.0, deadline - loop.time())
        scope.within = min(remaining, _EVERY)
        answered = await ask(scope)
        combined = answered.combined()
        is_done = not combined.waiting and combined.revision >= max(scope.revisions, default=0)
        if is_done or remaining <= 0:
            yield combined
            return
        yield _unfinished(combined)
        if not answered.answers or answered.silent:  # they died, and will be replaced
            await asyncio.sleep(min(_EVERY, remaining))


class CombinedObserver:
    def __init__(self, crew: Crew, own_revision: Callable[[], OwnRevision]) -> None:
        """`own_revision` is what the process with the API serves, which follows the store as workers do."""
        self._crew, self._own_revision = crew, own_revision

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        keys, own_revision = list(dataplanes), self._own_revision()
        answers = await self._ask(pb.Request(presences=keys_message(keys)))
        of_workers = [judged_presences(own_revision, answer) for answer in answers]
        return {key: combined_presence(presences[key] for presences in of_workers) for key in keys}

    async def owners(self) -> Mapping[str, frozenset[str]]:
        return combined_owners(owners_of(answer.owners) for answer in await self._ask(pb.Request(owners=pb.Nothing())))

    async def dataplane_text(self, proxy: str, owner: str) -> str:
        answers = await self._ask(pb.Request(dataplane_text=pb.ProxyRun(proxy=proxy, owner=owner)))
        return next((answer.dataplane_text for answer in answers if answer.dataplane_text), "")

    async def delivery(self, dataplane: Key) -> Delivery:
        own_revision = self._own_revision()
        answers = await self._crew.ask(pb.Request(delivery=to_message(dataplane)))
        by_worker = {number: delivery_and_revision(answer) for number, answer in answers.items()}
        judged = (own_revision.delivery(*answer, f"worker {number}") for number, answer in by_worker.items())
        return combined_delivery(dataplane, judged)

    async def nack_reports(self) -> Iterable[NackReport]:
        answers = await self._ask(pb.Request(nack_reports=pb.Nothing()))
        return [report for answer in answers for report in nack_reports_of(answer.nack_reports)]

    async def fleet(self, versions: Mapping[str, int]) -> Sequence[FleetDelta]:
        answers = await self._ask(pb.Request(fleet=versions_message(versions)))
        return [delta for answer in answers for delta in deltas_of(answer.fleet)]

    async def reaches(self, revisions: Collection[int]) -> Sequence[Sequence[ChangeReach]]:
        answers = await self._ask(pb.Request(reaches=pb.Revisions(revisions=revisions)))
        return [of_process for answer in answers for of_process in reaches_of(answer.reaches)]

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        scope = pb.ChangeScope(revisions=revisions, resources=map(to_message, resources))
        async for progress in progress_of_all(self._progress_of_workers, scope, within):
            yield progress

    async def final_progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> ChangeProgress:
        """The last progress: every proxy has answered, or the time is over."""
        return [progress async for progress in self.progress(revisions, resources, within)][-1]

    async def _progress_of_workers(self, scope: pb.ChangeScope) -> ProgressRound:
        silent: Sequence[int] = ()
        try:
            answers = await self._ask(pb.Request(final_progress=scope))
        except SilentWorkers as error:
            answers, silent = list(error.answers.values()), error.workers
        of_workers = [from_message(answer.final_progress, ChangeProgress) for answer in answers]
        return ProgressRound(of_workers, [f"worker {number}" for number in silent])

    async def _ask(self, request: pb.Request) -> list[pb.Answer]:
        return list((await self._crew.ask(request)).values())


def judged_presences(own_revision: OwnRevision, answer: pb.Answer) -> Mapping[Key, Presence]:
    """What one tells of its proxies. One of an earlier version says elsewhere what it serves, or nowhere."""
    served = answer.revision or answer.presences.revision
    return {key: own_revision.presence(presence, served) for key, presence in presences_of(answer.presences).items()}


def delivery_and_revision(answer: pb.Answer) -> tuple[Delivery, int]:
    """Where a proxy stands, and what is served by the process that tells it."""
    return from_message(answer.delivery, Delivery), answer.revision


def combined_owners(everywhere: Iterable[Mapping[str, frozenset[str]]]) -> Mapping[str, frozenset[str]]:
    """The runs of each proxy that are connected to anybody."""
    combined: dict[str, frozenset[str]] = {}
    for owners in everywhere:
        for proxy, of_proxy in owners.items():
            combined[proxy] = combined.get(proxy, frozenset()) | of_proxy
    return combined


def combined_delivery(dataplane: Key, deliveries: Iterable[Delivery]) -> Delivery:
    """Where a proxy stands with all that serve it."""
    everywhere = list(deliveries)
    return Delivery(
        dataplane,
        combined_presence(delivery.presence for delivery in everywhere),
        streams=tuple(stream for delivery in everywhere for stream in delivery.streams),
        failed=tuple(dict.fromkeys(finding for delivery in everywhere for finding in delivery.failed)),
        late=tuple(sentence for delivery in everywhere for sentence in delivery.late),
        draining=tuple(resource for delivery in everywhere for resource in delivery.draining),
    )


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


_SEVERITY: Final = (ProxyState.UNKNOWN, *SEVERITY)


def combined_progress(progress: Iterable[ChangeProgress]) -> ChangeProgress:
    """How far a change has come everywhere. A proxy of which several tell, as it moved between them, counts once."""
    of_workers = list(progress)
    waiting = _union(worker.waiting for worker in of_workers)
    refusing = _union(worker.refusing for worker in of_workers) - waiting
    having = _union(worker.having for worker in of_workers) - waiting - refusing
    gone = _union(worker.gone for worker in of_workers) - waiting - refusing - having
    unnamed = sum(worker.have - len(worker.having) for worker in of_workers)
    return ChangeProgress(
        revision=min((worker.revision for worker in of_workers), default=0),
        proxies=len(waiting | refusing | having | gone) + unnamed,
        have=len(having) + unnamed,
        refusing=tuple(sorted(refusing)),
        waiting=tuple(sorted(waiting)),
        gone=tuple(sorted(gone)),
        failed=tuple(sorted(_union(worker.failed for worker in of_workers))),
        limited=tuple(sorted(_union(worker.limited for worker in of_workers))),
        late=tuple(sorted(_union(worker.late for worker in of_workers))),
        nack_reports=tuple(report for worker in of_workers for report in worker.nack_reports),
        is_done=True,
        having=tuple(sorted(having)),
    )


def _union(of_workers: Iterable[Iterable[str]]) -> frozenset[str]:
    return frozenset(name for names in of_workers for name in names)


def _unfinished(progress: ChangeProgress) -> ChangeProgress:
    return replace(progress, nack_reports=(), is_done=False)

"""`SharedObserver`: what the proxies of all control planes on one store make of what they are served.

A control plane that does not answer leaves a gap, and answers say so: a proxy that none of the others has is then
unknown, and not offline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from cp.model.names import Key, dataplane_key
from cp.serving.delivery import (
    ChangeProgress,
    ChangeReach,
    Delivery,
    FleetDelta,
    NackReport,
    OwnRevision,
    Presence,
    ProxyState,
)
from cp.serving.instances.members import Leadership
from cp.serving.instances.peers import PeerAnswers, Peers
from cp.serving.workers.answers import AnsweringObserver
from cp.serving.workers.crew import SilentWorkers
from cp.serving.workers.messages import (
    deltas_of,
    from_message,
    keys_message,
    nack_reports_of,
    owners_of,
    reaches_of,
    to_message,
    versions_message,
)
from cp.serving.workers.observers import (
    ProgressRound,
    combined_delivery,
    combined_owners,
    combined_presence,
    combined_progress,
    delivery_and_revision,
    judged_presences,
    progress_of_all,
)
from koguma.v1 import workers_pb2 as pb

_NOWHERE: Final = Presence(ProxyState.OFFLINE, None, ())
"""Stands for a proxy that is not in an answer."""


class OwnObserver(AnsweringObserver, Protocol):
    """That of this control plane alone."""

    def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]: ...


@dataclass(frozen=True, slots=True)
class FleetRound:
    """What all that serve proxies say of them, asked once."""

    deltas: Mapping[str, Sequence[FleetDelta]]
    """By the id of the control plane; that of this one is empty."""

    silent: Sequence[str]
    """Who does not answer."""


class SharedObserver:
    """That of this control plane and of its peers."""

    def __init__(self, own: OwnObserver, peers: Peers, own_revision: Callable[[], OwnRevision]) -> None:
        self._own, self._peers, self._own_revision = own, peers, own_revision

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        """A proxy that is in sync with a control plane that serves an older revision counts as out of sync."""
        keys, own_revision = list(dataplanes), self._own_revision()
        own, answers = await asyncio.gather(
            self._own.presences(keys),
            self._peers.ask(pb.Request(presences=keys_message(keys)), partial(judged_presences, own_revision)),
        )
        if not answers.names:
            return own
        everywhere = [own, *answers.given.values()]
        return {key: _known(combined_presence(of.get(key, _NOWHERE) for of in everywhere), answers) for key in keys}

    async def owners(self) -> Mapping[str, frozenset[str]]:
        """Those of this control plane, and of the others that answer."""
        own, answers = await asyncio.gather(
            self._own.owners(),
            self._peers.ask(pb.Request(owners=pb.Nothing()), lambda answer: owners_of(answer.owners)),
        )
        return combined_owners((own, *answers.given.values()))

    async def dataplane_text(self, proxy: str, owner: str) -> str:
        request = pb.Request(dataplane_text=pb.ProxyRun(proxy=proxy, owner=owner))
        own, answers = await asyncio.gather(
            self._own.dataplane_text(proxy, owner), self._peers.ask(request, lambda answer: answer.dataplane_text)
        )
        return next(filter(None, (own, *answers.given.values())), "")

    async def delivery(self, dataplane: Key) -> Delivery:
        """A proxy is in sync here if it is for `presences`."""
        own_revision = self._own_revision()
        own, answers = await asyncio.gather(
            self._own.delivery(dataplane),
            self._peers.ask(pb.Request(delivery=to_message(dataplane)), delivery_and_revision),
        )
        judged = (own_revision.delivery(*answer, answers.names[id_]) for id_, answer in answers.given.items())
        combined = combined_delivery(dataplane, [own, *judged])
        return replace(combined, presence=_known(combined.presence, answers))

    async def nack_reports(self) -> Iterable[NackReport]:
        """Those of this control plane, and of the others that answer."""
        own, answers = await asyncio.gather(
            self._own.nack_reports(),
            self._peers.ask(pb.Request(nack_reports=pb.Nothing()), lambda answer: nack_reports_of(answer.nack_reports)),
        )
        return [*own, *(report for of_peer in answers.given.values() for report in of_peer)]

    async def fleets(self, versions: Mapping[str, int]) -> FleetRound:
        """How all proxies are, or those of which something has changed since versions that were told before."""
        (own, silent), answers = await asyncio.gather(
            self._own_fleet(versions),
            self._peers.ask(pb.Request(fleet=versions_message(versions)), lambda answer: deltas_of(answer.fleet)),
        )
        return FleetRound({"": own, **answers.given}, [*silent, *answers.silent_names])

    async def _own_fleet(self, versions: Mapping[str, int]) -> tuple[Sequence[FleetDelta], Sequence[str]]:
        try:
            return await self._own.fleet(versions), ()
        except SilentWorkers as error:
            deltas = [delta for answer in error.answers.values() for delta in deltas_of(answer.fleet)]
            return deltas, [f"worker {number}" for number in error.workers]

    async def reaches(self, revisions: Collection[int]) -> Sequence[Sequence[ChangeReach]]:
        """What each process knows of some revisions; nothing for a control plane that does not answer."""
        own, answers = await asyncio.gather(
            self._own.reaches(revisions),
            self._peers.ask(
                pb.Request(reaches=pb.Revisions(revisions=revisions)), lambda answer: reaches_of(answer.reaches)
            ),
        )
        of_peers = [of_process for of_peer in answers.given.values() for of_process in of_peer]
        return [*own, *of_peers, *([] for _ in answers.silent)]

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        if not await self._peers.others_present():
            async for progress in self._own.progress(revisions, resources, within):
                yield progress
            return
        scope = pb.ChangeScope(revisions=revisions, resources=map(to_message, resources))
        async for progress in progress_of_all(self._round, scope, within):
            yield progress

    async def _round(self, scope: pb.ChangeScope) -> ProgressRound:
        resources = [from_message(key, Key) for key in scope.resources]
        own, answers = await asyncio.gather(
            self._own.final_progress(scope.revisions, resources, scope.within),
            self._peers.ask(
                pb.Request(final_progress=scope), lambda answer: from_message(answer.final_progress, ChangeProgress)
            ),
        )
        of_peers, wanted = answers.given, max(scope.revisions, default=0)
        behind = {id_: progress.revision for id_, progress in of_peers.items() if progress.revision < wanted}
        up_to_date = (own, *(progress for id_, progress in of_peers.items() if id_ not in behind))
        return ProgressRound(
            [await self._with_moved_proxies(combined_progress(up_to_date))],
            [
                *answers.silent_names,
                *(f"{answers.names[id_]}, which serves revision {at}" for id_, at in behind.items()),
            ],
        )

    async def _with_moved_proxies(self, progress: ChangeProgress) -> ChangeProgress:
        """With proxies counted as they are that are connected by now, to whichever control plane."""
        if not progress.gone:
            return progress
        presences = await self.presences(map(dataplane_key, progress.gone))
        states = {proxy: presences[dataplane_key(proxy)].state for proxy in progress.gone}
        arrived = _of(states, ProxyState.ONLINE, ProxyState.OVER_LIMIT)
        return replace(
            progress,
            have=progress.have + len(arrived),
            having=(*progress.having, *arrived),
            waiting=(*progress.waiting, *_of(states, ProxyState.OUT_OF_SYNC, ProxyState.UNKNOWN)),
            refusing=(*progress.refusing, *_of(states, ProxyState.REFUSED)),
            failed=(*progress.failed, *_of(states, ProxyState.FAILED)),
            limited=(*progress.limited, *_of(states, ProxyState.OVER_LIMIT)),
            gone=_of(states, ProxyState.OFFLINE),
        )


class ChoresObserver:
    """Which proxies are connected, for the chores: all of them if we do the chores, otherwise our own."""

    def __init__(self, own: AnsweringObserver, shared: SharedObserver, leadership: Leadership) -> None:
        self._own, self._shared, self._leadership = own, shared, leadership

    @property
    def _observer(self) -> AnsweringObserver | SharedObserver:
        return self._own if self._leadership.fence is None else self._shared

    async def owners(self) -> Mapping[str, frozenset[str]]:
        return await self._observer.owners()

    async def dataplane_text(self, proxy: str, owner: str) -> str:
        return await self._observer.dataplane_text(proxy, owner)


def _known(presence: Presence, answers: PeerAnswers[Any]) -> Presence:
    if answers.silent and presence.state is ProxyState.OFFLINE:
        return replace(presence, state=ProxyState.UNKNOWN)
    return presence


def _of(states: Mapping[str, ProxyState], *wanted: ProxyState) -> tuple[str, ...]:
    return tuple(proxy for proxy, state in states.items() if state in wanted)

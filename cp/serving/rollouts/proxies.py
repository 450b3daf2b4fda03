"""`RolloutProxies`: what is known of the proxies of a rollout: which it reaches, which have it, and what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from cp.model.names import Key, dataplane_key
from cp.model.wording import few
from cp.policies import Policies
from cp.resources.client import is_grpc_client
from cp.serving.delivery import ChangeProgress, NackReport, Presence, ProxyState, grouped, sentence
from cp.serving.rollouts.choice import ReachedProxy, reached_proxies
from cp.serving.rollouts.watch import RolloutInForce, StepWatch

_STEADY: Final = 30.0
"""Seconds for which each proxy of a step has to be connected without a break, unless the hold is shorter."""


class ProxyObserver(Protocol):
    """Where proxies stand, in any process of any control plane."""

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]: ...

    async def nack_reports(self) -> Iterable[NackReport]: ...

    def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]: ...


class RolloutProxies:
    """Asks the control planes each time, and keeps nothing but what the watch of a step keeps."""

    def __init__(self, observer: ProxyObserver, policies: Policies, stopwatch: Callable[[], float]) -> None:
        self._observer, self._policies, self._stopwatch = observer, policies, stopwatch

    async def reached(
        self, rollout: RolloutInForce, watch: StepWatch, presences: Mapping[Key, Presence]
    ) -> list[ReachedProxy]:
        """The proxies that are served something else with the rollout. They are compiled again if that may change."""
        dataplanes = list(rollout.world.table("Dataplane", rollout.mesh))
        clients = (dataplane.key for dataplane in dataplanes if is_grpc_client(dataplane))
        certified = frozenset(key for key in clients if presences[key].finds_certificates)
        worlds, true_of = (rollout.world, rollout.candidate.world), (rollout.basis, certified)
        if watch.reached is None or watch.reached[0] != true_of:
            reached = await asyncio.to_thread(reached_proxies, worlds, dataplanes, self._policies, certified)
            watch.reached = true_of, reached
        return watch.reached[1]

    async def presences(self, rollout: RolloutInForce) -> Mapping[Key, Presence]:
        """Where all proxies of the mesh stand."""
        return await self._observer.presences(
            dataplane.key for dataplane in rollout.world.table("Dataplane", rollout.mesh)
        )

    async def waiting(self, rollout: RolloutInForce, revision: int) -> list[str]:
        """Who has not answered a revision yet: proxies that are served the rollout, and control planes."""
        progress = [progress async for progress in self._observer.progress([revision], [], 0.0)][-1]
        if progress.revision < revision:
            return ["a control plane"]
        silent = (name for name in progress.waiting if rollout.world.get(dataplane_key(name)) is None)
        return [*silent, *await self.unsettled(rollout)]

    async def unsettled(self, rollout: RolloutInForce) -> list[str]:
        """The proxies that are served it, and of which nobody could say now that they have it."""
        presences = await self._observer.presences(rollout.proxies)
        return [key.name for key, presence in presences.items() if presence.state is not ProxyState.ONLINE]

    async def trouble(self, rollout: RolloutInForce, watch: StepWatch, absence: float) -> str:
        """Why the proxies that are served it cannot keep it; empty where they can.

        `absence`: for how many seconds they may be away.
        """
        presences = await self._observer.presences(rollout.proxies)
        watch.note_connections(presences, self._stopwatch(), min(_STEADY, rollout.spec.hold.seconds))
        states = {key: presence.state for key, presence in presences.items()}
        refusing = [key for key, state in states.items() if state is ProxyState.REFUSED]
        if refusing:
            return await self._refusal(refusing)
        if failed := [key.name for key, state in states.items() if state is ProxyState.FAILED]:
            return f"by a fault of the control plane, some part of it could not be made for {few(failed)}"
        if limited := [key.name for key, state in states.items() if state is ProxyState.OVER_LIMIT]:
            return f"over a limit, so that a part is left out for {few(limited)}"
        away = [key.name for key, state in states.items() if state is ProxyState.OFFLINE]
        gone = watch.gone(away, self._stopwatch(), absence)
        return f"disconnected: {few(gone)}" if gone else ""

    async def _refusal(self, refusing: Sequence[Key]) -> str:
        reports = [report for report in await self._observer.nack_reports() if report.dataplane in refusing]
        group = next(iter(grouped(reports)), None)
        return f"refused by {few([key.name for key in refusing])}" if group is None else sentence(group)

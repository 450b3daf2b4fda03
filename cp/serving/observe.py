"""`Observer`: which proxies of this process are connected, have a change or NACKed it, for the API and for the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cp.ads.hub import Hub
from cp.insight.lint.failed import failed_findings
from cp.model.names import Key, proxy_id
from cp.model.registration import OWNER, RESOURCE
from cp.resources.assignment import assigned_world
from cp.serving.delivery import (
    ChangeProgress,
    ChangeReach,
    Delivery,
    FleetDelta,
    NackReport,
    Presence,
    delivery,
    presence,
)
from cp.serving.fleet_watch import FleetWatch
from cp.serving.nack_log import NackLog
from cp.serving.nack_reports import NackReports
from cp.serving.progress_watch import ProgressWatch
from cp.serving.reach_watch import ReachWatch
from cp.serving.reconcile import Reconciler

_PRESENCES_AT_ONCE: Final = 20
"""Proxies that are looked at before streams go on."""


class Observer:
    def __init__(self, hub: Hub, reconciler: Reconciler) -> None:
        self._hub = hub.observer
        self._reconciler = reconciler
        self._fleet = FleetWatch(hub.observer, lambda: reconciler.failures, lambda: reconciler.world.revision)
        self._reach = ReachWatch(hub.observer, reconciler.publications, lambda: reconciler.world)
        self._reports = NackReports(hub.observer, reconciler)
        self._progress = ProgressWatch(hub.observer, reconciler, self._reports)

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        """Whether proxies are connected, and have all that they should have, each at some moment during the call."""
        presences: dict[Key, Presence] = {}
        for number, dataplane in enumerate(dataplanes):
            if number % _PRESENCES_AT_ONCE == 0:
                await asyncio.sleep(0)  # after a change to all proxies, each of them takes a while
            presences[dataplane] = self._presence(proxy_id(dataplane))
        return presences

    def _presence(self, proxy: str) -> Presence:
        hub = self._hub
        failures = self._reconciler.failures.get(proxy, ())
        in_sync = hub.is_in_sync(proxy)
        seen = presence(hub.of(proxy), hub.since(proxy), hub.last_connection(proxy), failures, in_sync=in_sync)
        return replace(seen, certificate=self._reconciler.certificate(proxy))

    async def owners(self) -> Mapping[str, frozenset[str]]:
        """The runs of each connected proxy, by the ids that it sends; the id is empty if it sends none."""
        return {
            proxy: frozenset(str(connection.node.metadata.get(OWNER, "")) for connection in connections)
            for proxy, connections in self._hub.connections.items()
        }

    async def dataplane_text(self, proxy: str, owner: str) -> str:
        """The Dataplane that a run of a proxy brings along, as text; empty if it brings none."""
        of_streams = (connection.node.metadata for connection in self._hub.of(proxy))
        texts = (metadata.get(RESOURCE, "") for metadata in of_streams if metadata.get(OWNER) == owner)
        return next((text for text in texts if isinstance(text, str)), "")

    async def delivery(self, dataplane: Key) -> Delivery:
        """What a proxy was sent and how it answered, for each type."""
        proxy = proxy_id(dataplane)
        nack_reports = await self._reports.of([proxy])
        failures = self._reconciler.failures.get(proxy, ())
        failed = failed_findings(assigned_world(self._reconciler.world, dataplane), dataplane, failures)
        standing = delivery(dataplane, self._presence(proxy), self._hub.of(proxy), nack_reports, failed)
        return replace(standing, draining=self._hub.draining(proxy))

    async def fleet(self, versions: Mapping[str, int]) -> Sequence[FleetDelta]:
        """How all proxies are, or those of which something has changed since a version that was told before."""
        return [await self._fleet.delta(versions)]

    async def nack_reports(self) -> Sequence[NackReport]:
        """All standing NACKs, with the policies behind them."""
        return await self._reports.of()

    async def log_nacks(self) -> None:
        """Log NACKs, until cancelled."""
        await NackLog(self._hub, self._reports).run()

    # --- how far a change has come ---

    def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        """Which proxies have the changes of some revisions (`ProgressWatch`)."""
        return self._progress.progress(revisions, resources, within)

    async def final_progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> ChangeProgress:
        """The last progress: every proxy has answered, or the time is over."""
        return [progress async for progress in self.progress(revisions, resources, within)][-1]

    async def follow_changes(self) -> None:
        """Note whom changes reach, until cancelled."""
        await self._reach.run()

    async def reaches(self, revisions: Collection[int]) -> Sequence[Sequence[ChangeReach]]:
        """Whom some of the newest revisions reached, and who refused them: of this process, which is the only one."""
        return [self._reach.reaches(revisions)]

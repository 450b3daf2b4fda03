"""`ProgressWatch`: how far changes have come, for those who wait until proxies have them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from cp.ads.hub import ObserverSide, ProxyWatch
from cp.model.failure import has_fault
from cp.model.names import Key, dataplane_key, proxy_id
from cp.resources.assignment import held_dataplanes, is_held
from cp.serving.delivery import ChangeProgress, ChangeStanding, change_standing
from cp.serving.nack_reports import NackReports
from cp.serving.publications import PublicationAudience
from cp.serving.reconcile import Reconciler

_PROGRESS_EVERY: Final = 0.05
_AT_ONCE: Final = 200
"""Proxies that are judged at a time."""

_HELD_EVERY: Final = 0.2
"""Seconds after which it is looked again whether a rollout has ended: who is sent nothing new then does not tell."""


class ProgressWatch:
    """Of the proxies of this process."""

    def __init__(self, hub: ObserverSide, reconciler: Reconciler, reports: NackReports) -> None:
        self._hub, self._reconciler, self._reports = hub, reconciler, reports
        self._turn = asyncio.Lock()

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        """Which proxies have the changes of some revisions, again and again until every concerned one has answered.

        Without revisions and resources: which proxies have everything. A NACK that comes from one of the resources
        counts whenever that was written.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        with self._hub.watch() as watch:
            published = await self._published(revisions, resources, within)
            if published is not None:
                yield ChangeProgress(published, 0, 0, is_done=True)
                return
            audience = self._audience(revisions, frozenset(resources))
            expected = audience.proxies if audience.is_of_everything else audience.held
            held = {proxy for proxy in expected if self._is_held(proxy, audience)}
            standings = await self._standings(audience.proxies, audience)
            yielded_at, yielded = loop.time(), dict[str, ChangeStanding]()
            while ChangeStanding.WAITING in standings.values() and (remaining := deadline - loop.time()) > 0:
                if loop.time() - yielded_at >= _PROGRESS_EVERY:
                    yield self._progress(standings, audience)
                    yielded_at, yielded = loop.time(), dict(standings)
                # What is new is told soon, also where nothing comes after it: then somebody is waited for.
                patience = _PROGRESS_EVERY if standings != yielded else _HELD_EVERY if held else remaining
                news = await _news(watch, min(remaining, patience))
                released = {proxy for proxy in held if not self._is_held(proxy, audience)}
                held -= released
                standings |= await self._standings(standings.keys() & (news | released), audience)
            yield await self._outcome(standings, audience, frozenset(resources))

    async def _published(self, revisions: Collection[int], resources: Collection[Key], within: float) -> int | None:
        """Wait until the changes are published where they were made.

        Returns None then; if it takes too long, the revision up to which changes are published there.
        """
        meshes = {key.name if key.type == "Mesh" else key.mesh for key in resources}
        if not revisions and not resources:
            await self._reconciler.wait_for_revision(0, within)
            return None
        asked = frozenset() if "" in meshes else frozenset(meshes)
        is_published, revision = await self._reconciler.wait_for_publication(revisions, asked, within)
        return None if is_published else revision

    def _audience(self, revisions: Collection[int], resources: frozenset[Key]) -> PublicationAudience:
        connected = self._hub.connections.keys()
        audience = self._reconciler.publications.audience(revisions)
        is_about_all = not revisions and not resources
        if is_about_all or not audience.is_known:  # whom it concerned is forgotten: every proxy has to have everything
            failures = self._reconciler.failures.items()
            failed = frozenset(proxy for proxy, of_proxy in failures if has_fault(of_proxy))
            audience = PublicationAudience(frozenset(connected), failed, is_of_everything=is_about_all)
        rolled = map(proxy_id, held_dataplanes(self._reconciler.world, resources))
        held = audience.held | (connected & frozenset(rolled))
        changed = audience.changed | resources
        return replace(audience, proxies=audience.proxies | held, held=held, changed=changed)

    def _is_held(self, proxy: str, audience: PublicationAudience) -> bool:
        """True if a proxy is not given a change yet: a rollout serves it something else, or its mesh is set aside."""
        if audience.is_of_everything and self._hub.late_since(proxy) is not None:
            return True
        return proxy in audience.held and is_held(self._reconciler.world, dataplane_key(proxy), audience.changed)

    async def _standings(self, proxies: AbstractSet[str], audience: PublicationAudience) -> dict[str, ChangeStanding]:
        """Those of some proxies. However many callers wait, one of them has its turn, and streams go on between."""
        standings: dict[str, ChangeStanding] = {}
        async with self._turn:
            for number, proxy in enumerate(proxies, 1):
                standings[proxy] = self._standing(proxy, audience)
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        return standings

    def _standing(self, proxy: str, audience: PublicationAudience) -> ChangeStanding:
        held = self._is_held(proxy, audience)
        return change_standing(self._hub.of(proxy), self._hub.newest(proxy), audience.at, held=held)

    def _is_limited(self, proxy: str) -> bool:
        """True if a proxy is served without some part, whichever change it was that exceeded the limit."""
        return any(failure.is_limit for failure in self._reconciler.failures.get(proxy, ()))

    def _progress(self, standings: dict[str, ChangeStanding], audience: PublicationAudience) -> ChangeProgress:
        by_standing: dict[ChangeStanding, list[str]] = {standing: [] for standing in ChangeStanding}
        for proxy, standing in sorted(standings.items()):
            by_standing[standing].append(proxy)
        return ChangeProgress(
            revision=self._reconciler.world.revision,
            proxies=len(standings),
            have=len(by_standing[ChangeStanding.HAS_IT]),
            refusing=tuple(by_standing[ChangeStanding.REFUSES]),
            waiting=tuple(by_standing[ChangeStanding.WAITING]),
            gone=tuple(by_standing[ChangeStanding.GONE]),
            failed=tuple(sorted(audience.failed)),
            limited=tuple(sorted(audience.limited.union(filter(self._is_limited, standings)))),
            having=tuple(by_standing[ChangeStanding.HAS_IT]),
        )

    async def _outcome(
        self, standings: dict[str, ChangeStanding], audience: PublicationAudience, resources: frozenset[Key]
    ) -> ChangeProgress:
        reports = [
            report
            for report in await self._reports.of(None if resources else standings)
            if (report.proxy in standings and report.at >= audience.at)
            or not resources.isdisjoint(part.policy for part in report.likeliest)
        ]
        for report in reports:
            if standings.get(report.proxy) is not ChangeStanding.WAITING:
                standings[report.proxy] = ChangeStanding.REFUSES
        late = tuple(sorted(self._late(audience)))
        return replace(self._progress(standings, audience), late=late, nack_reports=tuple(reports), is_done=True)

    def _late(self, audience: PublicationAudience) -> Iterator[str]:
        """Who was not there yet when it was published, and has not taken all that it should have."""
        for proxy, connections in self._hub.connections.items():
            is_late = (
                proxy in audience.newcomers or min(connection.since for connection in connections) >= audience.at > 0
            )
            if is_late and proxy not in audience.proxies and not self._hub.is_in_sync(proxy):
                yield proxy


async def _news(watch: ProxyWatch, within: float) -> frozenset[str]:
    try:
        return await asyncio.wait_for(watch.news(), within)
    except TimeoutError:
        return frozenset()

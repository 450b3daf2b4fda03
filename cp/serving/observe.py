"""`Observer`: what proxies make of what they are served, for the API to ask and for the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, TypeAlias

import structlog

from cp.ads.connection import Connection
from cp.ads.hub import Hub, ProxyWatch
from cp.ads.session.messages import Nack, TypeStatus
from cp.insight.lint.failed import failed_findings
from cp.model.names import Key
from cp.model.registration import OWNER, RESOURCE
from cp.resources.world import World
from cp.serving.delivery import (
    CauseFinder,
    ChangeProgress,
    ChangeStanding,
    Delivery,
    NackGroup,
    NackReport,
    Presence,
    ResourceCauses,
    delivery,
    finding,
    grouped,
    presence,
    stand,
    troubled_since,
)
from cp.serving.publications import PublicationAudience
from cp.serving.reconcile import Reconciler, key_of, proxy_of
from cp.translate.compiler import CompiledProxy

_GATHERING: Final = 0.5
"""Seconds in which proxies that refuse the same thing are told of together."""

_LOOKS: Final = 10
_EVERY: Final = 0.05
_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class _Refused:
    """What one stream refuses, before it is known why."""

    proxy: str
    type_url: str
    nack: Nack
    at: float
    since: float
    names: tuple[str, ...]
    lasts: bool
    changed: tuple[frozenset[Key], ...]

    def complaint(self, behind: ResourceCauses) -> NackReport:
        policies, every = behind.policies, (*behind.policies, *behind.resources)
        by_edition = (tuple(place for place in every if place.policy in keys) for keys in self.changed)
        suspects = [places for places in by_edition if places]
        return NackReport(
            proxy=self.proxy,
            dataplane=key_of(self.proxy),
            type_url=self.type_url,
            nack=self.nack,
            at=self.at,
            since=self.since,
            names=self.names,
            lasts=self.lasts,
            policies=policies,
            likeliest=next(iter(suspects), policies),
            suspects=tuple(dict.fromkeys(chain.from_iterable(suspects))) or policies,
        )


_Told: TypeAlias = Mapping[tuple[object, ...], frozenset[tuple[str, float]]]
"""What is refused, by whom and since when."""


class Observer:
    def __init__(self, hub: Hub, reconciler: Reconciler) -> None:
        self._hub = hub.observer
        self._reconciler = reconciler
        self._explaining = asyncio.Lock()
        self._log = structlog.get_logger()

    # --- one proxy ---

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        """Whether proxies are connected, and have all that they should have."""
        return {dataplane: self._presence(proxy_of(dataplane)) for dataplane in dataplanes}

    def _presence(self, proxy: str) -> Presence:
        hub = self._hub
        is_failed = proxy in self._reconciler.failures
        return presence(
            hub.of(proxy), hub.since(proxy), hub.last_connection(proxy), in_sync=hub.is_in_sync(proxy), failed=is_failed
        )

    async def owners(self) -> Mapping[str, frozenset[str]]:
        """The runs of each connected proxy, as it names them; empty for one that has no word for it."""
        return {
            proxy: frozenset(str(seat.node.metadata.get(OWNER, "")) for seat in seats)
            for proxy, seats in self._hub.connections.items()
        }

    async def brought(self, proxy: str, owner: str) -> str:
        """The Dataplane that a run of a proxy brings along, as text; empty if it brings none."""
        said = (seat.node.metadata for seat in self._hub.of(proxy))
        texts = (metadata.get(RESOURCE, "") for metadata in said if metadata.get(OWNER) == owner)
        return next((text for text in texts if isinstance(text, str)), "")

    async def delivery(self, dataplane: Key) -> Delivery:
        """Where a proxy stands, type by type."""
        proxy = proxy_of(dataplane)
        complaints = await self.complaints([proxy])
        failures = self._reconciler.failures.get(proxy, ())
        failed = failed_findings(self._reconciler.world, dataplane, failures)
        return delivery(dataplane, self._presence(proxy), self._hub.of(proxy), complaints, failed)

    # --- what is refused ---

    async def complaints(self, proxies: Iterable[str] | None = None) -> tuple[NackReport, ...]:
        """Everything that some proxies, or all, refuse, with the policies that stand behind it."""
        refused: list[_Refused] = []
        for proxy in list(self._hub.connections if proxies is None else proxies):
            if any(len(seat.nacked_at) > 0 for seat in self._hub.of(proxy)):
                refused += self._of_proxy(proxy)
                await asyncio.sleep(0)  # thousands may refuse something; streams go on meanwhile
        if not refused:
            return ()
        world, compiled = await self._reconciler.proxies(dict.fromkeys(one.proxy for one in refused))
        async with self._explaining:  # however many ask, there is a thread for one of them
            return await asyncio.to_thread(_explained, world, compiled, refused)

    def _of_proxy(self, proxy: str) -> Iterator[_Refused]:
        for seat in self._hub.of(proxy):
            for status in seat.session.statuses:
                for nack in status.nacks:
                    yield self._one(proxy, seat, status, nack)

    def _one(self, proxy: str, seat: Connection, status: TypeStatus, nack: Nack) -> _Refused:
        held = {one.name: one for one in status.held_back if one.name in nack.names}
        since = troubled_since(seat, status.type_url, nack)
        return _Refused(
            proxy=proxy,
            type_url=status.type_url,
            nack=nack,
            at=seat.nacked_at.get(nack, since),
            since=since,
            names=tuple(held) or nack.names,
            lasts=all(one.in_force for one in held.values()),
            changed=self._reconciler.editions.suspects(proxy, since),
        )

    # --- how far a change has come ---

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        """How far the changes of some revisions have come, until every proxy that they concern has answered.

        Without revisions and resources: how far everything has come. What proxies refuse of the resources counts
        whenever it was written.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        with self._hub.watch() as watch:
            if not await self._reconciler.reached(max(revisions, default=0), within):
                yield ChangeProgress(self._reconciler.world.revision, 0, 0, is_done=True)
                return
            reach = self._reach(revisions, everybody=not revisions and not resources)
            stands = {proxy: self._stand(proxy, reach) for proxy in reach.proxies}
            told = loop.time()
            while ChangeStanding.WAITING in stands.values() and (left := deadline - loop.time()) > 0:
                if loop.time() - told >= _EVERY:
                    yield self._progress(stands, reach)
                    told = loop.time()
                for proxy in await _news(watch, left):
                    if proxy in stands:
                        stands[proxy] = self._stand(proxy, reach)
            yield await self._outcome(stands, reach, frozenset(resources))

    async def so_far(self, revisions: Collection[int], resources: Collection[Key], within: float) -> ChangeProgress:
        """How far they have come when every proxy has answered, or when the time is over."""
        return [one async for one in self.progress(revisions, resources, within)][-1]

    def _reach(self, revisions: Collection[int], *, everybody: bool) -> PublicationAudience:
        reach = self._reconciler.editions.reach(revisions)
        if everybody or not reach.is_known:  # nobody knows any more whom it concerned, so everybody has to have all
            return PublicationAudience(frozenset(self._hub.connections), frozenset(self._reconciler.failures))
        return reach

    def _stand(self, proxy: str, reach: PublicationAudience) -> ChangeStanding:
        return stand(self._hub.of(proxy), self._hub.newest(proxy), reach.at)

    def _progress(self, stands: dict[str, ChangeStanding], reach: PublicationAudience) -> ChangeProgress:
        by_stand: dict[ChangeStanding, list[str]] = {one: [] for one in ChangeStanding}
        for proxy, one in sorted(stands.items()):
            by_stand[one].append(proxy)
        return ChangeProgress(
            revision=self._reconciler.world.revision,
            proxies=len(stands),
            have=len(by_stand[ChangeStanding.HAS_IT]),
            refusing=tuple(by_stand[ChangeStanding.REFUSES]),
            waiting=tuple(by_stand[ChangeStanding.WAITING]),
            gone=tuple(by_stand[ChangeStanding.GONE]),
            failed=tuple(sorted(reach.failed)),
        )

    async def _outcome(
        self, stands: dict[str, ChangeStanding], reach: PublicationAudience, resources: frozenset[Key]
    ) -> ChangeProgress:
        concerned = None if resources else stands
        found = [
            one
            for one in await self.complaints(concerned)
            if (one.proxy in stands and one.at >= reach.at)
            or not resources.isdisjoint(place.policy for place in one.likeliest)
        ]
        for one in found:
            if stands.get(one.proxy) is not ChangeStanding.WAITING:
                stands[one.proxy] = ChangeStanding.REFUSES
        so_far = self._progress(stands, reach)
        return replace(so_far, complaints=tuple(found), is_done=True)

    # --- the log ---

    async def run(self) -> None:
        """Tell the log of what is refused: once, however many refuse it."""
        told: _Told = {}
        while True:
            await self._hub.nacking()
            try:
                told = await self._tell_new(told)
            except Exception:  # noqa: BLE001  # what is told is not worth ending for
                self._log.exception("refusals.untold")

    async def _tell_new(self, told: _Told) -> _Told:
        """Tell of what nobody refused when this was told last."""
        await self._gathered()
        groups = {group.first.sort: group for group in grouped(await self.complaints())}
        members = {sort: _members(group) for sort, group in groups.items()}
        for sort, group in groups.items():
            if told.get(sort, frozenset()).isdisjoint(members[sort]):
                self._tell(group)
        return members

    async def _gathered(self) -> None:
        """Until those who refuse something have found out what of it they refuse."""
        for _ in range(_LOOKS):
            await asyncio.sleep(_GATHERING)
            if all(self._has_settled(proxy) for proxy, seats in self._hub.connections.items() if _any_refused(seats)):
                return

    def _has_settled(self, proxy: str) -> bool:
        newest = self._hub.newest(proxy)
        return newest is not None and all(seat.session.has_answered_all(newest) for seat in self._hub.of(proxy))

    def _tell(self, group: NackGroup) -> None:
        one = finding(group)
        place, count = one.place or None, len(group.proxies)
        self._log.warning(
            "finding", code=one.code, resource=str(one.resource), place=place, proxies=count, reason=str(one)
        )


async def _news(watch: ProxyWatch, within: float) -> frozenset[str]:
    try:
        return await asyncio.wait_for(watch.news(), within)
    except TimeoutError:
        return frozenset()


def _explained(
    world: World, compiled: Mapping[str, CompiledProxy], refused: Iterable[_Refused]
) -> tuple[NackReport, ...]:
    sources = CauseFinder(world)

    def behind(one: _Refused) -> ResourceCauses:
        proxy = compiled.get(one.proxy)
        if proxy is None:
            return ResourceCauses()
        found = [sources.of(proxy, one.type_url, name) for name in one.names[:_NAMED]]
        policies = (place for some in found for place in some.policies)
        resources = (place for some in found for place in some.resources)
        return ResourceCauses(tuple(dict.fromkeys(policies)), tuple(dict.fromkeys(resources)))

    return tuple(one.complaint(behind(one)) for one in refused)


def _any_refused(seats: Iterable[Connection]) -> bool:
    return any(len(seat.nacked_at) > 0 for seat in seats)


def _members(group: NackGroup) -> frozenset[tuple[str, float]]:
    return frozenset((one.proxy, one.at) for one in group.complaints)

"""`Observer`: which proxies are connected, have a change or NACKed it and why, for the API and for the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Final, TypeAlias

import structlog

from cp.ads.connection import Connection
from cp.ads.hub import Hub, ProxyWatch
from cp.ads.session.messages import Nack, TypeStatus
from cp.insight.lint.failed import failed_findings
from cp.model.names import Key, dataplane_key, proxy_id
from cp.model.registration import OWNER, RESOURCE
from cp.resources.assignment import assigned_world, held_dataplanes, is_held
from cp.resources.world import World
from cp.serving.delivery import (
    CauseFinder,
    ChangeProgress,
    ChangeReach,
    ChangeStanding,
    Delivery,
    FleetDelta,
    NackGroup,
    NackReport,
    Presence,
    ResourceCauses,
    change_standing,
    delivery,
    finding,
    grouped,
    nacked_since,
    presence,
)
from cp.serving.fleet_watch import FleetWatch
from cp.serving.publications import PublicationAudience
from cp.serving.reach_watch import ReachWatch
from cp.serving.reconcile import Reconciler
from cp.translate.compiler import CompiledProxy
from cp.translate.packing import SHORT

_GATHERING: Final = 0.5
"""Seconds that a NACK waits for those of other proxies, to be logged as one line with them."""

_GATHERING_ROUNDS: Final = 10
"""How often that is extended, while proxies have not answered everything."""

_PRESENCES_AT_ONCE: Final = 20
"""Proxies that are looked at before streams go on."""

_PROGRESS_EVERY: Final = 0.05
_HELD_EVERY: Final = 0.2
"""Seconds after which it is looked again whether a rollout has ended: who is sent nothing new then does not tell."""

_NAMED: Final = 5
"""Proxies and Envoy resources that a line of the log names."""

_EXPLAINED_NAMES: Final = 20
"""Resources of one NACK whose policies are looked for; Envoy may name thousands."""


@dataclass(frozen=True, slots=True)
class _UnexplainedNack:
    """A NACK of one stream, before the policies behind it are known."""

    proxy: str
    type_url: str
    nack: Nack
    at: float
    since: float
    names: tuple[str, ...]
    lasts: bool
    changed: tuple[frozenset[Key], ...]
    """What was changed in the last publication before the first NACK, and in each one after it."""

    def report(self, causes: ResourceCauses) -> NackReport:
        policies, parts = causes.policies, (*causes.policies, *causes.resources)
        by_publication = (tuple(part for part in parts if part.policy in keys) for keys in self.changed)
        suspects = [of_publication for of_publication in by_publication if of_publication]
        return NackReport(
            proxy=self.proxy,
            dataplane=dataplane_key(self.proxy),
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


_LoggedNacks: TypeAlias = Mapping[tuple[object, ...], frozenset[tuple[str, float]]]
"""By the sort of a NACK, which proxies sent it and when."""


class Observer:
    def __init__(self, hub: Hub, reconciler: Reconciler) -> None:
        self._hub = hub.observer
        self._reconciler = reconciler
        self._explaining = asyncio.Lock()
        self._fleet = FleetWatch(hub.observer, lambda: reconciler.failures, lambda: reconciler.world.revision)
        self._reach = ReachWatch(hub.observer, reconciler.publications, lambda: reconciler.world)
        self._log = structlog.get_logger()

    # --- one proxy ---

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
        is_failed = proxy in self._reconciler.failures
        seen = presence(
            hub.of(proxy), hub.since(proxy), hub.last_connection(proxy), in_sync=hub.is_in_sync(proxy), failed=is_failed
        )
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
        nack_reports = await self.nack_reports([proxy])
        failures = self._reconciler.failures.get(proxy, ())
        failed = failed_findings(assigned_world(self._reconciler.world, dataplane), dataplane, failures)
        return delivery(dataplane, self._presence(proxy), self._hub.of(proxy), nack_reports, failed)

    async def fleet(self, versions: Mapping[str, int]) -> Sequence[FleetDelta]:
        """How all proxies are, or those of which something has changed since a version that was told before."""
        return [await self._fleet.delta(versions)]

    # --- NACKs ---

    async def nack_reports(self, proxies: Iterable[str] | None = None) -> tuple[NackReport, ...]:
        """All standing NACKs of some proxies, or of all, with the policies behind them."""
        nacks: list[_UnexplainedNack] = []
        for proxy in list(self._hub.connections if proxies is None else proxies):
            if any(len(connection.nacked_at) > 0 for connection in self._hub.of(proxy)):
                nacks += self._nacks(proxy)
                await asyncio.sleep(0)  # there may be thousands of such proxies; streams go on meanwhile
        if not nacks:
            return ()
        world, compiled = await self._reconciler.compiled(dict.fromkeys(nack.proxy for nack in nacks))
        nacks = await self._still_standing(nacks)
        async with self._explaining:  # however many ask, there is a thread for one of them
            return await asyncio.to_thread(_explained, world, compiled, nacks)

    async def _still_standing(self, nacks: Iterable[_UnexplainedNack]) -> list[_UnexplainedNack]:
        """Those of what is served now: who wrote what was taken back meanwhile cannot be told of the new World."""
        await asyncio.sleep(0)  # streams that were given something new have seen it then
        standing: list[_UnexplainedNack] = []
        for proxy, of_proxy in groupby(nacks, lambda nack: nack.proxy):
            now = {(nack.type_url, nack.nack) for nack in self._nacks(proxy)}
            standing += (nack for nack in of_proxy if (nack.type_url, nack.nack) in now)
        return standing

    def _nacks(self, proxy: str) -> Iterator[_UnexplainedNack]:
        for connection in self._hub.of(proxy):
            for status in connection.session.statuses:
                for nack in status.nacks:
                    yield self._nack(proxy, connection, status, nack)

    def _nack(self, proxy: str, connection: Connection, status: TypeStatus, nack: Nack) -> _UnexplainedNack:
        held = {resource.name: resource for resource in status.held_back if resource.name in nack.names}
        since = nacked_since(connection, status.type_url, nack)
        return _UnexplainedNack(
            proxy=proxy,
            type_url=status.type_url,
            nack=nack,
            at=connection.nacked_at.get(nack, since),
            since=since,
            names=tuple(held) or nack.names,
            lasts=all(resource.in_force for resource in held.values()),
            changed=self._reconciler.publications.suspected_changes(proxy, since),
        )

    # --- how far a change has come ---

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
            if not await self._reconciler.wait_for_revision(max(revisions, default=0), within):
                yield ChangeProgress(self._reconciler.world.revision, 0, 0, is_done=True)
                return
            audience = self._audience(revisions, frozenset(resources))
            held = {proxy for proxy in audience.held if self._is_held(proxy, audience)}
            standings = {proxy: self._standing(proxy, audience) for proxy in audience.proxies}
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
                for proxy in standings.keys() & (news | released):
                    standings[proxy] = self._standing(proxy, audience)
            yield await self._outcome(standings, audience, frozenset(resources))

    async def final_progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> ChangeProgress:
        """The last progress: every proxy has answered, or the time is over."""
        return [progress async for progress in self.progress(revisions, resources, within)][-1]

    def _audience(self, revisions: Collection[int], resources: frozenset[Key]) -> PublicationAudience:
        connected = self._hub.connections.keys()
        audience = self._reconciler.publications.audience(revisions)
        is_about_all = not revisions and not resources
        if is_about_all or not audience.is_known:  # whom it concerned is forgotten: every proxy has to have everything
            audience = PublicationAudience(frozenset(connected), frozenset(self._reconciler.failures))
        rolled = map(proxy_id, held_dataplanes(self._reconciler.world, resources))
        held = audience.held | (connected & frozenset(rolled))
        changed = audience.changed | resources
        return replace(audience, proxies=audience.proxies | held, held=held, changed=changed)

    def _is_held(self, proxy: str, audience: PublicationAudience) -> bool:
        """Whether a rollout serves a proxy something else in place of what was changed, now as well as then."""
        return proxy in audience.held and is_held(self._reconciler.world, dataplane_key(proxy), audience.changed)

    def _standing(self, proxy: str, audience: PublicationAudience) -> ChangeStanding:
        held = self._is_held(proxy, audience)
        return change_standing(self._hub.of(proxy), self._hub.newest(proxy), audience.at, held=held)

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
            having=tuple(by_standing[ChangeStanding.HAS_IT]),
        )

    async def _outcome(
        self, standings: dict[str, ChangeStanding], audience: PublicationAudience, resources: frozenset[Key]
    ) -> ChangeProgress:
        reports = [
            report
            for report in await self.nack_reports(None if resources else standings)
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

    async def follow_changes(self) -> None:
        """Note whom changes reach, until cancelled."""
        await self._reach.run()

    async def reaches(self, revisions: Collection[int]) -> Sequence[Sequence[ChangeReach]]:
        """Whom some of the newest revisions reached, and who refused them: of this process, which is the only one."""
        return [self._reach.reaches(revisions)]

    # --- the log ---

    async def run(self) -> None:
        """Log NACKs: one line for all of the same sort."""
        logged: _LoggedNacks = {}
        while True:
            await self._hub.nacking()
            try:
                logged = await self._log_new(logged)
            except Exception:  # noqa: BLE001  # a line of the log is not worth ending for
                self._log.exception("refusals.untold")

    async def _log_new(self, logged: _LoggedNacks) -> _LoggedNacks:
        """Log each sort of which all NACKs are new since the last time."""
        await self._await_causes()
        groups = {group.first.sort: group for group in grouped(await self.nack_reports())}
        members = {sort: _members(group) for sort, group in groups.items()}
        for sort, group in groups.items():
            if logged.get(sort, frozenset()).isdisjoint(members[sort]):
                self._log_group(group)
        return members

    async def _await_causes(self) -> None:
        """Wait until the sessions of proxies that NACKed something have found out which resources are at fault."""
        for _ in range(_GATHERING_ROUNDS):
            await asyncio.sleep(_GATHERING)
            if all(
                self._has_settled(proxy)
                for proxy, connections in self._hub.connections.items()
                if _any_refused(connections)
            ):
                return

    def _has_settled(self, proxy: str) -> bool:
        newest = self._hub.newest(proxy)
        return newest is not None and all(
            connection.session.has_answered_all(newest) for connection in self._hub.of(proxy)
        )

    def _log_group(self, group: NackGroup) -> None:
        of_group = finding(group)
        self._log.warning(
            "finding",
            code=of_group.code,
            resource=str(of_group.resource),
            place=of_group.place or None,
            proxies=len(group.proxies),
            named=list(group.proxies[:_NAMED]),
            envoy_type=SHORT.get(group.first.type_url, group.first.type_url),
            envoy_resources=list(group.first.names[:_NAMED]),
            reason=str(of_group),
        )


async def _news(watch: ProxyWatch, within: float) -> frozenset[str]:
    try:
        return await asyncio.wait_for(watch.news(), within)
    except TimeoutError:
        return frozenset()


def _explained(
    world: World, compiled: Mapping[str, CompiledProxy], nacks: Iterable[_UnexplainedNack]
) -> tuple[NackReport, ...]:
    finders: dict[World, CauseFinder] = {}
    reports = []
    for nack in nacks:
        assigned = assigned_world(world, dataplane_key(nack.proxy))
        finder = finders.setdefault(assigned, CauseFinder(assigned))
        reports.append(nack.report(_causes(finder, compiled.get(nack.proxy), nack)))
    return tuple(reports)


def _causes(finder: CauseFinder, proxy: CompiledProxy | None, nack: _UnexplainedNack) -> ResourceCauses:
    if proxy is None:
        return ResourceCauses()
    of_names = [finder.of(proxy, nack.type_url, name) for name in nack.names[:_EXPLAINED_NAMES]]
    policies = (part for causes in of_names for part in causes.policies)
    resources = (part for causes in of_names for part in causes.resources)
    return ResourceCauses(tuple(dict.fromkeys(policies)), tuple(dict.fromkeys(resources)))


def _any_refused(connections: Iterable[Connection]) -> bool:
    return any(len(connection.nacked_at) > 0 for connection in connections)


def _members(group: NackGroup) -> frozenset[tuple[str, float]]:
    return frozenset((report.proxy, report.at) for report in group.reports)

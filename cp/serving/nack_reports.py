"""`NackReports`: the NACKs that stand, each with the policies that are likeliest behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Final

from cp.ads.connection import Connection
from cp.ads.hub import ObserverSide
from cp.ads.session.messages import Nack, TypeStatus
from cp.model.names import Key, dataplane_key
from cp.resources.world import World
from cp.serving.delivery import CauseFinder, NackReport, ResourceCauses, nacked_since
from cp.serving.reconcile import Reconciler
from cp.translate.compiler import CompiledProxy

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


class NackReports:
    def __init__(self, hub: ObserverSide, reconciler: Reconciler) -> None:
        self._hub, self._reconciler = hub, reconciler
        self._explaining = asyncio.Lock()

    async def of(self, proxies: Iterable[str] | None = None) -> tuple[NackReport, ...]:
        """All standing NACKs of some proxies, or of all, with the policies behind them."""
        nacks: list[_UnexplainedNack] = []
        for proxy in list(self._hub.connections if proxies is None else proxies):
            if has_nacked(self._hub.of(proxy)):
                nacks += self._nacks(proxy)
                await asyncio.sleep(0)  # there may be thousands of such proxies; streams go on meanwhile
        if not nacks:
            return ()
        compiled = await self._reconciler.compiled(dict.fromkeys(nack.proxy for nack in nacks))
        nacks = await self._still_standing(nacks)
        async with self._explaining:  # however many ask, there is a thread for one of them
            return await asyncio.to_thread(_explained, compiled, nacks)

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


def has_nacked(connections: Iterable[Connection]) -> bool:
    """Whether a proxy with these streams may have NACKs that stand."""
    return any(len(connection.nacked_at) > 0 for connection in connections)


def _explained(
    compiled: Mapping[str, tuple[World, CompiledProxy]], nacks: Iterable[_UnexplainedNack]
) -> tuple[NackReport, ...]:
    finders: dict[World, CauseFinder] = {}
    reports = []
    for nack in nacks:
        causes = ResourceCauses()
        if nack.proxy in compiled:
            world, proxy = compiled[nack.proxy]
            causes = _causes(finders.setdefault(world, CauseFinder(world)), proxy, nack)
        reports.append(nack.report(causes))
    return tuple(reports)


def _causes(finder: CauseFinder, proxy: CompiledProxy, nack: _UnexplainedNack) -> ResourceCauses:
    of_names = [finder.of(proxy, nack.type_url, name) for name in nack.names[:_EXPLAINED_NAMES]]
    policies = (part for causes in of_names for part in causes.policies)
    resources = (part for causes in of_names for part in causes.resources)
    return ResourceCauses(tuple(dict.fromkeys(policies)), tuple(dict.fromkeys(resources)))

"""`NackLog`: NACKs as lines of the log, one for all of the same sort."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, TypeAlias

import structlog

from cp.ads.hub import ObserverSide
from cp.serving.delivery import NackGroup, finding, grouped
from cp.serving.nack_reports import NackReports, has_nacked
from cp.translate.packing import SHORT

_GATHERING: Final = 0.5
"""Seconds that a NACK waits for those of other proxies, to be logged as one line with them."""

_GATHERING_ROUNDS: Final = 10
"""How often that is extended, while proxies have not answered everything."""

_NAMED: Final = 5
"""Proxies and Envoy resources that a line of the log names."""

_LoggedNacks: TypeAlias = Mapping[tuple[object, ...], frozenset[tuple[str, float]]]
"""By the sort of a NACK, which proxies sent it and when."""


class NackLog:
    def __init__(self, hub: ObserverSide, reports: NackReports) -> None:
        self._hub, self._reports = hub, reports
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Until cancelled."""
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
        groups = {group.first.sort: group for group in grouped(await self._reports.of())}
        members = {sort: _members(group) for sort, group in groups.items()}
        for sort, group in groups.items():
            if logged.get(sort, frozenset()).isdisjoint(members[sort]):
                self._log_group(group)
        return members

    async def _await_causes(self) -> None:
        """Wait until the sessions of proxies that NACKed something have found out which resources are at fault."""
        for _ in range(_GATHERING_ROUNDS):
            await asyncio.sleep(_GATHERING)
            nacking = (proxy for proxy, connections in self._hub.connections.items() if has_nacked(connections))
            if all(map(self._has_settled, nacking)):
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


def _members(group: NackGroup) -> frozenset[tuple[str, float]]:
    return frozenset((report.proxy, report.at) for report in group.reports)

"""Proxies in few bytes: rows of a table, of which each column is named once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from cp.model.names import Key
from cp.serving.instances.fleet import Fleet, FleetProxy

Row: TypeAlias = Sequence[Any]

COLUMNS: Final = ("name", "state", "since", "kind", "zone", "instance", "envoy", "findings", "tags")
_AT_ONCE: Final = 500


def row(proxy: FleetProxy) -> Row:
    """In the order of the columns. Moments are milliseconds since 1970."""
    since = None if proxy.since is None else round(proxy.since * 1000)
    state, kind = proxy.state.value, proxy.kind
    return (proxy.key.name, state, since, kind, proxy.zone, proxy.instance, proxy.envoy, proxy.findings, proxy.tags)


def rows_by_mesh(proxies: Iterable[FleetProxy]) -> dict[str, list[Row]]:
    by_mesh: dict[str, list[Row]] = {}
    for proxy in proxies:
        by_mesh.setdefault(proxy.key.mesh, []).append(row(proxy))
    return by_mesh


class FleetNews:
    """What has changed in a fleet, mesh by mesh: written once for all who know the same version of it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._writing = asyncio.Lock()
        self._version = -1
        self._written: dict[int, Mapping[str, bytes] | None] = {}

    async def since(self, version: int) -> Mapping[str, bytes] | None:
        """The rows of each mesh as JSON. A proxy that is gone has the state null. None: that is too long ago."""
        async with self._writing:
            if self._version != self._fleet.version:
                self._version, self._written = self._fleet.version, {}
            if version not in self._written:
                changed = self._fleet.since(version)
                self._written[version] = None if changed is None else await _written(changed)
            return self._written[version]


async def _written(changed: Mapping[Key, FleetProxy | None]) -> Mapping[str, bytes]:
    """There may be thousands. Others have their turn between some of them and the next."""
    by_mesh: dict[str, list[bytes]] = {}
    for number, (key, proxy) in enumerate(changed.items(), 1):
        text = msgspec.json.encode((key.name, None) if proxy is None else row(proxy))
        by_mesh.setdefault(key.mesh, []).append(text)
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return {mesh: b"[%s]" % b",".join(rows) for mesh, rows in by_mesh.items()}

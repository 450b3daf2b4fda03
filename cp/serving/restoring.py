"""`DataplaneRestorer`: stores again the Dataplanes that were removed while their proxies could not reach us.

Each proxy sends the text of its Dataplane when it connects. See record 0050.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from cp.model.names import Key, dataplane_key
from cp.model.registration import MISSED_BY, OWNER, SWEEP_WAY, label, labelled
from cp.resources.brought import brought_dataplane
from cp.resources.world import World
from cp.store.port import ABSENT, Author, Conflict, Put, ReadOnly, Store, Unusable

SWEEPER: Final = Author("control plane", SWEEP_WAY)
"""Who removes Dataplanes, and stores them again."""


class ProxyTexts(Protocol):
    """What connected proxies have sent."""

    async def dataplane_text(self, proxy: str, owner: str) -> str:
        """The Dataplane that a run of a proxy brings along, as text; empty if it brings none."""
        ...


class DataplaneRestorer:
    def __init__(self, store: Store, current: Callable[[], World], proxies: ProxyTexts) -> None:
        """`current` is the World in force."""
        self._store, self._current, self._proxies = store, current, proxies
        self._looked_up: set[tuple[str, str]] = set()
        """Runs of proxies that are connected without a Dataplane, and were looked up in the store."""

        self._log = structlog.get_logger()

    async def restore(self, world: World, connected: Mapping[str, frozenset[str]]) -> None:
        """Look after the runs of connected proxies that have no Dataplane. Each is looked up once."""
        runs = {(proxy, owner) for proxy, owners in connected.items() for owner in owners if owner}
        absent = {(proxy, owner) for proxy, owner in runs if world.get(dataplane_key(proxy)) is None}
        self._looked_up &= absent
        for proxy, owner in sorted(absent - self._looked_up):
            if await self._look_after(proxy, owner):
                self._looked_up.add((proxy, owner))

    async def _look_after(self, proxy: str, owner: str) -> bool:
        """Store the Dataplane of a run again if it was removed as missing. False if that has to be tried again."""
        key = dataplane_key(proxy)
        try:
            if not await self._was_missed(key, owner):
                return True
            text, world = await self._proxies.dataplane_text(proxy, owner), self._current()
            dataplane = await asyncio.to_thread(brought_dataplane, text, key, world.kinds)
            if dataplane is None or world.mesh(key.mesh) is None:
                return True
            document = labelled(dataplane.document, owner=owner)
            revision = await self._store.write(Put(document, ABSENT), author=SWEEPER)
        except ReadOnly:
            return True
        except (Conflict, Unusable):
            return False
        about = {"resource": str(document.key), "revision": revision, "user": SWEEPER.name}
        self._log.info("proxy.registered", new=True, **about)
        return True

    async def _was_missed(self, key: Key, owner: str) -> bool:
        """Whether it was removed because its proxy was missed, and not because an operator deleted it."""
        last = await self._store.history(key, 1)
        removed = last[0].before if last else None
        if removed is None or last[0].after is not None:
            # Without a memory of it, it may never have been stored: anybody can connect and send any text.
            return False
        return label(removed, OWNER) == owner and label(removed, MISSED_BY) != ""

"""`FleetWatch`: which proxies of this process have changed, for those who keep a list of all and ask again and again.

It begins with the first question, and ends when nobody has asked for a while: until then it costs nothing.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from typing import Final

from cp.ads.hub import REMEMBERED, ObserverSide, ProxyWatch
from cp.model.failure import Failure
from cp.serving.delivery import FleetDelta, ProxyStatus, proxy_status, status_of_offline

_PATIENCE: Final = 60.0
"""Seconds without a question after which it ends."""

_AT_ONCE: Final = 50
"""Proxies that are looked at before streams go on."""


class FleetWatch:
    """`failures` are the parts that are not built for proxies, `revision` is that which they are served."""

    def __init__(
        self, hub: ObserverSide, failures: Callable[[], Mapping[str, Collection[Failure]]], revision: Callable[[], int]
    ) -> None:
        self._hub, self._failures, self._revision = hub, failures, revision
        self._looking = asyncio.Lock()
        self._watch: ProxyWatch | None = None
        self._watching = ExitStack()
        self._end: asyncio.TimerHandle | None = None
        self._begin()

    def _begin(self) -> None:
        self._source, self._version = uuid.uuid4().hex, 0
        self._statuses: dict[str, ProxyStatus] = {}
        self._changed: dict[str, int] = {}
        """The version at which each status changed, the newest last."""

        self._failed: frozenset[str] = frozenset()

    async def delta(self, versions: Mapping[str, int]) -> FleetDelta:
        """What has changed since the version that is known of this source, or everything."""
        async with self._looking:
            revision = self._revision()  # before, so that what follows is of it at the least
            await self._look()
        since = versions.get(self._source)
        proxies = self._changed_since(0 if since is None else since)
        statuses = tuple(self._statuses[proxy] for proxy in proxies)
        return FleetDelta(self._source, self._version, revision, since is None, statuses)

    async def _look(self) -> None:
        """Look at every proxy of which there is news."""
        self._keep()
        news = dict.fromkeys(self._news())
        self._version += 1
        for number, proxy in enumerate(news, 1):
            self._note(proxy, self._status(proxy))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)  # after a change to all proxies, each of them takes a while
        self._forget_oldest()

    def _keep(self) -> None:
        """Watch for so long from now on."""
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(_PATIENCE, self._stop)
        if self._watch is None:
            self._watch = self._watching.enter_context(self._hub.watch())
            for proxy in (*self._hub.departed, *self._hub.connections):
                self._watch.tell(proxy)

    def _stop(self) -> None:
        self._watching.close()
        self._watch, self._end = None, None
        self._begin()

    def _news(self) -> Iterator[str]:
        """Nobody tells that something was sent to a proxy, or could not be made, so those are looked at each time."""
        if self._watch is not None:
            yield from self._watch.take()
        yield from self._hub.behind
        failed = frozenset(self._failures())
        yield from failed | self._failed
        self._failed = failed

    def _status(self, proxy: str) -> ProxyStatus:
        hub, connections = self._hub, self._hub.of(proxy)
        if not connections:
            return status_of_offline(proxy, hub.last_connection(proxy))
        failures = self._failures().get(proxy, ())
        return proxy_status(proxy, connections, hub.since(proxy), failures, in_sync=hub.is_in_sync(proxy))

    def _note(self, proxy: str, status: ProxyStatus) -> None:
        if self._statuses.get(proxy) != status:
            self._statuses[proxy] = status
            self._changed.pop(proxy, None)
            self._changed[proxy] = self._version

    def _changed_since(self, version: int) -> Iterator[str]:
        for proxy in reversed(self._changed):
            if self._changed[proxy] <= version:
                return
            yield proxy

    def _forget_oldest(self) -> None:
        """Of proxies that are not connected, as many are remembered as the hub does."""
        if len(self._statuses) <= REMEMBERED:
            return
        absent = [proxy for proxy in self._changed if not self._hub.of(proxy)]
        for proxy in absent[: max(0, len(absent) - REMEMBERED)]:
            del self._changed[proxy], self._statuses[proxy]

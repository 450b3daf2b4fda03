"""A control plane without policies: a hub and an ADS server on a loop of their own, for tests that are not async."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from cp.ads.connection import Connection
from cp.ads.hub import Hub
from cp.ads.loop import DrainLoop
from cp.ads.server import AdsServer, ServerOptions
from cp.translate.packing import PackedResource
from cp.translate.snapshot import Snapshot, SnapshotPart
from tests.support.loopback import Address
from tests.support.waiting import eventually

T = TypeVar("T")
Sent: TypeAlias = tuple[int, int]


class Serving:
    """Runs in a thread. What it is asked it asks on its loop."""

    def __init__(self, address: Address, **options: Any) -> None:
        self._options = ServerOptions(host=address.host, port=address.port, **options)
        self._loop = DrainLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"ADS at {address}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.hub: Hub = self._on_loop(_made(Hub))
        self._server: AdsServer = self._on_loop(_made(lambda: AdsServer(self.hub, self._options, lambda: 0.5)))
        self._on_loop(self._server.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if not self._loop.is_closed():
            self._on_loop(self._server.stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
            self._loop.close()

    def publish(self, proxy: str, *resources: PackedResource) -> Snapshot:
        snapshot = Snapshot(SnapshotPart(resources))
        self._on_loop(_made(lambda: self.hub.publisher.publish(proxy, snapshot)))
        return snapshot

    def in_sync(self, proxy: str, within: float = 10) -> None:
        eventually(lambda: self._on_loop(_made(lambda: self.hub.observer.is_in_sync(proxy))), within)

    def seat(self, proxy: str, within: float = 10) -> Connection:
        """The one stream of a proxy."""

        def seated() -> Connection:
            seats = self.hub.observer.of(proxy)
            assert len(seats) == 1
            return seats[0]

        return eventually(seated, within)

    def sent(self, proxy: str) -> dict[str, Sent]:
        """Messages and resources that a proxy's stream carried so far, by type."""
        return {
            status.type_url.rpartition(".")[2]: (status.messages, status.resources)
            for status in self.seat(proxy).session.statuses
        }

    def _on_loop(self, asked: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result(30)


async def _made(make: Callable[[], T]) -> T:
    return make()

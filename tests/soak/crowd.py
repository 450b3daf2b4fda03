"""Many proxies without traffic, on an event loop in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TypeVar

from tests.soak.fake import DeltaFake, Fake, SotwFake, Temper
from tests.support.loopback import Address

T = TypeVar("T")

TEMPERS = (
    *(Temper(), Temper(moody=True), Temper(slow=2.0), Temper()),
    *(Temper(restless=0.02), Temper(), Temper(moody=True, slow=0.3), Temper()),
)


class Crowd:
    def __init__(self, names: list[str], address: Address, chance: Random) -> None:
        kinds = (DeltaFake, SotwFake)
        self.proxies: list[Fake] = [
            kinds[index % 2](name, address, TEMPERS[index // 2 % len(TEMPERS)], Random(chance.random()))
            for index, name in enumerate(names)
        ]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="crowd", daemon=True)

    def do(self, what: Callable[[], T]) -> T:
        """Do something on the loop of the proxies."""

        async def done() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(30)

    def leave(self, proxies: list[Fake]) -> None:
        """Some go away, and come back."""

        def gone() -> None:
            for proxy in proxies:
                proxy.leave()

        self.do(gone)

    def calm_down(self) -> None:
        """From now on everyone takes what comes; and everyone connects anew, as what was refused is held back."""

        def calm() -> None:
            for proxy in self.proxies:
                proxy.temper = Temper()
                proxy.leave()

        self.do(calm)

    @contextmanager
    def alive(self) -> Iterator[None]:
        self._thread.start()
        lives = [asyncio.run_coroutine_threadsafe(proxy.live(), self._loop) for proxy in self.proxies]
        try:
            yield
        finally:
            for life in lives:
                life.cancel()
            self.do(lambda: None)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

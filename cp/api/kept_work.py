"""`KeptWork`: what was worked out for one question and makes the next one cheap, for as long as somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

KEPT: Final = 600.0
"""Seconds for which it is kept after the last question."""


class KeptWork(Generic[T]):
    """It is as large as what proxies are served: where nobody asks any more it goes, and is begun anew."""

    def __init__(self, begin: Callable[[], T]) -> None:
        self._begin = begin
        self._letting_go: asyncio.TimerHandle | None = None
        self.value = begin()

    def keep_for_a_while(self) -> None:
        """To be called in the event loop, with each question."""
        if self._letting_go is not None:
            self._letting_go.cancel()
        self._letting_go = asyncio.get_running_loop().call_later(KEPT, self._let_go)

    def _let_go(self) -> None:
        """Whoever works with it at this moment keeps it until he has done."""
        self.value = self._begin()

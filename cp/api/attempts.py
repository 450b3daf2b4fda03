"""What is read, checked and written again because somebody else wrote the same meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from cp.store.port import Conflict

T = TypeVar("T")

ATTEMPTS: Final = 5


async def attempted(attempt: Callable[[], Awaitable[T]], most: int = ATTEMPTS) -> T:
    """What the first attempt without a conflict comes to. Raises the `Conflict` of the last."""
    for _ in range(most - 1):
        with suppress(Conflict):
            return await attempt()
    return await attempt()

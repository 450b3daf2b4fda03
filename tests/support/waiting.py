"""Waiting for a condition, never for a length of time."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

import httpx

T = TypeVar("T")

NOT_YET: Final = (AssertionError, OSError, httpx.HTTPError, KeyError)
"""What a condition may raise while what it looks at is on its way."""


def eventually(condition: Callable[[], T], within: float = 10.0, pause: float = 0.02) -> T:
    """What the condition answers once it neither raises nor answers `False` or `None`."""
    deadline = time.monotonic() + within
    while True:
        last: object = None
        try:
            outcome = condition()
        except NOT_YET as error:
            last = error
        else:
            if outcome is not False and outcome is not None:
                return outcome
        if time.monotonic() > deadline:
            because = f": {last or type(last).__name__}" if last is not None else ""
            raise AssertionError(f"not within {within:g} s{because}") from (
                last if isinstance(last, BaseException) else None
            )
        time.sleep(pause)


async def eventually_on_loop(condition: Callable[[], T], within: float = 10.0, pause: float = 0.002) -> T:
    """The same for what happens on the loop that runs: what the condition answers once it is true."""
    async with asyncio.timeout(within):
        while not (answer := condition()):  # noqa: ASYNC110  # what is waited for wakes no test
            await asyncio.sleep(pause)
    return answer


def holds(condition: Callable[[], bool], during: float, pause: float = 0.02) -> None:
    """Fail as soon as the condition does not hold; pass when it held all the time."""
    end = time.monotonic() + during
    while time.monotonic() < end:
        assert condition(), f"did not hold for {during:g} s"
        time.sleep(pause)

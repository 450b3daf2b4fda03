"""Has the store forget in time what is too old, also where nobody writes: there may be secrets in what was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

import structlog

from cp.serving.background import in_background
from cp.settings import Settings
from cp.store.port import Closed, StoreUnreachable

_EVERY: Final = 60.0
"""Seconds: so much longer than its age a change may be remembered. An age that is shorter is its own measure."""

_LEAST: Final = 1.0


class ForgetfulStore(Protocol):
    """A store as far as it forgets."""

    async def forget(self) -> None: ...


@asynccontextmanager
async def forgetting(settings: Settings, store: ForgetfulStore) -> AsyncIterator[None]:
    """For as long as the block lasts, if anything is ever too old."""
    if not settings.history_age:
        yield
        return
    pause = max(_LEAST, min(_EVERY, settings.history_age))
    async with in_background(forget_again_and_again(store, pause)):
        yield


async def forget_again_and_again(store: ForgetfulStore, pause: float) -> None:
    """Until cancelled. Why it cannot be done is told once for each reason."""
    last_reason = ""
    while True:
        reason = await _reason_against(store)
        if reason not in {"", last_reason}:
            structlog.get_logger().warning("history.kept", reason=reason)
        last_reason = reason
        await asyncio.sleep(pause)


async def _reason_against(store: ForgetfulStore) -> str:
    """Why the store cannot forget, unless it tells that by itself."""
    try:
        await store.forget()
    except (StoreUnreachable, Closed):
        return ""
    except Exception as error:  # noqa: BLE001  # whatever stands there, proxies are served all the same
        return str(error)
    return ""

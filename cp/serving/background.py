"""`in_background`: something runs for as long as a block does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def in_background(coroutine: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine until the block ends. If it fails, the block is cancelled."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(coroutine)
        try:
            yield
        finally:
            task.cancel()

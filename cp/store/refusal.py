"""`WriteRefusals`: why a store that can be read takes no writes, such as because its disk is full.

It is told when it begins and when it ends, also to those who do not write. Nobody looks by writing: what is known is
what became of the last write, and that somebody else has written since.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from cp.store.port import Closed, Unusable, WritesRefused


class WriteRefusals:
    """`newest` answers with the revision that is stored."""

    def __init__(self, newest: Callable[[], Awaitable[int]]) -> None:
        self.reason = ""
        """Why the last write was not taken; empty if it was, or another one since."""

        self._stored = newest
        self._newest = 0
        """The newest revision that says nothing of now: what is newer was written after the last refusal."""

        self._log = structlog.get_logger()

    async def noted(self, write: Awaitable[int]) -> int:
        """What a write answers. One that makes no revision writes nothing, and shows nothing."""
        try:
            revision = await write
        except WritesRefused as refused:
            with suppress(Unusable, Closed):
                self._newest = max(self._newest, await self._stored())
            if not self.reason:
                self._log.error("store.refuses_writes", reason=str(refused))
            self.reason = str(refused)
            raise
        self.note(revision)
        return revision

    def note(self, revision: int) -> None:
        """Somebody has written, be it somebody else: so the store takes writes."""
        if revision > self._newest and self.reason:
            self.reason = ""
            self._log.info("store.takes_writes")
        self._newest = max(self._newest, revision)

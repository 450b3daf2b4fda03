"""`WriteRefusals`: why a store that can be read takes no writes, such as because its disk is full.

It is told when it begins and when it ends, also to those who do not write. Nobody looks by writing: what is known is
what became of the last write.
"""

from __future__ import annotations

from collections.abc import Awaitable

import structlog

from cp.store.port import WritesRefused


class WriteRefusals:
    def __init__(self) -> None:
        self.reason = ""
        """Why the last write was not taken; empty if it was."""

        self._newest = 0
        self._log = structlog.get_logger()

    async def noted(self, write: Awaitable[int]) -> int:
        """What a write answers. One that makes no revision writes nothing, and shows nothing."""
        try:
            revision = await write
        except WritesRefused as refused:
            if not self.reason:
                self._log.error("store.refuses_writes", reason=str(refused))
            self.reason = str(refused)
            raise
        if revision > self._newest and self.reason:
            self.reason = ""
            self._log.info("store.takes_writes")
        self._newest = max(self._newest, revision)
        return revision

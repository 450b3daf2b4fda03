"""`RecentChanges`: the newest writes of people, read once for all who follow them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from cp.model.registration import is_registration
from cp.resources.rollout import is_step
from cp.store.past import whole_writes
from cp.store.port import ChangeNote, Store

_AT_ONCE: Final = 200
_KEPT: Final = 1000


class RecentChanges:
    """Without what proxies do that register, get ready and go, of which the fleet tells, and steps of rollouts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reading = asyncio.Lock()
        self._changes: deque[ChangeNote] = deque()
        self._oldest = 0
        self.count = ""
        """The name of how revisions are counted."""

        self.newest = 0
        """The revision up to which changes have been read. It goes back only where revisions are counted anew."""

    async def read_up_to(self, revision: int, count: str) -> None:
        """Read what was written up to a revision. With another `count` there is nothing to be read yet, and what was
        read before is void.

        Raises `Unusable` where the store is away; nothing has been read then.
        """
        async with self._reading:
            if count != self.count:
                self.count, self.newest, self._oldest = count, revision, revision
                self._changes.clear()
            if revision > self.newest:
                changes, since = await self._read(self.newest, revision)
                self._add(changes, since)
                self.newest = revision

    def since(self, revision: int) -> Sequence[ChangeNote] | None:
        """The changes after a revision up to the newest, the oldest first; None where not all of them are known."""
        if not self._oldest <= revision <= self.newest:
            return None
        return [change for change in self._changes if change.revision > revision]

    async def _read(self, since: int, revision: int) -> tuple[Sequence[ChangeNote], int]:
        """The changes after a revision up to another, newest first, and the revision after which they are all there."""
        changes: list[ChangeNote] = []
        before = revision + 1
        while before > since + 1 and len(changes) <= _KEPT:
            part = await whole_writes(partial(self._store.log, None), _AT_ONCE, before)
            changes += (change for change in part if change.revision > since)
            before = part[-1].revision if part else 0
        oldest = await self._store.oldest()  # now, as changes may have been forgotten while others were read
        return changes, max(since, before - 1, oldest)

    def _add(self, changes: Sequence[ChangeNote], since: int) -> None:
        """Changes that follow those that are known, newest first. Those up to a revision may be missing."""
        if since > self.newest:
            self._oldest = since
        self._changes.extend(filter(_is_of_people, reversed(changes)))
        while len(self._changes) > _KEPT:
            self._oldest = max(self._oldest, self._changes.popleft().revision)


def _is_of_people(change: ChangeNote) -> bool:
    return not (is_registration(change.author.origin) or is_step(change.key, change.author.origin))

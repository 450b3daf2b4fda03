"""`Contact`: whether the database can be asked, and whether those who follow it have read what there is.

Since when not, and why, is one outage: it ends when all who follow have read what was written meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from cp.model.moments import timestamp
from cp.store.clock import Clock


@dataclass(frozen=True, slots=True)
class Outage:
    """Since when something cannot be done, and why it cannot be now."""

    since: datetime
    reason: str


@dataclass(slots=True, eq=False)
class Reader:
    """Somebody who follows the store."""

    outage: Outage | None = None
    """None: he has all that there was when he asked last."""

    given_at: int = -1
    """How often contact was lost before that was asked for which he was given last."""


class Contact:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readers: set[Reader] = set()
        self._last_reason = ""
        self.away: Outage | None = None
        """The database cannot be asked, or what it answers is not for us."""

        self.losses = 0
        """How often it was found out that it is away: what was asked before says nothing of the time after."""

    def lose(self, error: Exception) -> None:
        """Nobody can ask the database, or follow it."""
        self.losses += 1
        self.away = away = self._outage(self.away, error)
        for reader in self._readers:
            reader.outage = away if reader.outage is None else replace(reader.outage, reason=away.reason)

    def regain(self) -> None:
        """It can be asked again."""
        away, self.away = self.away, None
        self._tell_of_end(away)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Somebody follows for as long as the block lasts."""
        reader = Reader()
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            self._tell_of_end(reader.outage)

    def lose_reader(self, reader: Reader, error: Exception) -> None:
        """He is given no answer, which may be though others are."""
        if self.away is None:
            reader.outage = self._outage(reader.outage, error)

    def note_reader(self, reader: Reader) -> None:
        """He asks, or is ready to, and so has what he was given before."""
        if reader.given_at == self.losses:
            outage, reader.outage = reader.outage, None
            self._tell_of_end(outage)

    @property
    def text(self) -> str:
        """The outage in words; empty while there is none."""
        if self.away is not None:
            return f"the store is away since {_of(self.away)}"
        outages = [reader.outage for reader in self._readers if reader.outage is not None]
        first = min(outages, key=lambda outage: outage.since, default=None)
        return "" if first is None else f"the store is not read since {_of(first)}"

    def _outage(self, before: Outage | None, error: Exception) -> Outage:
        reason, since = str(error), self._clock() if before is None else before.since
        if reason != self._last_reason:  # it may be another one than at the beginning, and is what is to be mended now
            self._last_reason = reason
            structlog.get_logger().warning("store.unreachable", reason=reason, away_since=since.isoformat())
        return Outage(since, reason)

    def _tell_of_end(self, outage: Outage | None) -> None:
        if outage is not None and not self.text:
            self._last_reason = ""
            structlog.get_logger().info("store.reachable", away_since=outage.since.isoformat())


def _of(outage: Outage) -> str:
    return f"{timestamp(outage.since)}: {outage.reason}; what was read before stays in force"

"""`FairTurns`: one turn at a time, shared fairly between callers and between meshes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

MOST_OF_MESH: Final = 8
"""Turns that one mesh can have or wait for. Callers have limits of their own (`WorkBudget`)."""


class MeshBusy(Exception):
    """A mesh has as many turns as it can wait for."""


@dataclass(eq=False, slots=True)
class _Turn:
    shares: tuple[str, ...]
    first_round: int
    begun: asyncio.Event = field(default_factory=asyncio.Event)


class FairTurns:
    """Start-time fair queueing: the next turn is for the caller and the meshes that had the fewest turns so far.

    A newcomer begins with the count of those that are served now, so nobody saves turns up, and nobody waits forever.
    """

    def __init__(self) -> None:
        self._waiting: list[_Turn] = []
        """In the order in which they came."""

        self._current: _Turn | None = None
        self._round = 0
        self._rounds: dict[str, int] = {}
        """The round up to which each share has had its turns. Those that are not in it are at the current one."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @contextmanager
    def queued(self, caller: str, meshes: Iterable[str]) -> Iterator[asyncio.Event]:
        """Queue for a turn, which has begun when the event is set. It ends with the block. Raises `MeshBusy`."""
        of_meshes = tuple(f"mesh {mesh}" for mesh in meshes)
        self._must_have_room(of_meshes)
        turn = _Turn((caller, *of_meshes), self._round)
        self._waiting.append(turn)
        self._begin_next()
        try:
            yield turn.begun
        finally:
            self._end(turn)

    def _must_have_room(self, meshes: Iterable[str]) -> None:
        turns = (*self._waiting, *filter(None, (self._current,)))
        counts = Counter(share for turn in turns for share in turn.shares)
        for mesh in meshes:
            if counts[mesh] >= MOST_OF_MESH:
                raise MeshBusy(f"{MOST_OF_MESH} preflights of {mesh} are under way, which is the most for one mesh")

    def _end(self, turn: _Turn) -> None:
        if turn is self._current:
            self._current = None
        else:
            self._waiting.remove(turn)
        self._begin_next()

    def _begin_next(self) -> None:
        if self._current is not None or not self._waiting:
            return
        turn = min(self._waiting, key=self._order)
        self._round = max(self._round, self._order(turn)[0])
        self._rounds |= {share: max(self._round, self._rounds.get(share, 0)) + 1 for share in turn.shares}
        self._rounds = {share: had for share, had in self._rounds.items() if had > self._round}
        self._waiting.remove(turn)
        self._current = turn
        turn.begun.set()

    def _order(self, turn: _Turn) -> list[int]:
        """Compare turns by the share that had the most, then by the others. Of equal ones the first that came wins."""
        return sorted((max(turn.first_round, self._rounds.get(share, 0)) for share in turn.shares), reverse=True)

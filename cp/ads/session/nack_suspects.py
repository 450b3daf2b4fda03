"""`NackSuspects`: what came together and was refused together, without a word about which of it is wrong.

They are let in again in groups, one after the other. A group that is refused again is divided again, until whoever is
to blame stands alone and everyone else is in force.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

GROUPS = 8


class NackSuspects:
    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: deque[Sequence[str]] = deque()

    def add(self, names: Sequence[str]) -> None:
        """These first, as they are the fewest."""
        size = -(-len(names) // GROUPS)
        self._groups.extendleft(reversed([names[at : at + size] for at in range(0, len(names), size)]))

    def next(self, held: Collection[str]) -> list[str]:
        """The next group to let in, as far as it is still held back."""
        while self._groups:
            if group := [name for name in self._groups.popleft() if name in held]:
                return group
        return []

"""`Names`: sets of resource names, each there once, whoever asks for it.

The streams of a class ask for the same names, and a state-of-the-world stream repeats all of them in each answer. So
they are recognised by the bytes in which they were said before, which costs a seventh of reading them again.
"""

from __future__ import annotations

from typing import Final, TypeAlias
from weakref import WeakValueDictionary

REMEMBERED: Final = 10_000
"""Ways to say a set: each Envoy has an order of its own."""

_Run: TypeAlias = tuple[int, int]


class Names:
    """Nothing is held here: a set that nobody asks for any more is forgotten."""

    def __init__(self) -> None:
        self._sets: WeakValueDictionary[int, frozenset[str]] = WeakValueDictionary()
        self._said: WeakValueDictionary[_Run, frozenset[str]] = WeakValueDictionary()

    def shared(self, names: frozenset[str]) -> frozenset[str]:
        """The one set that has these names."""
        known = self._sets.get(hash(names))
        if known is not None and (known is names or known == names):
            return known
        self._sets[hash(names)] = names
        return names

    def said_in(self, run: memoryview) -> frozenset[str] | None:
        """The names that were said in these very bytes, if they are known."""
        return self._said.get(_key(run))

    def remember(self, run: memoryview, names: frozenset[str]) -> frozenset[str]:
        """These bytes say these names; answers with the one set that has them."""
        if len(self._said) >= REMEMBERED:
            self._said.clear()
        self._said[_key(run)] = shared = self.shared(names)
        return shared

    def __len__(self) -> int:
        return len(self._sets)


def _key(run: memoryview) -> _Run:
    """Python's hash of bytes is keyed with a secret of the process, so nobody can send what is taken for others."""
    return len(run), hash(run)

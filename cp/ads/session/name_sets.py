"""`NameSets`: sets of resource names, each there once, whoever asks for it.

The streams of a class ask for the same names, and a state-of-the-world stream repeats all of them in each answer. So
they are recognised by the bytes in which they were said before, which costs a fifth of making a set of them again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import intern
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

REMEMBERED: Final = 10_000
"""Ways to say a set: an Envoy may have an order of its own."""

LONG: Final = 1024
"""So many bytes of names are worth the effort."""

_Saying: TypeAlias = tuple[int, int, int]


class NameSets:
    """Nothing is held here: a set that nobody asks for any more is forgotten."""

    def __init__(self, said: Callable[[Sequence[str]], bytes]) -> None:
        """`said` tells in which bytes names are said, if nothing else is among them."""
        self._say = said
        self._sets: WeakValueDictionary[int, frozenset[str]] = WeakValueDictionary()
        self._said: WeakValueDictionary[_Saying, frozenset[str]] = WeakValueDictionary()

    def shared(self, names: frozenset[str]) -> frozenset[str]:
        """The one set that has these names."""
        known = self._sets.get(hash(names))
        if known is not None and (known is names or known == names):
            return known
        self._sets[hash(names)] = names
        return names

    def read(self, names: Sequence[str], run: memoryview) -> frozenset[str]:
        """The one set that has these names, which probably are what this run of bytes says.

        Only a run that says them all and nothing else is remembered. A message with as many names that has this run in
        it says no others.
        """
        if len(run) < LONG:
            return self.shared(frozenset(names))
        saying = (len(names), len(run), hash(run))  # with a secret of the process, so that nobody can make up another
        known = self._said.get(saying)
        if known is not None:
            return known
        known = self.shared(frozenset(map(intern, names)))  # other sets may have most of them too
        if self._say(names) == run:
            self._remember(saying, known)
        return known

    def _remember(self, saying: _Saying, names: frozenset[str]) -> None:
        if len(self._said) >= REMEMBERED:
            self._said.clear()
        self._said[saying] = names

    def __len__(self) -> int:
        return len(self._sets)

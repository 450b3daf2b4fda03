"""`NameSets`: sets of resource names, of which equal ones are one object for all streams.

The streams of a class subscribe to the same names, and a state-of-the-world stream repeats all of them in each request.
So a set is recognised by the bytes of its names in a request, which costs a fifth of making the set anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import intern
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

REMEMBERED: Final = 10_000
"""Byte strings that are remembered. There may be several for one set: an Envoy may have an order of its own."""

LONG: Final = 1024
"""Bytes of names from which on recognition is worth its cost."""

LONGEST: Final = 1024
"""Bytes of a name, on average, up to which sets are recognised. Ours are shorter, and comparing copies all of them."""

_PART: Final = 1000
"""Names that are encoded at once."""

_Fingerprint: TypeAlias = tuple[int, int, int]


class NameSets:
    """It holds no set by itself: a set that no stream holds any more is forgotten."""

    def __init__(self, encode: Callable[[Sequence[str]], bytes]) -> None:
        """`encode` returns the bytes of names in a request, if nothing else stands among them."""
        self._encode = encode
        # By hash: a set that is its own key would be held for ever. Equality is checked at each look-up.
        self._sets: WeakValueDictionary[int, frozenset[str]] = WeakValueDictionary()
        self._recognised: WeakValueDictionary[_Fingerprint, frozenset[str]] = WeakValueDictionary()

    def shared(self, names: frozenset[str]) -> frozenset[str]:
        """The set with these names that all streams hold."""
        shared_set = self._sets.get(hash(names))
        if shared_set is not None and (shared_set is names or shared_set == names):
            return shared_set
        self._sets[hash(names)] = names
        return names

    def read(self, names: Sequence[str], encoded_names: memoryview) -> frozenset[str]:
        """The set with these names, which these bytes of the request probably encode."""
        if len(encoded_names) < LONG or len(encoded_names) > LONGEST * len(names):
            return self.shared(frozenset(names))
        # Python hashes bytes with a secret of the process, so nobody can make up other bytes with the same hash.
        fingerprint = (len(names), len(encoded_names), hash(encoded_names))
        recognised = self._recognised.get(fingerprint)
        if recognised is not None:
            return recognised
        names_set = self.shared(frozenset(map(intern, names)))  # interned: other sets may have most of the names too
        # Only bytes that encode all of the names and nothing else are remembered. Another message that has these bytes
        # in it and as many names can have no other names.
        if self._encodes(names, encoded_names):
            self._remember(fingerprint, names_set)
        return names_set

    def _encodes(self, names: Sequence[str], encoded_names: memoryview) -> bool:
        """Compare names part by part, because all of them once more would be megabytes."""
        end = 0
        for first in range(0, len(names), _PART):
            part = self._encode(names[first : first + _PART])
            begin, end = end, end + len(part)
            if encoded_names[begin:end] != part:
                return False
        return end == len(encoded_names)

    def _remember(self, fingerprint: _Fingerprint, names: frozenset[str]) -> None:
        if len(self._recognised) >= REMEMBERED:
            self._recognised.clear()
        self._recognised[fingerprint] = names

    def __len__(self) -> int:
        return len(self._sets)

"""Dependencies by name: on what a result depends, and what a change concerns (record 0054).

A result that is kept over changes declares the names of everything that it depends on, be it there or not. A change
has a scope: the names that it concerns. A result is worked out again if the two meet. Too many names cost a look-up;
too few would be a stale configuration.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

Name: TypeAlias = tuple[str, str]
"""Kind and name, as references say it. A service that is known by its tag has the kind `kuma.io/service`."""

ANY: Final = "*"
"""In place of a name: some resource of the kind, whichever."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class ChangeScope:
    """The names that a change concerns; or everything, where it does not say which."""

    names: frozenset[Name] = frozenset()
    everything: bool = False

    def concerns(self, names: AbstractSet[Name]) -> bool:
        return self.everything or not self.names.isdisjoint(names)

    def __or__(self, other: ChangeScope) -> ChangeScope:
        return ChangeScope(self.names | other.names, self.everything or other.everything)

    def __bool__(self) -> bool:
        return self.everything or bool(self.names)


NOTHING: Final = ChangeScope()
EVERYTHING: Final = ChangeScope(everything=True)


class DependentValues(Generic[Key, Value]):
    """Values by key, each with the names that it depends on.

    The names follow from the key. Keys are indexed by them, so that a change looks only at the values that it concerns.
    """

    def __init__(self) -> None:
        self._values: dict[Key, Value] = {}
        self._keys_by_name: dict[Name, set[Key]] = {}

    def get(self, key: Key) -> Value | None:
        return self._values.get(key)

    def put(self, key: Key, value: Value, names: Iterable[Name]) -> None:
        # Names first, and in `after` values first: another thread that takes over meanwhile has no value without them.
        for name in names:
            self._keys_by_name.setdefault(name, set()).add(key)
        self._values[key] = value

    def after(self, scope: ChangeScope) -> DependentValues[Key, Value]:
        """The same without the values that a change concerns."""
        kept = DependentValues[Key, Value]()
        if scope.everything:
            return kept
        kept._values = dict(self._values)
        kept._keys_by_name = dict(self._keys_by_name)
        for name in scope.names:
            for key in tuple(kept._keys_by_name.pop(name, ())):  # both generations have the set, and add to it
                kept._values.pop(key, None)
        return kept

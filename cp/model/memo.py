"""Memos: values that are worked out once for a generation of immutable data, and kept for the next as far as they hold.

A `World` is such a generation. A `Memo` declares on what its values depend (`basis`), so nothing is kept by guesswork:
a value of the generation before holds if its basis is equal. What holds keeps its identity, and so does a new value
that is equal to the old one, because later stages compare identities (record 0054).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from cp.model.checkpoint import pass_checkpoint
from cp.model.remembered import remembered

T = TypeVar("T")
Source = TypeVar("Source")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
SharedValue = TypeVar("SharedValue", bound=Hashable)


class ByIdentity(Generic[T]):
    """A key that equals only keys of the very same object.

    It keeps the object alive. A bare `id()` does not, and a later object may be given the id of a dead one.
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value: Final = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class IdentityDict(Generic[T, Value]):
    """Values by the identity of their keys, which it keeps alive: as with `ByIdentity`, for what is looked up often."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[int, tuple[T, Value]] = {}

    def get(self, key: T) -> Value | None:
        item = self._items.get(id(key))
        return None if item is None else item[1]

    def put(self, key: T, value: Value) -> None:
        self._items[id(key)] = (key, value)

    def values(self) -> Iterator[Value]:
        return (value for _, value in self._items.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Entry(Generic[Value]):
    basis: object
    value: Value


class Memo(ABC, Generic[Source, Key, Value]):
    """The values of one generation, by key.

    An entry for which a whole generation does not ask is dropped with the next one, unless its key says otherwise
    (`is_alive`). So `basis` asks the memos from which a value is made, which keeps their entries too.
    """

    def __init__(self, generation: Any, earlier: Memo[Source, Key, Value] | None = None) -> None:
        # The generation is not kept. It holds its memos, and objects that hold each other are freed by the garbage
        # collector alone, which seldom runs here. Of the memo before only entries are kept: a chain of memos would
        # keep every generation.
        self.entries: dict[Key, _Entry[Value]] = {}
        self.entries_before: Mapping[Key, _Entry[Value]] = {}
        if earlier is not None:
            unasked = {
                key: entry
                for key, entry in dict(earlier.entries_before).items()  # threads may still ask the one before
                if key not in earlier.entries and self.is_alive(generation, key)
            }
            self.entries_before = {**unasked, **earlier.entries} if unasked else earlier.entries

    @abstractmethod
    def basis(self, source: Source, key: Key) -> object:
        """Everything on which the value depends, beside the key: compared with that of the generation before."""

    @abstractmethod
    def work_out(self, source: Source, key: Key) -> Value:
        """The value of a key. It may make use of the value that there was before (`earlier`)."""

    def is_alive(self, generation: Any, key: Key) -> bool:  # noqa: ARG002  # for memos that know better
        """Whether to keep an entry for which the last generation did not ask."""
        return False

    def get(self, source: Source, key: Key) -> Value:
        """The value of a key. The source is the generation itself, or the generation and an example of the key."""
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries.setdefault(key, self._entry(source, key))  # the first of several threads wins
        return entry.value

    def earlier(self, key: Key) -> Value | None:
        """The value of a key in the generation before, whether it holds or not."""
        entry = self.entries_before.get(key)
        return None if entry is None else entry.value

    def _entry(self, source: Source, key: Key) -> _Entry[Value]:
        pass_checkpoint()
        basis, earlier = self.basis(source, key), self.entries_before.get(key)
        if earlier is None:
            return _Entry(basis, self._known(self.work_out(source, key)))
        if earlier.basis is basis or earlier.basis == basis:
            return earlier
        value = self.work_out(source, key)
        return _Entry(basis, earlier.value if value == earlier.value else self._known(value))

    def _known(self, value: Value) -> Value:
        """The object to keep for a new value."""
        return value


class SharingMemo(Memo[Source, Key, SharedValue]):
    """A memo in which equal values of different keys are one object too."""

    def _known(self, value: SharedValue) -> SharedValue:
        return self._values.setdefault(value, value)

    @remembered
    def _values(self) -> dict[SharedValue, SharedValue]:
        entries = (*self.entries_before.values(), *self.entries.values())
        return {entry.value: entry.value for entry in entries}

"""`Checkpoint` and `Allowance`: by which long work ends early, as nobody waits for it or it becomes too large."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Checkpoint: TypeAlias = Callable[[], None]
"""Returns if the work is to go on, and raises `Stopped` if it is to end."""


class Stopped(Exception):
    """The client has gone, or the time for the answer is over."""


class TooLarge(Exception):
    """A result would have more bytes than it may have."""


class Allowance:
    """How many bytes a result may have. Each part of it takes its own while it is made."""

    def __init__(self, size: float = math.inf) -> None:
        self._left = size

    def take(self, size: int) -> None:
        """Raises `TooLarge` if no more so many bytes are left."""
        self._left -= size
        if self._left < 0:
            raise TooLarge


def never_stopped() -> None:
    """The checkpoint of work that always runs to its end."""


def checked(items: Iterable[T], checkpoint: Checkpoint) -> Iterator[T]:
    """The same items, with a checkpoint before each."""
    for item in items:
        checkpoint()
        yield item

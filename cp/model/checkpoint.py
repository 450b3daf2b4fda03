"""`Checkpoint`: where long work finds out that nobody waits for it any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Checkpoint: TypeAlias = Callable[[], None]
"""Returns if the work is to go on, and raises `Stopped` if it is not."""


class Stopped(Exception):
    """Whoever asked has gone, or the time for the answer is over."""


def never_stopped() -> None:
    """The checkpoint of work that goes on to its end."""


def checked(items: Iterable[T], checkpoint: Checkpoint) -> Iterator[T]:
    """The same items, with a checkpoint before each."""
    for item in items:
        checkpoint()
        yield item

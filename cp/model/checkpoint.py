"""`Checkpoint`: a call by which long work ends early when nobody waits for its result any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Checkpoint: TypeAlias = Callable[[], None]
"""Returns if the work is to go on, and raises `Stopped` if it is to end."""


class Stopped(Exception):
    """The client has gone, or the time for the answer is over."""


def never_stopped() -> None:
    """The checkpoint of work that always runs to its end."""


def checked(items: Iterable[T], checkpoint: Checkpoint) -> Iterator[T]:
    """The same items, with a checkpoint before each."""
    for item in items:
        checkpoint()
        yield item

"""`Checkpoint` and `Allowance`: by which long work ends early, as nobody waits for it or it becomes too large.

Work is given its checkpoint, or passes that of its thread (`pass_checkpoint`): stages that also compute what proxies
are served know of none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

Checkpoint: TypeAlias = Callable[[], None]
"""Returns if the work is to go on, and raises `Stopped` if it is to end."""


class Stopped(BaseException):
    """The client has gone, or the time for the answer is over.

    No `Exception`: it is no fault of a part of the work, after which the other parts go on.
    """


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


_CURRENT: Final[ContextVar[Checkpoint]] = ContextVar("koguma.checkpoint", default=never_stopped)


def pass_checkpoint() -> None:
    """Pass the checkpoint of the work that this thread does. Raises `Stopped`."""
    _CURRENT.get()()


@contextmanager
def checkpoint_set(checkpoint: Checkpoint) -> Iterator[None]:
    """Make this the checkpoint of all work in the block, and of tasks that begin in it."""
    token = _CURRENT.set(checkpoint)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def checked(items: Iterable[T], checkpoint: Checkpoint) -> Iterator[T]:
    """The same items, with a checkpoint before each."""
    for item in items:
        checkpoint()
        yield item

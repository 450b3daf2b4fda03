"""`Precedence`: delivery to proxies comes before answers to questions, which share the interpreter with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Final

from cp.model.checkpoint import Checkpoint, never_stopped

_PAUSE: Final = 0.05
"""Seconds that other work waits for delivery at a time."""

_SHARE: Final = 0.025
"""Seconds that it goes on before it waits again: so it has a third of the time, however long delivery takes."""

_IS_NEEDED: Final[ContextVar[Callable[[], bool]]] = ContextVar("koguma.is_needed", default=lambda: False)
"""Returns True while delivery waits for a lock that the work of this context holds."""


class Precedence:
    """True to its threads at any time: whether delivery is at work. It begins and ends on the event loop."""

    def __init__(self) -> None:
        self._begun = 0
        self._has_changed = threading.Condition()

    @property
    def is_claimed(self) -> bool:
        return self._begun > 0

    def begin(self) -> None:
        self._begun += 1

    def end(self) -> None:
        self._begun -= 1
        if not self._begun:
            self.wake()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Have other work wait during the block."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def wait(self) -> None:
        """Wait until delivery has ended or needs this work to go on, but not for long."""
        is_needed = _IS_NEEDED.get()
        with self._has_changed:
            self._has_changed.wait_for(lambda: not self.is_claimed or is_needed(), _PAUSE)

    def wake(self) -> None:
        """Have work that waits check whether it may go on."""
        with self._has_changed:
            self._has_changed.notify_all()


class DeliveryLock:
    """A lock that delivery and questions share.

    A question that holds it does not wait for delivery that waits for the lock: each would wait for the other.
    """

    def __init__(self, precedence: Precedence, has_precedence: Callable[[], bool]) -> None:
        """`has_precedence` returns False while the delivery that uses the lock itself waits for other delivery."""
        self._precedence, self._has_precedence = precedence, has_precedence
        self._lock = threading.Lock()
        self.is_awaited = False

    @contextmanager
    def held_by_delivery(self) -> Iterator[None]:
        """Hold the lock during the block. One thread at a time does so."""
        self.is_awaited = True
        self._precedence.wake()
        with self._lock:
            self.is_awaited = False
            yield

    @contextmanager
    def held_by_question(self) -> Iterator[None]:
        with self._lock:
            token = _IS_NEEDED.set(lambda: self.is_awaited and self._has_precedence())
            try:
                yield
            finally:
                _IS_NEEDED.reset(token)


def yielding(precedence: Precedence, checkpoint: Checkpoint = never_stopped) -> Checkpoint:
    """A checkpoint at which work also waits for delivery."""
    resumed = monotonic()

    def pass_checkpoint() -> None:
        nonlocal resumed
        checkpoint()
        if precedence.is_claimed and monotonic() - resumed >= _SHARE:
            precedence.wait()
            resumed = monotonic()
            checkpoint()

    return pass_checkpoint

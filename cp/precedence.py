"""`Precedence`: delivery to proxies comes before answers to questions, which share the interpreter with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from cp.model.checkpoint import Checkpoint, never_stopped

_PAUSE: Final = 0.05
"""Seconds that other work waits for delivery at a time."""

_SHARE: Final = 0.025
"""Seconds that it goes on before it waits again: so it has a third of the time, however long delivery takes."""


class Precedence:
    """True to its threads at any time: whether delivery is at work. It begins and ends on the event loop."""

    def __init__(self) -> None:
        self._begun = 0
        self._is_over = threading.Event()
        self._is_over.set()

    @property
    def is_claimed(self) -> bool:
        return not self._is_over.is_set()

    def begin(self) -> None:
        self._begun += 1
        self._is_over.clear()

    def end(self) -> None:
        self._begun -= 1
        if not self._begun:
            self._is_over.set()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Have other work wait during the block."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def wait(self) -> None:
        """Wait until delivery has ended, but not for long."""
        self._is_over.wait(_PAUSE)


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

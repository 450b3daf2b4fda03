"""`WorkBudget`: the limits of work for requests of one sort, and the checkpoint at which they are checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from cp.model.checkpoint import Checkpoint, Stopped

_CHECKED_EVERY: Final = 0.02
"""Seconds between two checks of memory, which take a system call."""

_STATUS: Final = Path("/proc/self/statm")
_PAGE: Final = 4096
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WorkBudget:
    """The limits of requests of one sort."""

    at_once: int = 2
    waiting: int = 64
    of_caller: int = 16
    """How many of one caller are under way. Administrators on this machine have no limit of their own."""

    seconds: float = 60.0
    """From the moment that the request is known to the answer, waiting included."""

    memory: int = 512 * _MIB
    """Bytes by which the process may grow during a request. Requests at the same time share it."""


class TooMuchMemory(Stopped):
    """The work would take more memory than its budget."""


def resident() -> int:
    """The resident memory of this process in bytes; 0 where the system does not report it."""
    try:
        return int(_STATUS.read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def budgeted(is_stopped: Callable[[], bool], memory: int, measure: Callable[[], int] = resident) -> Checkpoint:
    """A checkpoint that ends work whose client has gone, or that takes too much memory from now on."""
    most, due = measure() + memory, monotonic()

    def pass_checkpoint() -> None:
        nonlocal due
        if is_stopped():
            raise Stopped
        now = monotonic()
        if now >= due:
            due = now + _CHECKED_EVERY
            if measure() > most:
                raise TooMuchMemory

    return pass_checkpoint

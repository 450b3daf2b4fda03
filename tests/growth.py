"""How the cost of something grows with its input, without a clock on the wall: the ratio of two costs of one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

MOST: Final = 9.0
"""Four times the input may cost so many times as much. In proportion is 4, the square 16; the rest is noise."""

_LEAST: Final = 0.002
"""Seconds of the processor below which a cost is not worth comparing."""


def growth(make: Callable[[int], T], work: Callable[[T], object], size: int) -> float:
    """How many times as much four times the input costs."""
    small, large = make(size), make(4 * size)
    return max(_cost(work, large), _LEAST) / max(_cost(work, small), _LEAST)


def _cost(work: Callable[[T], object], given: T) -> float:
    return min(_once(work, given) for _ in range(3))


def _once(work: Callable[[T], object], given: T) -> float:
    began = time.thread_time()
    work(given)
    return time.thread_time() - began

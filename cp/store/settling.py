"""`SettledValues`: believe a change only when it has lasted.

Who writes a file empties it first, who saves it may move it away for a moment: what is seen in between is neither
what was there nor what will be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class SettledValues(Generic[K, V]):
    """What is believed of some things that are looked at from time to time. The first sight is believed at once."""

    def __init__(self, lasting: float, now: Callable[[], float] = time.monotonic) -> None:
        self._lasting, self._now = lasting, now
        self._believed: dict[K, V] | None = None
        self._doubted: dict[K, tuple[V | None, float]] = {}

    @property
    def in_doubt(self) -> bool:
        """Something was seen for too short a time: look again soon."""
        return len(self._doubted) > 0

    def believe(self, seen: Mapping[K, V]) -> Mapping[K, V]:
        """What is believed after this sight: of each thing, what was last seen for long enough."""
        if self._believed is None:
            self._believed = dict(seen)
        now, before = self._now(), self._doubted
        self._doubted = {}
        for key in {*seen, *self._believed}:
            value = seen.get(key)
            if value != self._believed.get(key):
                doubted, since = before.get(key, (None, now))
                self._weigh(key, value, since if doubted == value else now, now)
        return self._believed

    def _weigh(self, key: K, value: V | None, since: float, now: float) -> None:
        assert self._believed is not None  # noqa: S101  # narrows the type
        if now - since < self._lasting:
            self._doubted[key] = (value, since)
        elif value is None:
            del self._believed[key]
        else:
            self._believed[key] = value

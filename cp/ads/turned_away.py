"""`TurnedAway`: how long a client waits for the answer that it is not served.

A client that is told at once may come back at once, and each time costs the server more than the client. So an address
whose clients were turned away often is answered later and later. To wait costs no time. An Envoy waits between streams
by itself, and longer each time, until it has received a response.

A Dataplane or token whose streams were turned away in the middle of a request is treated alike, except that its next
streams wait, before anything is read from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cp.model.token_buckets import TokenBuckets

AT_ONCE: Final = 10
"""Clients of one address that are answered at once. After each second it is one more."""

_SLOWDOWN: Final = 0.05
"""Seconds by which an answer is later for each client of its address that was turned away before."""

LONGEST: Final = 30.0
_MOST_WAITING: Final = 10_000


class TurnedAway:
    """Those of one server. The clock tells seconds, and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting = 0
        self._addresses = TokenBuckets[str](AT_ONCE, 1.0)
        self._askers = TokenBuckets[str](AT_ONCE, 1.0)

    @contextmanager
    def waiting(self, address: str) -> Iterator[float]:
        """Return the seconds after which a client is to be answered, and count it for as long as the block lasts."""
        self._waiting += 1
        try:
            yield 0.0 if self._waiting > _MOST_WAITING else self._delay(address)
        finally:
            self._waiting -= 1

    def note(self, asker: str) -> None:
        """Count a stream of a Dataplane or token that was turned away in the middle of a request."""
        self._askers.bucket(asker).spend(1.0, self._clock())

    def delay(self, asker: str) -> float:
        """Return the seconds for which to read nothing from a new stream of a Dataplane or token."""
        return _seconds(self._askers.bucket(asker).spend(0.0, self._clock()))

    def _delay(self, address: str) -> float:
        return _seconds(self._addresses.bucket(address).spend(1.0, self._clock()))


def _seconds(turned_away: float) -> float:
    return min(LONGEST, turned_away * _SLOWDOWN)

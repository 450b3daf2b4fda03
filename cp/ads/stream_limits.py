"""`StreamLimits`: how many streams a server serves at once, in all and for one address.

Where proxies show tokens, only streams that have shown a good one count: nobody without one takes the place of a proxy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

TOO_MANY: Final = "too many"
TOO_MANY_OF_ADDRESS: Final = "too many of one address"


class TooManyStreams(Exception):
    """As many streams are open as there may be."""

    def __init__(self, sort: str, reason: str) -> None:
        super().__init__(reason)
        self.sort: Final = sort
        """As metrics have it."""


class StreamLimits:
    def __init__(self, most: int | None, most_of_address: int | None) -> None:
        """None: there is no limit."""
        self._most, self._most_of_address = most, most_of_address
        self._streams: Counter[str] = Counter()

    @contextmanager
    def counted(self, peer: str) -> Iterator[None]:
        """Count a stream for as long as the block lasts. Raises `TooManyStreams`."""
        address = address_of(peer)
        self._check(address)
        self._streams[address] += 1
        try:
            yield
        finally:
            self._streams[address] -= 1
            if self._streams[address] <= 0:
                del self._streams[address]

    def _check(self, address: str) -> None:
        if self._most is not None and self._streams.total() >= self._most:
            reason = f"this control plane serves {self._most} streams already, and no more (KOGUMA_MOST_STREAMS)"
            raise TooManyStreams(TOO_MANY, reason)
        if self._most_of_address is not None and self._streams[address] >= self._most_of_address:
            reason = f"{self._most_of_address} streams of this address are open, and there may be no more"
            raise TooManyStreams(TOO_MANY_OF_ADDRESS, f"{reason} (KOGUMA_MOST_STREAMS_OF_ADDRESS)")


def address_of(peer: str) -> str:
    """The address of a peer as gRPC names it: `ipv4:10.0.0.1:4711`, without the port."""
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer

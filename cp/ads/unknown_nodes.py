"""`UnknownNodes`: streams of proxies that have no Dataplane. They cost memory and get nothing, so few are let in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TooManyUnknownNodes(Exception):
    """There are as many already as there may be."""


class UnknownNodes:
    def __init__(self, most: int, is_known: Callable[[str], bool]) -> None:
        self._most = most
        self._is_known = is_known
        self._streams: Counter[str] = Counter()

    @contextmanager
    def admitted(self, proxy: str) -> Iterator[None]:
        """Count a stream for as long as it lasts, if nobody knows its proxy. Raises `TooManyUnknownNodes`."""
        if self._is_known(proxy):
            yield
            return
        self._make_room()
        self._streams[proxy] += 1
        try:
            yield
        finally:
            self._streams[proxy] -= 1
            if self._streams[proxy] <= 0:
                del self._streams[proxy]

    def _make_room(self) -> None:
        """Those whose Dataplane has come since no longer count. They are looked through only where it matters."""
        if self._streams.total() < self._most:
            return
        for proxy in [proxy for proxy in self._streams if self._is_known(proxy)]:
            del self._streams[proxy]
        if self._streams.total() >= self._most:
            raise TooManyUnknownNodes(
                f"{self._most} proxies without a Dataplane are connected, and there may be no more "
                "(KOGUMA_MOST_UNKNOWN); write this one's Dataplane first"
            )

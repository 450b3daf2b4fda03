"""`UnknownNodes`: a limit on the streams of proxies that have no Dataplane. They cost memory and are sent nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TooManyUnknownNodes(Exception):
    """As many streams of unknown nodes are open as there may be."""


class UnknownNodes:
    def __init__(self, limit: int, is_known: Callable[[str], bool]) -> None:
        self._limit = limit
        self.is_known = is_known
        self._streams: Counter[str] = Counter()  # node id -> how many streams of it count

    @contextmanager
    def counted(self, node_id: str) -> Iterator[None]:
        """Count a stream for as long as the block lasts, if its node is unknown. Raises `TooManyUnknownNodes`."""
        if self.is_known(node_id):
            yield
            return
        self._check_limit()
        self._streams[node_id] += 1
        try:
            yield
        finally:
            # `_check_limit` may have dropped the node meanwhile; a Counter takes that for zero.
            self._streams[node_id] -= 1
            if self._streams[node_id] <= 0:
                del self._streams[node_id]

    def _check_limit(self) -> None:
        if self._streams.total() < self._limit:
            return
        # Nodes whose Dataplane was written since they came no longer count. This is found out only where it matters.
        for node_id in [node_id for node_id in self._streams if self.is_known(node_id)]:
            del self._streams[node_id]
        if self._streams.total() >= self._limit:
            raise TooManyUnknownNodes(
                f"{self._limit} proxies without a Dataplane are connected, and there may be no more "
                "(KOGUMA_MOST_UNKNOWN); write this one's Dataplane first"
            )

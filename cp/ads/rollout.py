"""`Rollout`: in which order a client is brought to the newest snapshot, so that nothing ever points at nothing.

    clusters, with their endpoints right behind  ->  the client's word (or its deadline)  ->  listeners, routes
    ->  the client's word  ->  clusters that nobody uses any more go

Endpoints and secrets depend on no order and are always the newest. A newer snapshot waits until the order above
has come to its routes, so that a stream of changes cannot hold up the routes for ever.
No clock is in here: `awaits` names the response on whose answer the rest waits, and who has a clock may `expire` it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from cp.ads.channel import LISTED, Changes, Channel
from cp.ads.messages import Nack, Response, Status
from cp.snapshot import CLUSTER, EMPTY, ENDPOINTS, LISTENER, ROUTES, SECRET, Batch, Snapshot

_ALONE = 32 * 1024  # a batch of so many bytes goes in a response of its own, which other streams then share


class Rollout(ABC):
    """The order of things on one stream. How a change is said is up to the kind of stream."""

    __slots__ = ("_channels", "_current", "_is_told", "_newest", "_share", "heard")

    says_all = False  # a response for clusters or listeners holds all there are

    def __init__(self, share: Callable[[frozenset[str]], frozenset[str]] = frozenset) -> None:
        self._channels: dict[str, Channel] = {}
        self._current = EMPTY  # whose clusters the client has or is being given
        self._is_told = True  # its listeners and routes too
        self._newest: Snapshot | None = None
        self._share = share
        self.heard: Nack | str | None = None  # what the last request said to a response: refused, or accepted version

    @abstractmethod
    def _responses(self, channel: Channel, changes: Changes, snapshot: Snapshot) -> Iterator[Response]: ...

    # --- what happens ---

    def publish(self, snapshot: Snapshot) -> list[Response]:
        """There is a newer snapshot."""
        self._newest = snapshot
        return self._advance()

    def expire(self, nonce: str) -> list[Response]:
        """The answer to this response is not coming in time: go on without it."""
        if nonce == self.awaits:
            self._channel(CLUSTER).wait_no_longer()
        return self._advance()

    @property
    def awaits(self) -> str | None:
        """The nonce of the response whose answer everything else waits for."""
        clusters = self._channels.get(CLUSTER)
        return None if clusters is None else clusters.waits_for()

    @property
    def statuses(self) -> tuple[Status, ...]:
        return tuple(channel.status(self._newest) for channel in self._channels.values() if channel.asked)

    def is_at(self, snapshot: Snapshot) -> bool:
        """The client has confirmed all of it."""
        return self._newest is not None and all(channel.is_at(snapshot) for channel in self._channels.values())

    # --- the order ---

    def _channel(self, type_url: str) -> Channel:
        if type_url not in self._channels:
            self._channels[type_url] = Channel(type_url, full=self.says_all and type_url in LISTED)
        return self._channels[type_url]

    def _advance(self) -> list[Response]:
        responses: list[Response] = []
        while self._newest is not None:
            if self._is_told and self.awaits is None:
                self._current, self._is_told = self._newest, False
            responses += self._send(CLUSTER, self._current, removing=False)
            responses += self._send(ENDPOINTS, self._newest, self._current)
            responses += self._send(SECRET, self._newest, self._current)
            if self.awaits is not None:
                break
            responses += self._send_what_uses_clusters(self._current)
            self._is_told = True
            if self._current is self._newest:
                break
        return responses

    def _send_what_uses_clusters(self, snapshot: Snapshot) -> list[Response]:
        """Once these are in force, clusters that they no longer use can go."""
        responses = self._send(LISTENER, snapshot) + self._send(ROUTES, snapshot)
        if self._is_confirmed(LISTENER) and self._is_confirmed(ROUTES):
            responses += self._send(CLUSTER, snapshot)
        return responses

    def _send(
        self, type_url: str, snapshot: Snapshot, fallback: Snapshot = EMPTY, *, removing: bool = True
    ) -> list[Response]:
        channel = self._channels.get(type_url)
        if channel is None or not channel.asked:
            return []
        changes = channel.changes(snapshot, EMPTY if fallback is snapshot else fallback, removing=removing)
        responses = list(self._responses(channel, changes, snapshot)) if changes else []
        if type_url == CLUSTER and responses:
            self._warm(changes)
        return responses

    def _warm(self, changes: Changes) -> None:
        """A changed cluster warms up again, and for that needs its endpoints again, changed or not."""
        for batch in changes.batches:
            self._channel(ENDPOINTS).again(batch.names)

    def _say(self, channel: Channel, version: str, content: tuple[Batch, ...], changes: Changes) -> Response:
        removed = () if self.says_all else changes.removed
        response = Response(channel.type_url, version, channel.nonce(version), content, removed)
        channel.sent(response, changes)
        return response

    # --- what the client says ---

    def _hear(self, channel: Channel, nonce: str, error: str | None, in_force: str = "") -> None:
        self.heard = channel.answered(nonce, error, in_force)
        if channel.type_url == CLUSTER and channel.is_confirmed():
            self._channel(ENDPOINTS).not_again()

    def _ask(self, channel: Channel, more: frozenset[str], less: frozenset[str]) -> None:
        if more or less:
            channel.leave(less)
            channel.ask(more)
            channel.names = self._share(channel.names)

    def _is_confirmed(self, type_url: str) -> bool:
        channel = self._channels.get(type_url)
        return channel is None or channel.is_confirmed()


def portions(batches: tuple[Batch, ...]) -> list[tuple[Batch, ...]]:
    """How batches are spread over responses: large ones alone, as other streams send them too, small ones together."""
    small = tuple(batch for batch in batches if batch.size < _ALONE)
    return [(batch,) for batch in batches if batch.size >= _ALONE] + ([small] if small else [])

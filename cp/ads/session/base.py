"""`SessionBase`: in which order a client is brought to the newest snapshot, so that nothing ever points at nothing.

    clusters, with their endpoints right behind  ->  the client's word (or its deadline)  ->  listeners, routes
    ->  the client's word  ->  clusters that nobody uses any more go

Endpoints and secrets depend on no order and are always the newest. A newer snapshot waits until the order above
has come to its routes, so that a stream of changes cannot hold up the routes for ever.
There is no clock in here: `awaited_answer` names the response whose answer everything else waits for, and a caller
that has a clock may `expire` it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from cp.ads.session.channel import Channel
from cp.ads.session.client_resources import WILDCARD_TYPES
from cp.ads.session.messages import WILDCARD, Nack, Response, ResponseCounts, TypeStatus
from cp.ads.session.pending import ChannelUpdate
from cp.translate.snapshot import (
    CLUSTER,
    EMPTY,
    ENDPOINTS,
    LISTENER,
    NO_PART,
    ROUTES,
    SECRET,
    ResourceBatch,
    Snapshot,
    SnapshotPart,
)

CLUSTER_USERS = "listeners and routes"
_ALONE = 32 * 1024  # a batch of so many bytes goes in a response of its own, which other streams then share


class SessionBase(ABC):
    """The order of things on one stream. How a change is said is up to the kind of stream."""

    __slots__ = (
        *(
            "_channels",
            "_target",
            "_is_target_sent",
            "_leaving_endpoints",
            "_newest",
            "_is_idle",
            "_has_old_clusters",
            "_shared_names",
            "_trusts_versions",
        ),
        "answer",
    )

    sends_all = False  # a response for clusters or listeners holds all there are

    def __init__(
        self, share: Callable[[frozenset[str]], frozenset[str]] = frozenset, *, trusts_versions: bool = True
    ) -> None:
        """`share` finds an equal set of names; `trusts_versions`: the versions that a client names say what it has."""
        self._channels: dict[str, Channel] = {}
        self._target = EMPTY  # whose clusters the client has or is being given
        self._is_target_sent = True  # its listeners and routes too
        self._leaving_endpoints = NO_PART  # the endpoints of clusters that are on their way out
        self._newest: Snapshot | None = None
        self._shared_names = share
        self._trusts_versions = trusts_versions
        self._is_idle = False
        self._has_old_clusters = False  # it brought clusters along
        self.answer: Nack | str | None = None  # what the last request said

    @abstractmethod
    def _responses(self, channel: Channel, changes: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]: ...

    # --- what happens ---

    def publish(self, snapshot: Snapshot) -> list[Response]:
        """There is a newer snapshot."""
        before, self._newest = self._newest, snapshot
        if self._is_idle and before is not None:
            self._rebase(snapshot.touched(before), snapshot)
        return self._advance()

    def _rebase(self, touched: frozenset[str], snapshot: Snapshot) -> None:
        """What has all of the snapshot before has all of this one, where nothing changed."""
        for type_url, channel in self._channels.items():
            if channel.is_subscribed and type_url not in touched:
                channel.rebase(snapshot)

    def expire(self, nonce: str) -> list[Response]:
        """What was awaited is not coming in time: go on without it."""
        if nonce == self.awaited_answer:
            self._has_old_clusters = self._has_old_clusters and nonce != CLUSTER_USERS
            self._channel(CLUSTER).stop_blocking()
        return self._advance()

    @property
    def awaited_answer(self) -> str | None:
        """What others wait for, but not for ever: the nonce of a response, or `CLUSTER_USERS`."""
        if (
            self._blocking_nonce is not None
            or self._knows_cluster_users
            or not self._channel(CLUSTER).has_pending_removals
        ):
            return self._blocking_nonce
        return CLUSTER_USERS

    @property
    def statuses(self) -> tuple[TypeStatus, ...]:
        return tuple(channel.status(self._newest) for channel in self._channels.values() if channel.is_subscribed)

    @property
    def tallies(self) -> tuple[ResponseCounts, ...]:
        return tuple(channel.counts for channel in self._channels.values() if channel.is_subscribed)

    def is_at(self, snapshot: Snapshot) -> bool:
        """The client has confirmed all of it. One that has not asked for listeners yet is still on its way."""
        return self._has_requested_roots and all(channel.is_at(snapshot) for channel in self._channels.values())

    def has_answered_all(self, snapshot: Snapshot) -> bool:
        """The client was told all of it and has answered, though it may have refused a part."""
        told = self._has_requested_roots and self._target is snapshot and self._is_target_sent
        return told and self.unanswered == 0

    @property
    def unanswered(self) -> int:
        """How many responses the client has yet to answer."""
        return sum(channel.unanswered for channel in self._channels.values())

    @property
    def _has_requested_roots(self) -> bool:
        return all(self._channel(type_url).is_subscribed for type_url in WILDCARD_TYPES)

    @property
    def is_settled(self) -> bool:
        """Nothing is under way or refused: the versions that the client would name tell what it has."""
        knows = self._trusts_versions or all(self._channel(type_url).has_acknowledged for type_url in WILDCARD_TYPES)
        return knows and all(channel.is_acknowledged for channel in self._channels.values())

    # --- the order ---

    def _channel(self, type_url: str) -> Channel:
        if type_url not in self._channels:
            self._channels[type_url] = Channel(
                type_url, sends_all=self.sends_all and type_url in WILDCARD_TYPES, trusts_versions=self._trusts_versions
            )
        return self._channels[type_url]

    def _advance(self) -> list[Response]:
        responses: list[Response] = []
        while self._newest is not None:
            if self._is_target_sent and self._blocking_nonce is None:
                self._start_rollout(self._newest)
            responses += self._send(CLUSTER, self._target, removing=False)
            responses += self._send(ENDPOINTS, self._newest, self._outgoing)
            responses += self._send(SECRET, self._newest, self._outgoing)
            if self._blocking_nonce is not None:
                break
            responses += self._send_cluster_users(self._target)
            self._is_target_sent = True
            if self._target is self._newest:
                break
        self._is_idle = self._has_nothing_to_send()
        return responses

    def _send_cluster_users(self, snapshot: Snapshot) -> list[Response]:
        """Once these are in force, clusters that they no longer use can go."""
        responses = self._send(LISTENER, snapshot) + self._send(ROUTES, snapshot)
        if self._knows_cluster_users and self._is_acknowledged(LISTENER) and self._is_acknowledged(ROUTES):
            responses += self._send(CLUSTER, snapshot)
            self._leaving_endpoints = NO_PART
        return responses

    def _has_nothing_to_send(self) -> bool:
        """Nothing is to be said whatever is accepted, so that most answers cost next to nothing."""
        arrived = self._target is self._newest and self._blocking_nonce is None and self._leaving_endpoints is NO_PART
        return arrived and all(channel.is_idle for channel in self._channels.values() if channel.is_subscribed)

    @property
    def _blocking_nonce(self) -> str | None:
        clusters = self._channels.get(CLUSTER)
        return None if clusters is None else clusters.blocking_nonce

    @property
    def _knows_cluster_users(self) -> bool:
        """A client that comes back has listeners and routes. Until it says which, they may use any cluster it has."""
        return not self._has_old_clusters or all(
            self._channel(type_url).is_subscribed for type_url in (LISTENER, ROUTES)
        )

    def _start_rollout(self, snapshot: Snapshot) -> None:
        self._is_target_sent = False
        before, self._target = self._target, snapshot
        if self._channel(CLUSTER).is_at_base(snapshot):
            return
        gone = (name for step in snapshot.steps(before, CLUSTER) for name in step.removed)
        last = (before.get(ENDPOINTS, name) for name in gone)
        still = [packed for packed in (*self._leaving_endpoints.of(ENDPOINTS).values(), *last) if packed is not None]
        stay = [packed for packed in still if snapshot.get(ENDPOINTS, packed.name) is None]
        self._leaving_endpoints = SnapshotPart(stay) if stay else NO_PART

    @property
    def _outgoing(self) -> Snapshot:
        """What the newest snapshot has no more, and clusters may still need that are not gone yet."""
        current = () if self._target is self._newest else self._target.parts
        return Snapshot(*current, self._leaving_endpoints) if current or len(self._leaving_endpoints) > 0 else EMPTY

    def _send(
        self, type_url: str, snapshot: Snapshot, fallback: Snapshot = EMPTY, *, removing: bool = True
    ) -> list[Response]:
        channel = self._channels.get(type_url)
        if channel is None or not channel.is_subscribed:
            return []
        changes = channel.advance_to(snapshot, fallback, removing=removing)
        responses = list(self._responses(channel, changes, snapshot)) if changes else []
        if type_url == CLUSTER and responses:
            self._resend_endpoints(changes)
        if type_url == LISTENER and responses:
            self._channel(ROUTES).distrust_versions()
        return responses

    def _resend_endpoints(self, changes: ChannelUpdate) -> None:
        """A changed cluster warms up again, and for that needs its endpoints again, changed or not."""
        for batch in changes.batches:
            self._channel(ENDPOINTS).resend(batch.names)

    # --- what the client says ---

    def _receive_answer(self, channel: Channel, nonce: str, error: str | None, in_force: str = "") -> None:
        self.answer = channel.receive_answer(nonce, error, in_force)
        if channel.type_url == CLUSTER and channel.is_acknowledged:
            self._channel(ENDPOINTS).cancel_resends()

    def _change_names(self, channel: Channel, more: frozenset[str], less: frozenset[str]) -> None:
        if less:
            channel.unsubscribe(less)
        if more:
            channel.subscribe(more)
        if more or less:
            channel.subscription.names = self._shared_names(channel.subscription.names)

    def _react(self, *, is_only_an_answer: bool) -> list[Response]:
        if is_only_an_answer and self._is_idle and not isinstance(self.answer, Nack):
            return []
        return self._advance()

    def _is_acknowledged(self, type_url: str) -> bool:
        channel = self._channels.get(type_url)
        return channel is None or channel.is_acknowledged


def without_wildcard(names: frozenset[str]) -> frozenset[str]:
    """Names that are all names are the very object that other streams have too."""
    return names - {WILDCARD} if WILDCARD in names else names


def portions(batches: tuple[ResourceBatch, ...]) -> list[tuple[ResourceBatch, ...]]:
    """How batches are spread over responses: large ones alone, as other streams send them too, small ones together."""
    small = tuple(batch for batch in batches if batch.size < _ALONE)
    return [(batch,) for batch in batches if batch.size >= _ALONE] + ([small] if small else [])

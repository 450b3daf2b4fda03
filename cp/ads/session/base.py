"""`SessionBase`: in which order a client is brought to the newest snapshot (make before break).

Clusters and routes go over the wire one after the other. So that no route ever points at a cluster that the client does
not have, each snapshot is rolled out in steps:

    1  clusters, without removals, and their endpoints behind them
    2  wait until the client has ACKed the clusters, or until `expire`
    3  listeners, then routes
    4  wait until the client has ACKed listeners and routes
    5  removal of the clusters that nothing uses any more
    6  wait until the client has answered that
    7  removal of routes, endpoints and secrets, where the protocol has a message for it

This is the order of "Eventual consistency considerations" in Envoy's xDS protocol:
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-eventual-consistency-considerations

Endpoints, secrets and limits are in nobody's way, and are always those of the newest snapshot. Clusters, listeners and
routes are those of `_target`. A newer snapshot becomes the target only after step 3: otherwise a stream of changes,
each of which has clusters to wait for, would hold up the routes for ever.

A session knows no protobuf, no I/O and no other stream. It has no clock either: `awaited_answer` tells what it waits
for, and a caller that has a clock may `expire` it (record docs/adr/0011).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from cp.ads.session.channel import Channel
from cp.ads.session.client_resources import WILDCARD_TYPES
from cp.ads.session.messages import (
    WILDCARD,
    Answer,
    Nack,
    Response,
    ResponseCounts,
    TypeStatus,
    check_names,
)
from cp.ads.session.pending import ChannelUpdate
from cp.ads.session.request_sizes import held_bytes
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, RUNTIME, SECRET, ResourceBatch
from cp.translate.snapshot import EMPTY, NO_PART, Snapshot, SnapshotPart

# What a session awaits if it is no response: requests for listeners and routes of a client that has connected again.
CLUSTER_USERS = "listeners and routes"

_USED_TYPES = (ROUTES, ENDPOINTS, SECRET)  # their resources are removed after all that used them

_ALONE = 32 * 1024  # a batch of so many bytes goes in a response of its own, which other streams then share


class SessionBase(ABC):
    """One stream, from requests and snapshots to responses. How an update becomes responses is up to the variant."""

    __slots__ = (
        *("_channels", "_given", "_has_old_clusters", "_held_bytes", "_inherited_types", "_is_envoy", "_is_idle"),
        *(
            "_is_target_sent",
            "_keeps_unknown",
            "_leaving_endpoints",
            "_newest",
            "_shared",
            "_target",
            "_trusts_versions",
        ),
        "answer",
    )

    def __init__(
        self,
        shared: Callable[[frozenset[str]], frozenset[str]] = frozenset,
        *,
        trusts_versions: bool = True,
        is_envoy: bool = False,
        keeps_unknown: bool = False,
        given: Callable[[], Snapshot] = lambda: EMPTY,
    ) -> None:
        """`shared` returns an equal set that other streams hold; `trusts_versions`: the client has what it names.

        `given` returns the snapshot that the client was given last, on any stream.

        Versions are not trusted if the client's last stream broke off while something was pending: it may have applied
        that or not, whatever version it names. `is_envoy` makes the exception of record 0099. `keeps_unknown`: clusters
        that it names and that are unknown here stay until `remove_unknown`, as its listeners may be draining.
        """
        self._keeps_unknown = keeps_unknown
        self._channels: dict[str, Channel] = {}
        self._newest: Snapshot | None = None  # what the client should have in the end
        self._target = EMPTY  # the snapshot whose clusters, listeners and routes are being rolled out
        self._is_target_sent = True  # up to step 3
        self._leaving_endpoints = NO_PART  # of clusters that are no longer in the target and not removed yet
        self._has_old_clusters = False  # the client brought clusters along from an earlier stream
        # Types of which a delta client brought resources along that have not been changed on this stream.
        self._inherited_types: set[str] = set()
        self._is_idle = False  # nothing is to be sent, whatever is ACKed
        self._shared = shared
        self._given = given
        self._trusts_versions = trusts_versions
        self._held_bytes: dict[str, int] = {}  # by type
        self._is_envoy = is_envoy
        self.answer: Answer | None = None  # that the last request gave to a response, if it gave one

    @abstractmethod
    def _new_channel(self, type_url: str) -> Channel: ...

    @abstractmethod
    def _responses(self, channel: Channel, update: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]:
        """The responses that bring an update to the client."""

    # --- events ---

    def publish(self, snapshot: Snapshot) -> list[Response]:
        """There is a newer snapshot."""
        previous, self._newest = self._newest, snapshot
        # With nothing pending anywhere, a type in which the snapshots do not differ need not be looked at again.
        if self._is_idle and previous is not None:
            self._rebase(snapshot.touched(previous), snapshot)
        return self._advance()

    def _rebase(self, touched_types: frozenset[str], snapshot: Snapshot) -> None:
        """Types in which nothing differs go on from the newer snapshot, at no cost."""
        for type_url, channel in self._channels.items():
            if channel.is_subscribed and type_url not in touched_types:
                channel.rebase(snapshot)

    def expire(self, awaited: str) -> list[Response]:
        """What was awaited is not coming in time: go on without it."""
        if awaited == self.awaited_answer:
            self._has_old_clusters = self._has_old_clusters and awaited != CLUSTER_USERS
            self._channel(CLUSTER).stop_blocking()
        return self._advance()

    def remove_unknown(self) -> list[Response]:
        """No listener of an earlier stream is draining any more."""
        self._keeps_unknown = False
        for type_url in (CLUSTER, ENDPOINTS):
            if type_url in self._channels:
                self._channels[type_url].remove_unknown()
        return self._advance()

    # --- where the client stands ---

    @property
    def is_fresh(self) -> bool:
        """The client has requested clusters and named none of an earlier stream. True until the first snapshot."""
        channel = self._channels.get(CLUSTER)
        return channel is not None and not channel.subscription.has_versions

    @property
    def awaited_answer(self) -> str | None:
        """What holds up the roll-out: the nonce of a response, or `CLUSTER_USERS`."""
        # Envoy does not ACK clusters while one of them is warming, and a cluster may be warming for ever; so each wait
        # has to end: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-resource-warming
        if self._blocking_nonce is not None or self._knows_cluster_users:
            return self._blocking_nonce
        return CLUSTER_USERS if any(channel.has_pending_removals for channel in self._channels.values()) else None

    @property
    def statuses(self) -> tuple[TypeStatus, ...]:
        return tuple(channel.status(self._newest) for channel in self._channels.values() if channel.is_subscribed)

    @property
    def tallies(self) -> tuple[ResponseCounts, ...]:
        return tuple(channel.counts for channel in self._channels.values() if channel.is_subscribed)

    def asks_for(self, type_url: str, name: str) -> bool:
        """Whether the client has subscribed to a resource."""
        return type_url in self._channels and name in self._channels[type_url].subscription

    def is_at(self, snapshot: Snapshot) -> bool:
        """The client has ACKed all of it. One that has not requested listeners yet is still on its way."""
        # The type that was requested last is the likeliest to be on its way still.
        return self._has_requested_roots and all(
            channel.is_at(snapshot) for channel in reversed(self._channels.values())
        )

    def has_answered_all(self, snapshot: Snapshot) -> bool:
        """The client was sent all of it and has answered, though it may have NACKed a part."""
        is_sent = self._has_requested_roots and self._target is snapshot and self._is_target_sent
        return is_sent and self.unanswered == 0

    @property
    def unanswered(self) -> int:
        """How many responses the client has yet to answer."""
        return sum(channel.unanswered for channel in self._channels.values())

    @property
    def is_settled(self) -> bool:
        """No response is pending and no NACK stands: on its next stream, what the client names is what it has."""
        is_known = self._trusts_versions or all(
            self._channel(type_url).has_version_of_ours for type_url in WILDCARD_TYPES
        )
        return is_known and all(channel.is_settled for channel in self._channels.values())

    @property
    def held_bytes(self) -> int:
        """The memory that names and versions of the client take, about, without what it is given."""
        return sum(self._held_bytes.values())

    @property
    def _has_requested_roots(self) -> bool:
        """Clusters and listeners are the roots of all that a client requests.

        Who requests secrets before any of them is no Envoy, but fetches the certificate of a gRPC client, and nothing
        else will be requested (record 0063).
        """
        has_requested = [self._channel(type_url).is_subscribed for type_url in WILDCARD_TYPES]
        return all(has_requested) or (not any(has_requested) and self._channel(SECRET).is_subscribed)

    # --- the roll-out ---

    def _channel(self, type_url: str) -> Channel:
        if type_url not in self._channels:
            channel = self._channels[type_url] = self._new_channel(type_url)
            if self._keeps_unknown and type_url in (CLUSTER, ENDPOINTS):
                channel.keep_unknown()
        return self._channels[type_url]

    def _advance(self) -> list[Response]:
        """Send whatever may be sent by now, as far as the next wait."""
        # A second round follows if a newer snapshot came while the one before waited for its clusters.
        responses: list[Response] = []
        while self._newest is not None:
            if self._is_target_sent and self._blocking_nonce is None:
                self._start_rollout(self._newest)
            responses += self._send(CLUSTER, self._target, may_remove=False)
            responses += self._send(ENDPOINTS, self._newest, self._outgoing, may_remove=False)
            responses += self._send(SECRET, self._newest, self._outgoing, may_remove=False)
            responses += self._send(RUNTIME, self._newest)
            if self._blocking_nonce is not None:
                break
            responses += self._send_cluster_users(self._target)
            self._is_target_sent = True
            if self._target is self._newest:
                responses += self._remove_unused(self._newest)
                break
        self._is_idle = self._has_nothing_to_send()
        return responses

    def _send_cluster_users(self, snapshot: Snapshot) -> list[Response]:
        """Steps 3 to 5."""
        responses = self._send(LISTENER, snapshot) + self._send(ROUTES, snapshot, may_remove=False)
        if self._has_cluster_users:
            responses += self._send(CLUSTER, snapshot)
            self._leaving_endpoints = NO_PART
        return responses

    def _remove_unused(self, snapshot: Snapshot) -> list[Response]:
        """Step 7. Envoy unsubscribes before it ACKs what used these, so that nothing is left to be removed."""
        if not self._has_cluster_users or self._channel(CLUSTER).unanswered > 0:
            return []
        return [response for type_url in _USED_TYPES for response in self._send(type_url, snapshot)]

    @property
    def _has_cluster_users(self) -> bool:
        """The client has ACKed all that uses clusters, so that no old listener or route uses them any more."""
        return self._knows_cluster_users and self._is_settled_with(LISTENER) and self._is_settled_with(ROUTES)

    def _has_nothing_to_send(self) -> bool:
        """Most requests are ACKs, and so cost next to nothing."""
        is_complete = self._target is self._newest and self._blocking_nonce is None
        if not is_complete or self._leaving_endpoints is not NO_PART:
            return False
        return all(channel.is_idle for channel in self._channels.values() if channel.is_subscribed)

    @property
    def _blocking_nonce(self) -> str | None:
        clusters = self._channels.get(CLUSTER)
        return None if clusters is None else clusters.blocking_nonce

    @property
    def _knows_cluster_users(self) -> bool:
        """All that uses clusters is known.

        A client that connects again still has listeners and routes. Before it has requested them we do not know which,
        and they may use any cluster that it has.
        """
        if not self._has_old_clusters:
            return True
        return all(self._channel(type_url).is_subscribed for type_url in (LISTENER, ROUTES))

    def _start_rollout(self, snapshot: Snapshot) -> None:
        """Make a snapshot the target. The endpoints of clusters that it has no more are kept until step 5."""
        self._is_target_sent = False
        previous, self._target = self._target, snapshot
        if self._channel(CLUSTER).is_based_on(snapshot):
            return
        gone = (name for difference in snapshot.steps(previous, CLUSTER) for name in difference.removed)
        endpoints = [*self._leaving_endpoints.of(ENDPOINTS).values(), *(previous.get(ENDPOINTS, name) for name in gone)]
        # A cluster may be back before it was removed, and its endpoints with it.
        leaving = [packed for packed in endpoints if packed and snapshot.get(ENDPOINTS, packed.name) is None]
        self._leaving_endpoints = SnapshotPart(leaving) if leaving else NO_PART

    @property
    def _outgoing(self) -> Snapshot:
        """Resources that the newest snapshot may lack, and that clusters which are not removed yet may still need."""
        target_parts = () if self._target is self._newest else self._target.parts
        if not target_parts and len(self._leaving_endpoints) == 0:
            return EMPTY
        return Snapshot(*target_parts, self._leaving_endpoints)

    def _send(
        self, type_url: str, snapshot: Snapshot, outgoing: Snapshot = EMPTY, *, may_remove: bool = True
    ) -> list[Response]:
        channel = self._channels.get(type_url)
        if channel is None or not channel.is_subscribed:
            return []
        update = channel.advance_to(snapshot, outgoing, may_remove=may_remove)
        responses = list(self._responses(channel, update, snapshot)) if update else []
        if type_url == CLUSTER and responses:
            self._resend_endpoints(update)
        if type_url == LISTENER and responses:
            # A changed listener may have dropped routes that the client names among its versions afterwards.
            self._channel(ROUTES).distrust_versions()
        if type_url in self._inherited_types and responses:
            self._inherited_types.remove(type_url)
            self._resend_secrets()
        return responses

    def _resend_secrets(self) -> None:
        # Clusters and listeners of another control plane may have requested a secret in another way (`ConfigSource`).
        # Then Envoy has a new subscription for it, which waits, but a delta request does not repeat the name.
        secrets = self._channel(SECRET)
        secrets.distrust_versions()
        secrets.resend(secrets.subscription.names)

    def _resend_endpoints(self, update: ChannelUpdate) -> None:
        # A changed cluster warms anew, which only a new response for its endpoints ends, even if they did not change:
        # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-resource-warming
        for batch in update.batches:
            self._channel(ENDPOINTS).resend(batch.names)

    # --- requests ---

    def _receive_answer(self, channel: Channel, nonce: str, error: str | None, version_in_force: str = "") -> None:
        self.answer = channel.receive_answer(nonce, error, version_in_force)
        if channel.type_url == CLUSTER and channel.is_settled:
            self._channel(ENDPOINTS).cancel_resends()  # an ACK of clusters says that none of them is warming

    def _change_names(self, channel: Channel, added_names: frozenset[str], removed_names: frozenset[str]) -> None:
        if removed_names:
            channel.unsubscribe(removed_names)
        if added_names:
            channel.subscribe(added_names)
        if added_names or removed_names:
            channel.share_names(self._shared)
            self._measure(channel)

    def _measure(self, channel: Channel) -> None:
        """Note the memory that a channel takes by what the client names. Raises `TooManyNames` if it is too much."""
        names, versions = channel.subscription.names, channel.subscription.initial_versions
        size = held_bytes(channel.type_url, names, versions, self._given())
        self._held_bytes[channel.type_url] = size
        check_names(channel.type_url, len(names), size)

    def _react(self, *, is_only_an_answer: bool) -> list[Response]:
        # An idle session has nothing that waits for an ACK. A NACK may call for another response.
        if is_only_an_answer and self._is_idle and not isinstance(self.answer, Nack):
            return []
        return self._advance()

    def _is_settled_with(self, type_url: str) -> bool:
        channel = self._channels.get(type_url)
        return channel is None or channel.is_settled


def without_wildcard(names: frozenset[str]) -> frozenset[str]:
    """The names but for `*`. Without one it is the very object, which other streams hold too."""
    return names - {WILDCARD} if WILDCARD in names else names


def portions(batches: tuple[ResourceBatch, ...]) -> list[tuple[ResourceBatch, ...]]:
    """How batches are spread over responses: large ones alone, as other streams send them too, small ones together."""
    small = tuple(batch for batch in batches if batch.size < _ALONE)
    return [(batch,) for batch in batches if batch.size >= _ALONE] + ([small] if small else [])

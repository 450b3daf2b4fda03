"""`SessionBase`: in which order a client is brought to the newest snapshot, so that nothing ever points at nothing.

    clusters, with their endpoints right behind  ->  the client's word (or its deadline)  ->  listeners, routes
    ->  the client's word  ->  clusters that nobody uses any more go

Endpoints and secrets depend on no order and are always the newest. A newer snapshot waits until the order above
has come to its routes, so that a stream of changes cannot hold up the routes for ever.
No clock is in here: `awaits` names the response on whose answer the rest waits, and who has a clock may `expire` it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from cp.ads.session.channel import Channel
from cp.ads.session.client_resources import LISTED
from cp.ads.session.messages import WILDCARD, Nack, Response, ResponseCounts, TypeStatus
from cp.ads.session.pending import ChannelUpdate
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, ResourceBatch
from cp.translate.snapshot import EMPTY, NO_PART, Snapshot, SnapshotPart

ITS_USERS = "listeners and routes"
_ALONE = 32 * 1024  # a batch of so many bytes goes in a response of its own, which other streams then share


class SessionBase(ABC):
    """The order of things on one stream. How a change is said is up to the kind of stream."""

    __slots__ = (
        *("_channels", "_current", "_is_told", "_leaving", "_newest", "_rests", "_returned", "_share", "_trusting"),
        "heard",
    )

    says_all = False  # a response for clusters or listeners holds all there are

    def __init__(self, share: Callable[[frozenset[str]], frozenset[str]] = frozenset, *, trusting: bool = True) -> None:
        """`share` finds an equal set that others hold; `trusting`: the versions that a client names say what it has."""
        self._channels: dict[str, Channel] = {}
        self._current = EMPTY  # whose clusters the client has or is being given
        self._is_told = True  # its listeners and routes too
        self._leaving = NO_PART  # the endpoints of clusters that are on their way out
        self._newest: Snapshot | None = None
        self._share = share
        self._trusting = trusting
        self._rests = False
        self._returned = False  # it brought clusters along
        self.heard: Nack | str | None = None  # what the last request said

    @abstractmethod
    def _responses(self, channel: Channel, changes: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]: ...

    # --- what happens ---

    def publish(self, snapshot: Snapshot) -> list[Response]:
        """There is a newer snapshot."""
        before, self._newest = self._newest, snapshot
        if self._rests and before is not None:
            self._pass_over(snapshot.touched(before), snapshot)
        return self._advance()

    def _pass_over(self, touched: frozenset[str], snapshot: Snapshot) -> None:
        """What has all of the snapshot before has all of this one, where nothing changed."""
        for type_url, channel in self._channels.items():
            if channel.asked and type_url not in touched:
                channel.pass_to(snapshot)

    def expire(self, nonce: str) -> list[Response]:
        """What was awaited is not coming in time: go on without it."""
        if nonce == self.awaits:
            self._returned = self._returned and nonce != ITS_USERS
            self._channel(CLUSTER).wait_no_longer()
        return self._advance()

    @property
    def awaits(self) -> str | None:
        """What others wait for, but not for ever: the nonce of a response, or `ITS_USERS`."""
        if self._gate is not None or self._knows_users or not self._channel(CLUSTER).has_leaving:
            return self._gate
        return ITS_USERS

    @property
    def statuses(self) -> tuple[TypeStatus, ...]:
        return tuple(channel.status(self._newest) for channel in self._channels.values() if channel.asked)

    @property
    def tallies(self) -> tuple[ResponseCounts, ...]:
        return tuple(channel.tally for channel in self._channels.values() if channel.asked)

    def is_at(self, snapshot: Snapshot) -> bool:
        """The client has confirmed all of it. One that has not asked for listeners yet is still on its way."""
        return self._has_asked and all(channel.is_at(snapshot) for channel in self._channels.values())

    def has_answered_all(self, snapshot: Snapshot) -> bool:
        """The client was told all of it and has answered, though it may have refused a part."""
        told = self._has_asked and self._current is snapshot and self._is_told
        return told and self.unanswered == 0

    @property
    def unanswered(self) -> int:
        """How many responses the client has yet to answer."""
        return sum(channel.unanswered for channel in self._channels.values())

    @property
    def _has_asked(self) -> bool:
        return all(self._channel(type_url).asked for type_url in LISTED)

    @property
    def is_settled(self) -> bool:
        """Nothing is under way or refused: the versions that the client would name tell what it has."""
        knows = self._trusting or all(self._channel(type_url).has_accepted for type_url in LISTED)
        return knows and all(channel.is_confirmed for channel in self._channels.values())

    # --- the order ---

    def _channel(self, type_url: str) -> Channel:
        if type_url not in self._channels:
            self._channels[type_url] = Channel(
                type_url, full=self.says_all and type_url in LISTED, trusting=self._trusting
            )
        return self._channels[type_url]

    def _advance(self) -> list[Response]:
        responses: list[Response] = []
        while self._newest is not None:
            if self._is_told and self._gate is None:
                self._adopt(self._newest)
            responses += self._send(CLUSTER, self._current, removing=False)
            responses += self._send(ENDPOINTS, self._newest, self._behind)
            responses += self._send(SECRET, self._newest, self._behind)
            if self._gate is not None:
                break
            responses += self._send_what_uses_clusters(self._current)
            self._is_told = True
            if self._current is self._newest:
                break
        self._rests = self._is_resting()
        return responses

    def _send_what_uses_clusters(self, snapshot: Snapshot) -> list[Response]:
        """Once these are in force, clusters that they no longer use can go."""
        responses = self._send(LISTENER, snapshot) + self._send(ROUTES, snapshot)
        if self._knows_users and self._is_confirmed(LISTENER) and self._is_confirmed(ROUTES):
            responses += self._send(CLUSTER, snapshot)
            self._leaving = NO_PART
        return responses

    def _is_resting(self) -> bool:
        """Nothing is to be said whatever is accepted, so that most answers cost next to nothing."""
        arrived = self._current is self._newest and self._gate is None and self._leaving is NO_PART
        return arrived and all(channel.is_quiet for channel in self._channels.values() if channel.asked)

    @property
    def _gate(self) -> str | None:
        clusters = self._channels.get(CLUSTER)
        return None if clusters is None else clusters.gate

    @property
    def _knows_users(self) -> bool:
        """A client that comes back has listeners and routes. Until it says which, they may use any cluster it has."""
        return not self._returned or all(self._channel(type_url).asked for type_url in (LISTENER, ROUTES))

    def _adopt(self, snapshot: Snapshot) -> None:
        self._is_told = False
        before, self._current = self._current, snapshot
        if self._channel(CLUSTER).is_at_base(snapshot):
            return
        gone = (name for step in snapshot.steps(before, CLUSTER) for name in step.removed)
        last = (before.get(ENDPOINTS, name) for name in gone)
        still = [packed for packed in (*self._leaving.of(ENDPOINTS).values(), *last) if packed is not None]
        stay = [packed for packed in still if snapshot.get(ENDPOINTS, packed.name) is None]
        self._leaving = SnapshotPart(stay) if stay else NO_PART

    @property
    def _behind(self) -> Snapshot:
        """What the newest snapshot has no more, and clusters may still need that are not gone yet."""
        current = () if self._current is self._newest else self._current.parts
        return Snapshot(*current, self._leaving) if current or len(self._leaving) > 0 else EMPTY

    def _send(
        self, type_url: str, snapshot: Snapshot, fallback: Snapshot = EMPTY, *, removing: bool = True
    ) -> list[Response]:
        channel = self._channels.get(type_url)
        if channel is None or not channel.asked:
            return []
        changes = channel.changes(snapshot, fallback, removing=removing)
        responses = list(self._responses(channel, changes, snapshot)) if changes else []
        if type_url == CLUSTER and responses:
            self._warm(changes)
        if type_url == LISTENER and responses:
            self._channel(ROUTES).doubt()
        return responses

    def _warm(self, changes: ChannelUpdate) -> None:
        """A changed cluster warms up again, and for that needs its endpoints again, changed or not."""
        for batch in changes.batches:
            self._channel(ENDPOINTS).again(batch.names)

    # --- what the client says ---

    def _hear(self, channel: Channel, nonce: str, error: str | None, in_force: str = "") -> None:
        self.heard = channel.answered(nonce, error, in_force)
        if channel.type_url == CLUSTER and channel.is_confirmed:
            self._channel(ENDPOINTS).not_again()

    def _ask(self, channel: Channel, more: frozenset[str], less: frozenset[str]) -> None:
        if less:
            channel.leave(less)
        if more:
            channel.ask(more)
        if more or less:
            channel.subscription.names = self._share(channel.subscription.names)

    def _answer(self, *, is_only_an_answer: bool) -> list[Response]:
        if is_only_an_answer and self._rests and not isinstance(self.heard, Nack):
            return []
        return self._advance()

    def _is_confirmed(self, type_url: str) -> bool:
        channel = self._channels.get(type_url)
        return channel is None or channel.is_confirmed


def but_wildcard(names: frozenset[str]) -> frozenset[str]:
    """Names that are all names are the very object that other streams have too."""
    return names - {WILDCARD} if WILDCARD in names else names


def portions(batches: tuple[ResourceBatch, ...]) -> list[tuple[ResourceBatch, ...]]:
    """How batches are spread over responses: large ones alone, as other streams send them too, small ones together."""
    small = tuple(batch for batch in batches if batch.size < _ALONE)
    return [(batch,) for batch in batches if batch.size >= _ALONE] + ([small] if small else [])

"""`DeltaSession`: an incremental stream as a state machine without I/O.

A response holds what is new and names what is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from cp.ads.session.base import SessionBase, portions, without_wildcard
from cp.ads.session.channel import Channel
from cp.ads.session.client_resources import WILDCARD_TYPES
from cp.ads.session.messages import WILDCARD, DeltaRequest, Response
from cp.ads.session.pending import ChannelUpdate
from cp.translate.snapshot import CLUSTER, TYPES, Snapshot, digest_of, version_of


class DeltaSession(SessionBase):
    __slots__ = ()

    def receive(self, request: DeltaRequest) -> list[Response]:
        self.answer = None
        if request.type_url not in TYPES:
            return []
        channel = self._channel(request.type_url)
        if request.nonce != "":
            self._receive_answer(channel, request.nonce, request.error)
        asked = self._subscribe(channel, request)
        return self._react(is_only_an_answer=not asked and request.nonce != "")

    def _subscribe(self, channel: Channel, request: DeltaRequest) -> bool:
        """Whether the client wants anything else than before, or says what it has."""
        if channel.is_subscribed and not (request.subscribe or request.unsubscribe or request.initial_versions):
            return False
        everything = WILDCARD in request.subscribe or not (channel.is_subscribed or request.subscribe)
        if not channel.is_subscribed:
            channel.open()
        if everything and channel.type_url in WILDCARD_TYPES:
            channel.subscribe_to_all()
        channel.note_initial_versions(request.initial_versions)
        self._has_old_clusters = self._has_old_clusters or (
            channel.type_url == CLUSTER and len(request.initial_versions) > 0
        )
        self._change_names(channel, more=without_wildcard(request.subscribe), less=request.unsubscribe)
        return True

    def _responses(
        self,
        channel: Channel,
        changes: ChannelUpdate,
        snapshot: Snapshot,  # noqa: ARG002  what a state-of-the-world stream repeats all of
    ) -> Iterator[Response]:
        *earlier, last = portions(changes.batches) or [()]
        for portion in earlier:
            yield self._respond_with(channel, ChannelUpdate(portion))
        yield self._respond_with(channel, ChannelUpdate(last, changes.removed))

    def _respond_with(self, channel: Channel, changes: ChannelUpdate) -> Response:
        gone = sum(digest_of(f"-{name}") for name in changes.removed)
        version = version_of(sum(batch.digest for batch in changes.batches) + gone)
        return channel.respond(version, changes.batches, changes, changes.removed)

"""`DeltaSession`: an incremental stream as a state machine without I/O.

A response holds what is new and names what is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from cp.ads.session.base import SessionBase, but_wildcard, portions
from cp.ads.session.channel import Channel
from cp.ads.session.client_resources import LISTED
from cp.ads.session.messages import WILDCARD, DeltaRequest, Response
from cp.ads.session.pending import ChannelUpdate
from cp.translate.packing import CLUSTER, TYPES, digest_of, version_of
from cp.translate.snapshot import Snapshot


class DeltaSession(SessionBase):
    __slots__ = ()

    def receive(self, request: DeltaRequest) -> list[Response]:
        self.heard = None
        if request.type_url not in TYPES:
            return []
        channel = self._channel(request.type_url)
        if request.nonce != "":
            self._hear(channel, request.nonce, request.error)
        asked = self._subscribe(channel, request)
        return self._answer(is_only_an_answer=not asked and request.nonce != "")

    def _subscribe(self, channel: Channel, request: DeltaRequest) -> bool:
        """Whether the client wants anything else than before, or says what it has."""
        if channel.asked and not (request.subscribe or request.unsubscribe or request.held):
            return False
        everything = WILDCARD in request.subscribe or not (channel.asked or request.subscribe)
        channel.asked = True
        if everything and channel.type_url in LISTED:
            channel.ask_for_all()
        channel.hold(request.held)
        self._returned = self._returned or (channel.type_url == CLUSTER and len(request.held) > 0)
        self._ask(channel, more=but_wildcard(request.subscribe), less=request.unsubscribe)
        return True

    def _responses(
        self,
        channel: Channel,
        changes: ChannelUpdate,
        snapshot: Snapshot,  # noqa: ARG002  what a state-of-the-world stream repeats all of
    ) -> Iterator[Response]:
        *earlier, last = portions(changes.batches) or [()]
        for portion in earlier:
            yield self._tell(channel, ChannelUpdate(portion))
        yield self._tell(channel, ChannelUpdate(last, changes.removed))

    def _tell(self, channel: Channel, changes: ChannelUpdate) -> Response:
        gone = sum(digest_of(f"-{name}") for name in changes.removed)
        version = version_of(sum(batch.digest for batch in changes.batches) + gone)
        return channel.say(version, changes.batches, changes, changes.removed)

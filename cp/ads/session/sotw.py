"""`SotwSession`: a state-of-the-world stream as a state machine without I/O.

A response for clusters or listeners holds all of them; one for endpoints, routes or secrets only what is new:
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#grouping-resources-into-responses
"""

from __future__ import annotations

from collections.abc import Iterator

from cp.ads.session.base import SessionBase, portions, without_wildcard
from cp.ads.session.channel import Channel
from cp.ads.session.client_resources import WILDCARD_TYPES
from cp.ads.session.messages import WILDCARD, Response, SotwRequest
from cp.ads.session.pending import ChannelUpdate
from cp.translate.packing import TYPES, ResourceBatch, version_of
from cp.translate.snapshot import Snapshot


class SotwSession(SessionBase):
    __slots__ = ()

    sends_all = True

    def receive(self, request: SotwRequest) -> list[Response]:
        self.answer = None
        if request.type_url not in TYPES:
            return []
        channel = self._channel(request.type_url)
        # A nonce is valid on one stream only, so before the first response it is of an earlier stream, and the version
        # beside it tells what the client has:
        # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#basic-protocol-overview
        if request.nonce != "" and channel.nonce != "":
            self._receive_answer(channel, request.nonce, request.error, request.version)
        else:
            channel.note_initial_version(request.version)
        has_changed = self._subscribe(channel, request.names)
        return self._react(is_only_an_answer=not has_changed and request.nonce != "")

    def _subscribe(self, channel: Channel, names: frozenset[str]) -> bool:
        """Whether the client wants anything else than before.

        A request with a stale nonce answers nothing, but its names count: they are what the client wants by now.
        A name that was dropped and requested again while a response was pending would otherwise go unnoticed.
        """
        subscription = channel.subscription
        is_same = names is subscription.names or names == subscription.names
        if channel.is_subscribed and is_same and (len(names) > 0 or subscription.wildcard):
            return False
        # No names are a wildcard only for as long as there never were any; later they are none.
        # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-resource-hints
        wants_all = WILDCARD in names or (not names and (subscription.wildcard or not channel.is_subscribed))
        if not channel.is_subscribed:
            channel.open()
        if wants_all and channel.type_url in WILDCARD_TYPES:
            channel.subscribe_to_all()
        else:
            channel.unsubscribe_from_all()
        # A request holds all names that the client wants, so what is no longer among them is unsubscribed:
        # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-unsubscribing
        named = without_wildcard(names)
        added_names = named - subscription.names if subscription.names else named
        self._change_names(channel, added_names, removed_names=subscription.names - named)
        return True

    def _responses(self, channel: Channel, update: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]:
        if channel.sends_all:
            return self._response_with_all(channel, update, snapshot)
        return self._responses_with_updates(channel, update, snapshot)

    def _response_with_all(self, channel: Channel, update: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]:
        content = channel.content(snapshot)
        version = _version(content)
        if channel.has_nacked(version):
            channel.rewind()  # it would only be NACKed again
        elif update.must_respond or version != channel.version:
            yield channel.respond(version, content, update, ())

    def _responses_with_updates(
        self, channel: Channel, update: ChannelUpdate, snapshot: Snapshot
    ) -> Iterator[Response]:
        # Only the last response carries the version of the whole: on its next stream, a client that got no further
        # must not name a version that it has only a part of.
        *earlier, last = portions(update.batches) or [()]
        for portion in earlier:
            yield channel.respond(_version(portion), portion, ChannelUpdate(portion), ())
        if last:
            yield channel.respond(channel.version_at(snapshot), last, ChannelUpdate(last), ())


def _version(batches: tuple[ResourceBatch, ...]) -> str:
    return version_of(sum(batch.digest for batch in batches))

"""`SotwSession`: a state-of-the-world stream as a state machine without I/O.

A response for clusters or listeners holds all of them; one for endpoints, routes or secrets only what is new:
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#grouping-resources-into-responses
"""

from __future__ import annotations

from collections.abc import Iterator

from cp.ads.session.base import SessionBase, portions, without_wildcard
from cp.ads.session.channel import Channel, draining_version
from cp.ads.session.client_resources import WILDCARD_TYPES
from cp.ads.session.messages import WILDCARD, Response, SotwRequest
from cp.ads.session.pending import ChannelUpdate
from cp.translate.packing import ENDPOINTS, TYPES, ResourceBatch, version_of
from cp.translate.snapshot import Snapshot


class SotwSession(SessionBase):
    __slots__ = ()

    def receive(self, request: SotwRequest) -> list[Response]:
        self.answer = None
        if request.type_url not in TYPES:
            return []
        channel = self._channel(request.type_url)
        is_repeated = channel.is_repeated(request.nonce) and request.error is None
        # The version in the first request tells what the client has of an earlier stream. Later it does not: a client
        # that has unsubscribed from everything and dropped it names the same version for what it requests next.
        # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-ack-nack
        if not channel.is_subscribed:
            channel.note_initial_version(request.version)
        # A nonce is valid on one stream only, so before the first response it is of an earlier stream:
        # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#basic-protocol-overview
        elif request.nonce != "":
            self._receive_answer(channel, request.nonce, request.error, request.version)
        has_changed = self._subscribe(channel, request.names)
        if is_repeated and not has_changed:
            has_changed = self._subscribe_once_more(channel, request.nonce)
        return self._react(is_only_an_answer=not has_changed and request.nonce != "")

    def _subscribe(self, channel: Channel, names: frozenset[str]) -> bool:
        """Whether the client wants anything else than before.

        A request with a stale nonce answers nothing, but its names count: they are what the client wants by now.
        A name that was dropped and requested again while a response was pending would otherwise go unnoticed.
        """
        subscription = channel.subscription
        if names:
            channel.note_names()
        wants_all = self._wants_all(channel, names)
        named = without_wildcard(names)
        is_same = named is subscription.names or named == subscription.names
        if channel.is_subscribed and is_same and wants_all == subscription.wildcard:
            return False
        # A request holds all names that the client wants, so what is no longer among them is unsubscribed:
        # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-unsubscribing
        added_names = named - subscription.names if subscription.names else named
        if not channel.is_subscribed:
            channel.open()
        elif added_names:
            channel.note_initial_version("")  # it says nothing about names that were not in the first request
        if wants_all:
            channel.subscribe_to_all()
        else:
            channel.unsubscribe_from_all()
        self._change_names(channel, added_names, removed_names=subscription.names - named)
        return True

    def _wants_all(self, channel: Channel, names: frozenset[str]) -> bool:
        # No names are a wildcard only for as long as there never were any, `*` included; later they are none.
        # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-resource-hints
        wants_all = WILDCARD in names or not channel.subscription.has_named
        return wants_all and channel.type_url in WILDCARD_TYPES

    def _subscribe_once_more(self, channel: Channel, nonce: str) -> bool:
        """True if a client that repeats its request has to be sent once more what it may have.

        An Envoy repeats it if another of its listeners or clusters requests the same name from another `ConfigSource`,
        and then waits for the resource. It repeats it for endpoints too when a cluster warms, and those are sent with
        the cluster in any case.
        """
        if channel.sends_all or channel.type_url == ENDPOINTS:
            return False
        channel.repeat(nonce)
        return True

    def _new_channel(self, type_url: str) -> Channel:
        holds_all = type_url in WILDCARD_TYPES
        return Channel(
            type_url,
            sends_all=holds_all,
            can_remove=holds_all,
            reports_missing=holds_all,
            trusts_versions=self._trusts_versions,
        )

    def _responses(self, channel: Channel, update: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]:
        if channel.sends_all:
            return self._response_with_all(channel, update, snapshot)
        return self._responses_with_updates(channel, update, snapshot)

    def _response_with_all(self, channel: Channel, update: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]:
        content = channel.content(snapshot)
        version = _version(content)
        if snapshot.draining and version == snapshot.version(channel.type_url):
            version = draining_version(version, snapshot.active_version(channel.type_url))
        if channel.has_nacked(version):
            channel.rewind()  # it would only be NACKed again
        elif update.must_respond or not (version == channel.version or channel.keeps_more_than(version)):
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

"""`DeltaSession`: an incremental stream as a state machine without I/O.

A response holds what is new and names what is gone:
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#incremental-xds
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.ads.session.base import SessionBase, portions, without_wildcard
from cp.ads.session.channel import Channel
from cp.ads.session.client_resources import WILDCARD_TYPES
from cp.ads.session.messages import WILDCARD, DeltaRequest, Response
from cp.ads.session.pending import ChannelUpdate
from cp.translate.packing import CLUSTER, ROUTES, SECRET, TYPES, digest_of, version_of
from cp.translate.snapshot import Snapshot

_ENVOY_AWAITS: Final = frozenset({ROUTES, SECRET})
"""Types of which an Envoy awaits a resource for ever, once it has been told that there is none (record 0099)."""


class DeltaSession(SessionBase):
    __slots__ = ()

    def receive(self, request: DeltaRequest) -> list[Response]:
        self.answer = None
        if request.type_url not in TYPES:
            return []
        channel = self._channel(request.type_url)
        if request.nonce != "":
            self._receive_answer(channel, request.nonce, request.error)
        # With a stale nonce too: it takes nothing from what the request says about names.
        has_changed = self._subscribe(channel, request)
        return self._react(is_only_an_answer=not has_changed and request.nonce != "")

    def _subscribe(self, channel: Channel, request: DeltaRequest) -> bool:
        """Whether the client wants anything else than before, or says what it has."""
        if channel.is_subscribed and not (request.subscribe or request.unsubscribe):
            return False
        # A first request without names is a wildcard:
        # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-resource-hints
        wants_all = WILDCARD in request.subscribe or not (channel.is_subscribed or request.subscribe)
        if not channel.is_subscribed:
            self._open(channel, request)
        if wants_all and channel.type_url in WILDCARD_TYPES:
            self._subscribe_to_all(channel)
        self._change_names(channel, without_wildcard(request.subscribe), request.unsubscribe)
        return True

    def _subscribe_to_all(self, channel: Channel) -> None:
        # A client that subscribes once more may have dropped what it had, and has to be sent it again:
        # https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#xds-protocol-delta-subscribe
        if channel.subscription.wildcard:
            channel.request_all()
        else:
            channel.subscribe_to_all()

    def _new_channel(self, type_url: str) -> Channel:
        reports_missing = not (self._is_envoy and type_url in _ENVOY_AWAITS)
        return Channel(
            type_url,
            sends_all=False,
            can_remove=True,
            reports_missing=reports_missing,
            trusts_versions=self._trusts_versions,
        )

    def _open(self, channel: Channel, request: DeltaRequest) -> None:
        # What the client has of an earlier stream counts in the first request of a type alone: later we know it.
        # https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/discovery/v3/discovery.proto#service-discovery-v3-deltadiscoveryrequest
        channel.open()
        channel.note_initial_versions(request.initial_versions)
        self._measure(channel)
        if channel.type_url == CLUSTER and request.initial_versions:
            self._has_old_clusters = True
        if channel.type_url in WILDCARD_TYPES and request.initial_versions:
            self._inherited_types.add(channel.type_url)

    def _responses(
        self,
        channel: Channel,
        update: ChannelUpdate,
        snapshot: Snapshot,  # noqa: ARG002  # a delta response is made of the update alone
    ) -> Iterator[Response]:
        *earlier, last = portions(update.batches) or [()]
        for portion in earlier:
            yield self._response(channel, ChannelUpdate(portion))
        yield self._response(channel, ChannelUpdate(last, update.removed))

    def _response(self, channel: Channel, update: ChannelUpdate) -> Response:
        # The version is there for people who debug: a delta client never names it.
        removals = sum(digest_of(f"-{name}") for name in update.removed)
        version = version_of(sum(batch.digest for batch in update.batches) + removals)
        return channel.respond(version, update.batches, update, update.removed)

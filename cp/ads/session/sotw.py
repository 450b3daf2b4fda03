"""`SotwSession`: a state-of-the-world stream as a state machine without I/O.

A response for clusters or listeners holds all of them; one for endpoints, routes or secrets only what is new.
"""

from __future__ import annotations

from collections.abc import Iterator

from cp.ads.session.base import SessionBase, portions, without_wildcard
from cp.ads.session.channel import Channel
from cp.ads.session.client_resources import WILDCARD_TYPES
from cp.ads.session.messages import WILDCARD, Response, SotwRequest
from cp.ads.session.pending import ChannelUpdate
from cp.translate.snapshot import TYPES, ResourceBatch, Snapshot, version_of


class SotwSession(SessionBase):
    __slots__ = ()

    sends_all = True

    def receive(self, request: SotwRequest) -> list[Response]:
        self.answer = None
        if request.type_url not in TYPES:
            return []
        channel = self._channel(request.type_url)
        if request.nonce != "" and channel.nonce != "":
            self._receive_answer(channel, request.nonce, request.error, request.version)
        else:
            channel.subscription.initial_version = request.version
        asked = self._subscribe(channel, request.names)
        return self._react(is_only_an_answer=not asked and request.nonce != "")

    def _subscribe(self, channel: Channel, names: frozenset[str]) -> bool:
        """Whether the client wants anything else than before.

        A request with an old nonce answers nothing, but its names count: they are what the client wants by now.
        A name that was dropped and asked for again while a response was under way would otherwise go unnoticed.
        """
        has = channel.subscription
        is_same = names is has.names or names == has.names
        if channel.is_subscribed and is_same and (len(names) > 0 or has.wildcard):
            return False
        everything = WILDCARD in names or (not names and (has.wildcard or not channel.is_subscribed))
        if not channel.is_subscribed:
            channel.open()
        if everything and channel.type_url in WILDCARD_TYPES:
            channel.subscribe_to_all()
        else:
            has.wildcard = False
        named = without_wildcard(names)
        self._change_names(channel, more=named - has.names if has.names else named, less=has.names - named)
        return True

    def _responses(self, channel: Channel, changes: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]:
        return self._all(channel, changes, snapshot) if channel.sends_all else self._new(channel, changes, snapshot)

    def _all(self, channel: Channel, changes: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]:
        content = channel.content(snapshot)
        version = _version(content)
        if channel.has_nacked(version):
            channel.rewind()
        elif changes.must_respond or version != channel.version:
            yield channel.respond(version, content, changes, ())

    def _new(self, channel: Channel, changes: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]:
        """Only the last response carries the version of the whole: a client that got no further has not got it all."""
        *earlier, last = portions(changes.batches) or [()]
        for portion in earlier:
            yield channel.respond(_version(portion), portion, ChannelUpdate(portion), ())
        if last:
            yield channel.respond(channel.version_at(snapshot), last, ChannelUpdate(last), ())


def _version(batches: tuple[ResourceBatch, ...]) -> str:
    return version_of(sum(batch.digest for batch in batches))

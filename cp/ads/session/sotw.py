"""`SotwSession`: a state-of-the-world stream as a state machine without I/O.

A response for clusters or listeners holds all of them; one for endpoints, routes or secrets only what is new.
"""

from __future__ import annotations

from collections.abc import Iterator

from cp.ads.session.base import SessionBase, but_wildcard, portions
from cp.ads.session.channel import Channel
from cp.ads.session.client_resources import LISTED
from cp.ads.session.messages import WILDCARD, Response, SotwRequest
from cp.ads.session.pending import ChannelUpdate
from cp.translate.packing import TYPES, ResourceBatch, version_of
from cp.translate.snapshot import Snapshot


class SotwSession(SessionBase):
    __slots__ = ()

    says_all = True

    def receive(self, request: SotwRequest) -> list[Response]:
        self.heard = None
        if request.type_url not in TYPES:
            return []
        channel = self._channel(request.type_url)
        if request.nonce != "" and channel.latest != "":
            self._hear(channel, request.nonce, request.error, request.version)
        else:
            channel.claim = request.version
        asked = self._subscribe(channel, request.names)
        return self._answer(is_only_an_answer=not asked and request.nonce != "")

    def _subscribe(self, channel: Channel, names: frozenset[str]) -> bool:
        """Whether the client wants anything else than before.

        A request with an old nonce answers nothing, but its names count: they are what the client wants by now.
        A name that was dropped and asked for again while a response was under way would otherwise go unnoticed.
        """
        has = channel.subscription
        is_same = names is has.names or names == has.names
        if channel.asked and is_same and (len(names) > 0 or has.wildcard):
            return False
        everything = WILDCARD in names or (not names and (has.wildcard or not channel.asked))
        channel.asked = True
        if everything and channel.type_url in LISTED:
            channel.ask_for_all()
        else:
            has.wildcard = False
        named = but_wildcard(names)
        self._ask(channel, more=named - has.names if has.names else named, less=has.names - named)
        return True

    def _responses(self, channel: Channel, changes: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]:
        return self._all(channel, changes, snapshot) if channel.full else self._new(channel, changes, snapshot)

    def _all(self, channel: Channel, changes: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]:
        content = channel.content(snapshot)
        version = _version(content)
        if channel.is_refused(version):
            channel.take_back()
        elif changes.due or version != channel.told:
            yield channel.say(version, content, changes, ())

    def _new(self, channel: Channel, changes: ChannelUpdate, snapshot: Snapshot) -> Iterator[Response]:
        """Only the last response carries the version of the whole: a client that got no further has not got it all."""
        *earlier, last = portions(changes.batches) or [()]
        for portion in earlier:
            yield channel.say(_version(portion), portion, ChannelUpdate(portion), ())
        if last:
            yield channel.say(channel.version(snapshot), last, ChannelUpdate(last), ())


def _version(batches: tuple[ResourceBatch, ...]) -> str:
    return version_of(sum(batch.digest for batch in batches))

"""`PendingResponses`: the responses of one type on one stream that await an ACK or a NACK, found by their nonces.

https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#ack-and-nack-semantics-summary
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cp.ads.session.messages import Response, ResponseCounts
from cp.translate.packing import PackedResource, ResourceBatch
from cp.translate.snapshot import Snapshot

MOST_PENDING = 64  # responses remembered at most: a client that never answers costs no more than these


@dataclass(frozen=True, slots=True)
class ChannelUpdate:
    """What is new to a client. `must_respond`: it waits for a response even if nothing is in it."""

    batches: tuple[ResourceBatch, ...] = ()
    removed: tuple[str, ...] = ()
    must_respond: bool = False

    def __bool__(self) -> bool:
        return self.must_respond or len(self.batches) > 0 or len(self.removed) > 0

    @property
    def updated(self) -> Iterator[PackedResource]:
        for batch in self.batches:
            yield from batch


NO_CHANGES = ChannelUpdate()


@dataclass(frozen=True, slots=True)
class SentResponse:
    """What was new to the client in a response, and the snapshot that the client is at once it has ACKed it."""

    version: str
    update: ChannelUpdate
    base: Snapshot


class ResponseTotals:
    """What was sent on a channel in all, and how it was answered."""

    __slots__ = ("accepted", "messages", "rejected", "resources", "size")

    def __init__(self) -> None:
        self.messages = self.resources = self.size = 0
        self.accepted = self.rejected = 0  # messages

    def count_response(self, response: Response) -> None:
        self.messages += 1
        self.resources += sum(map(len, response.batches))
        self.size += response.size

    def count_answer(self, *, is_ack: bool) -> None:
        self.accepted += is_ack
        self.rejected += not is_ack

    def counts(self, type_url: str) -> ResponseCounts:
        return ResponseCounts(type_url, self.messages, self.accepted, self.rejected)


class PendingResponses:
    """In the order in which they were sent, which is the order in which a client answers them."""

    __slots__ = ("_sent", "blocking_nonce", "last_answered")

    def __init__(self) -> None:
        self.blocking_nonce: str | None = None  # of the newest response that holds up what is sent after it
        self._sent: dict[str, SentResponse] = {}
        self.last_answered = ""  # the nonce that the client names until it gets a newer response

    def __len__(self) -> int:
        return len(self._sent)

    def nonce(self, content: str) -> str:
        """A nonce made of the content, so that equal responses are equal bytes on every stream.

        It differs from every nonce that the client may still name: those of pending responses, and the last that it
        answered, which each further request of a state-of-the-world client repeats.
        """
        nonce, turn = content, 0
        while nonce == self.last_answered or nonce in self._sent:
            turn += 1
            nonce = f"{content}.{turn}"
        return nonce

    def add(self, nonce: str, sent: SentResponse, *, is_blocking: bool) -> None:
        self._sent[nonce] = sent
        if is_blocking:
            self.blocking_nonce = nonce
        # A client that never answers is sent newer snapshots only up to a point (`Stream`), but endpoints that it
        # requests again and again are sent to it.
        if len(self._sent) > MOST_PENDING:
            del self._sent[next(iter(self._sent))]

    def take_answered(self, nonce: str) -> SentResponse | None:
        """The pending response with this nonce, or None if the nonce is stale.

        A state-of-the-world client may answer only the newest of several responses, so those before it are answered
        with it: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#resource-updates
        """
        if nonce not in self._sent:
            return None
        # A dict keeps the order in which entries were added, so the first key is the oldest response.
        oldest = ""
        while oldest != nonce:
            oldest = next(iter(self._sent))
            sent = self._sent.pop(oldest)
        self.last_answered = nonce
        if self.blocking_nonce not in self._sent:
            self.blocking_nonce = None
        return sent

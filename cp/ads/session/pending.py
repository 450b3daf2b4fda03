"""`PendingResponses`: responses that await an answer, and the nonces by which they are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cp.translate.packing import PackedResource, ResourceBatch
from cp.translate.snapshot import Snapshot

UNANSWERED = 64  # responses remembered at most: a client that never answers costs no more than these


@dataclass(frozen=True, slots=True)
class ChannelUpdate:
    """What is new to a client. `due` says that it waits for an answer even if there is nothing in it."""

    batches: tuple[ResourceBatch, ...] = ()
    removed: tuple[str, ...] = ()
    due: bool = False

    def __bool__(self) -> bool:
        return self.due or len(self.batches) > 0 or len(self.removed) > 0

    @property
    def updated(self) -> Iterator[PackedResource]:
        for batch in self.batches:
            yield from batch


NO_CHANGES = ChannelUpdate()


@dataclass(frozen=True, slots=True)
class SentResponse:
    """What a response told a client, and where that got it to."""

    version: str
    changes: ChannelUpdate
    base: Snapshot


class PendingResponses:
    __slots__ = ("_last_answered", "_sent", "gate")

    def __init__(self) -> None:
        self.gate: str | None = None  # the newest response whose answer decides how to go on
        self._sent: dict[str, SentResponse] = {}
        self._last_answered = ""

    def __len__(self) -> int:
        return len(self._sent)

    def nonce(self, content: str) -> str:
        """A nonce made of the content, so that equal responses are equal bytes on every stream.

        It is told apart from every nonce that the client may still come up with.
        """
        nonce, turn = content, 0
        while nonce == self._last_answered or nonce in self._sent:
            turn += 1
            nonce = f"{content}.{turn}"
        return nonce

    def add(self, nonce: str, sent: SentResponse, *, gates: bool) -> None:
        self._sent[nonce] = sent
        if gates:
            self.gate = nonce
        if len(self._sent) > UNANSWERED:
            del self._sent[next(iter(self._sent))]

    def answered(self, nonce: str) -> SentResponse | None:
        """The response that this nonce is of. Answers come in order, so those before it are answered with it."""
        if nonce not in self._sent:
            return None
        oldest = ""
        while oldest != nonce:
            oldest = next(iter(self._sent))
            sent = self._sent.pop(oldest)
        self._last_answered = nonce
        if self.gate not in self._sent:
            self.gate = None
        return sent

"""`Connection`: a connected stream as others see it. `ConnectionRecord`: what is known of it once it has ended.

There is no I/O and no clock in here: the hub says at which moment something happened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from cp.ads.session.messages import Nack, Node, ResponseCounts, TypeStatus
from cp.model.registration import CERTIFICATES, DRAIN_TIME, RESOURCE
from cp.translate.snapshot import Snapshot
from generators.grpc.tls import PROVIDER

_LONGEST_DRAIN_TIME: Final = 3600.0
"""Seconds. A proxy that claims to drain longer is not served what it lost for longer."""


class StreamSession(Protocol):
    """What others ask of a stream's session."""

    @property
    def statuses(self) -> tuple[TypeStatus, ...]: ...

    @property
    def tallies(self) -> tuple[ResponseCounts, ...]: ...

    @property
    def is_settled(self) -> bool: ...

    def asks_for(self, type_url: str, name: str) -> bool: ...

    def is_at(self, snapshot: Snapshot) -> bool: ...

    def has_answered_all(self, snapshot: Snapshot) -> bool: ...


@dataclass(slots=True, eq=False)
class Connection:
    """A connected stream. Times are those of the hub's clock."""

    node: Node
    kind: str  # the name of a `StreamKind`
    session: StreamSession
    wake: Callable[[], None]  # tells the stream that there is a newer snapshot
    since: float = 0.0  # when it connected
    answered_at: float = 0.0  # when it answered a response last
    type_answered_at: dict[str, float] = field(default_factory=dict)  # the same for each type
    nacked_at: dict[Nack, float] = field(default_factory=dict)  # when it sent each NACK that stands, last
    # type, name -> since when the client has NACKed each version of the resource that it was sent
    trouble_since: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def nacks(self) -> tuple[Nack, ...]:
        return tuple(nack for status in self.session.statuses for nack in status.nacks)

    @property
    def finds_certificates(self) -> bool:
        """Whether it is a gRPC client that says that its library finds the certificates for the mesh."""
        return names_provider(self.node)

    def note_answer(self, type_url: str, nack: Nack | None, at: float) -> None:
        """The client has ACKed or NACKed a response."""
        self.answered_at = self.type_answered_at[type_url] = at
        # An ACK costs no more than that while nothing is NACKed, which is nearly always.
        if nack is not None or self.nacked_at:
            self._note_trouble(type_url, nack, at)

    def _note_trouble(self, type_url: str, nack: Nack | None, at: float) -> None:
        """Trouble with a resource lasts until a version of it is ACKed, however many versions are NACKed before."""
        statuses = self.session.statuses
        standing = {standing_nack for status in statuses for standing_nack in status.nacks}
        self.nacked_at = {earlier: time for earlier, time in self.nacked_at.items() if earlier in standing}
        if nack is not None:
            self.nacked_at[nack] = at
            began = {(type_url, name): self.trouble_since.get((type_url, name), at) for name in nack.names}
            self.trouble_since |= began
        # While a response is pending, a resource that is not held back may be in it, and be NACKed again.
        answered_types = {status.type_url for status in statuses if status.unanswered == 0}
        held_back = {(status.type_url, resource.name) for status in statuses for resource in status.held_back}
        self.trouble_since = {
            (of_type, name): time
            for (of_type, name), time in self.trouble_since.items()
            if (of_type, name) in held_back or of_type not in answered_types
        }

    def record(self, until: float | None = None) -> ConnectionRecord:
        """What can be told of it elsewhere, or once it has ended."""
        # Without the Dataplane: one text would be as large as all else that is told of a hundred connections.
        metadata = {name: value for name, value in self.node.metadata.items() if name != RESOURCE}
        node = replace(self.node, metadata=metadata)
        return ConnectionRecord(node, self.kind, self.since, until, self.answered_at, self.session.tallies)


def drain_time(node: Node, default: float) -> float:
    """How long the listeners of a proxy drain after a change, in seconds; `default` if its node does not say."""
    seconds = node.metadata.get(DRAIN_TIME)
    return min(max(seconds, 0.0), _LONGEST_DRAIN_TIME) if isinstance(seconds, int | float) else default


def names_provider(node: Node) -> bool:
    """Whether a node is that of a gRPC client that says that its library finds the certificates for the mesh."""
    return node.metadata.get(CERTIFICATES) == PROVIDER


@dataclass(frozen=True, slots=True)
class ConnectionRecord:
    """When a stream was connected, until now or until it ended, and how much it was sent."""

    node: Node
    kind: str  # the name of a `StreamKind`
    since: float
    until: float | None  # None as long as it is connected
    answered_at: float  # when it answered a response last
    tallies: tuple[ResponseCounts, ...]

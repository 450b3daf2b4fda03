"""A connected stream as others see it (`Connection`), and what is known of it after its end (`ConnectionRecord`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from cp.ads.session.messages import Nack, Node, ResponseCounts, TypeStatus
from cp.translate.snapshot import Snapshot


class StreamSession(Protocol):
    """What others ask of a stream's session."""

    @property
    def statuses(self) -> tuple[TypeStatus, ...]: ...

    @property
    def tallies(self) -> tuple[ResponseCounts, ...]: ...

    @property
    def is_settled(self) -> bool: ...

    def is_at(self, snapshot: Snapshot) -> bool: ...

    def has_answered_all(self, snapshot: Snapshot) -> bool: ...


@dataclass(slots=True, eq=False)
class Connection:
    """A connected stream. Times are those of the hub's clock."""

    node: Node
    kind: str
    session: StreamSession
    wake: Callable[[], None]
    since: float = 0.0
    heard_at: float = 0.0  # when it answered a response last
    heard: dict[str, float] = field(default_factory=dict)  # the same for each type
    refused_at: dict[Nack, float] = field(default_factory=dict)  # when what it refuses was refused last
    troubled: dict[tuple[str, str], float] = field(default_factory=dict)  # type, name -> since when it takes none of it

    @property
    def refusals(self) -> tuple[Nack, ...]:
        return tuple(nack for status in self.session.statuses for nack in status.refused)

    def hear(self, type_url: str, nack: Nack | None, at: float) -> None:
        """The client answered a response."""
        self.heard_at = self.heard[type_url] = at
        if nack is not None or self.refused_at:
            self._note(type_url, nack, at)

    def _note(self, type_url: str, nack: Nack | None, at: float) -> None:
        """Trouble with a resource lasts until a version of it is accepted, however many are refused before."""
        statuses = self.session.statuses
        standing = {one for status in statuses for one in status.refused}
        self.refused_at = {one: when for one, when in self.refused_at.items() if one in standing}
        if nack is not None:
            self.refused_at[nack] = at
            self.troubled |= {(type_url, name): self.troubled.get((type_url, name), at) for name in nack.names}
        over = {status.type_url for status in statuses if status.unanswered == 0}
        held = {(status.type_url, one.name) for status in statuses for one in status.held}
        self.troubled = {one: when for one, when in self.troubled.items() if one in held or one[0] not in over}

    def visit(self, until: float | None = None) -> ConnectionRecord:
        """What can be said of it elsewhere, or afterwards."""
        return ConnectionRecord(self.node, self.kind, self.since, until, self.heard_at, self.session.tallies)


@dataclass(frozen=True, slots=True)
class ConnectionRecord:
    """When a stream was there, until now or until it ended, and how much it was sent."""

    node: Node
    kind: str
    since: float
    until: float | None
    heard_at: float
    tallies: tuple[ResponseCounts, ...]

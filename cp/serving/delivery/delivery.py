"""`Delivery`: where one proxy stands: what it was sent, what it took, what it refuses and has instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cp.ads.connection import Connection, ConnectionRecord
from cp.ads.session.messages import Nack, NackedResource, TypeStatus
from cp.model.names import Key
from cp.model.violation import Finding
from cp.serving.delivery.nacks import NackReport, finding, grouped


class ProxyState(StrEnum):
    """How a proxy is, in a word or two."""

    ONLINE = "Online"
    """It has everything that it should have."""

    OUT_OF_SYNC = "Out of sync"
    """Something is on its way to it."""

    REFUSED = "Refused"
    """It does not take a part of what it should have."""

    FAILED = "Failed"
    """Something of what it should have could not be made, by a fault of ours."""

    OFFLINE = "Offline"

    @property
    def is_in_sync(self) -> bool:
        return self is ProxyState.ONLINE


@dataclass(frozen=True, slots=True)
class StandingNack:
    """What a proxy refuses, and what it has instead."""

    nack: Nack
    at: float
    held: tuple[NackedResource, ...]
    complaint: NackReport | None


@dataclass(frozen=True, slots=True)
class TypeDelivery:
    """Where a stream stands with one type of resources."""

    status: TypeStatus
    since: float
    """Since when it is in sync, or not."""

    accepted: int
    rejected: int
    refusals: tuple[StandingNack, ...]


@dataclass(frozen=True, slots=True)
class StreamDelivery:
    """One connection of a proxy. There is a second one for a moment, while a proxy is replaced."""

    kind: str
    envoy: str
    since: float
    heard_at: float
    types: tuple[TypeDelivery, ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where one proxy stands."""

    dataplane: Key
    presence: Presence
    streams: tuple[StreamDelivery, ...]
    failed: tuple[Finding, ...] = ()
    """What could not be made for it."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is to be said of what could not be made, and of what it refuses."""
        refusals = (one for stream in self.streams for of_type in stream.types for one in of_type.refusals)
        refused = map(finding, grouped(one.complaint for one in refusals if one.complaint is not None))
        return (*self.failed, *refused)


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether a proxy is there, and how it is."""

    state: ProxyState
    since: float | None
    """Since when it is in sync, or not; None where it is not connected."""

    connections: tuple[ConnectionRecord, ...]
    """Those that are there, or else the last one that anybody remembers."""


def presence(
    seats: Sequence[Connection],
    since: float | None,
    last: ConnectionRecord | None,
    *,
    in_sync: bool,
    failed: bool = False,
) -> Presence:
    connections = tuple(seat.record() for seat in seats) or (() if last is None else (last,))
    return Presence(_state(seats, in_sync=in_sync, failed=failed), since, connections)


def _state(seats: Sequence[Connection], *, in_sync: bool, failed: bool) -> ProxyState:
    if not seats:
        return ProxyState.OFFLINE
    if failed:
        return ProxyState.FAILED
    if in_sync:
        return ProxyState.ONLINE
    return ProxyState.REFUSED if any(seat.nacks for seat in seats) else ProxyState.OUT_OF_SYNC


def delivery(
    dataplane: Key,
    seen: Presence,
    seats: Sequence[Connection],
    complaints: Iterable[NackReport],
    failed: Iterable[Finding] = (),
) -> Delivery:
    """The complaints are those about what the proxy refuses."""
    by_nack = {one.nack: one for one in complaints}
    streams = tuple(_stream(seat, seen.since or seat.since, by_nack) for seat in seats)
    return Delivery(dataplane, seen, streams, tuple(failed))


def _stream(seat: Connection, since: float, complaints: Mapping[Nack, NackReport]) -> StreamDelivery:
    answers = {tally.type_url: tally for tally in seat.session.tallies}
    types = tuple(
        TypeDelivery(
            status,
            _since(seat, status, since),
            answers[status.type_url].accepted,
            answers[status.type_url].rejected,
            tuple(_refusal(seat, status, nack, complaints) for nack in status.nacks),
        )
        for status in seat.session.statuses
    )
    return StreamDelivery(seat.kind, seat.node.version, seat.since, seat.answered_at, types)


def _since(seat: Connection, status: TypeStatus, of_all: float) -> float:
    if status.in_sync:
        return seat.type_answered_at.get(status.type_url, seat.since)
    if status.nacks:
        return min(troubled_since(seat, status.type_url, nack) for nack in status.nacks)
    return of_all


def _refusal(seat: Connection, status: TypeStatus, nack: Nack, complaints: Mapping[Nack, NackReport]) -> StandingNack:
    held = tuple(one for one in status.held_back if one.name in nack.names)
    return StandingNack(nack, troubled_since(seat, status.type_url, nack), held, complaints.get(nack))


def troubled_since(seat: Connection, type_url: str, nack: Nack) -> float:
    """Since when a client has taken no version of what it refuses here."""
    known = (seat.trouble_since.get((type_url, name)) for name in nack.names)
    return min((at for at in known if at is not None), default=seat.nacked_at.get(nack, seat.answered_at))

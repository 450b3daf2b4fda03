"""`Delivery`: where one proxy stands: what it was sent, what it took, what it refuses and has instead."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cp.ads.connection import Connection, ConnectionRecord, names_provider
from cp.ads.draining import DrainingResource
from cp.ads.session.messages import Nack, NackedResource, TypeStatus
from cp.identity.leaf import Certificate
from cp.model.failure import Failure, has_fault
from cp.model.names import Key
from cp.model.registration import CERTIFICATES, FETCHED
from cp.model.violation import Finding
from cp.serving.delivery.nacks import NackReport, finding, grouped


class ProxyState(StrEnum):
    """Whether a proxy has what it should have."""

    ONLINE = "Online"
    """It has everything that it should have."""

    OVER_LIMIT = "Over limit"
    """It has everything but the parts that are left out because documents exceed a limit."""

    OUT_OF_SYNC = "Out of sync"
    """Something is on its way to it."""

    REFUSED = "Refused"
    """It NACKed a part of what it should have."""

    FAILED = "Failed"
    """A part of what it should have could not be made, by a fault of ours."""

    OFFLINE = "Offline"

    UNKNOWN = "Unknown"
    """No control plane that answers serves it, and there is one that does not answer."""

    @property
    def is_in_sync(self) -> bool:
        """True if it has confirmed everything that it is served."""
        return self in {ProxyState.ONLINE, ProxyState.OVER_LIMIT}

    @property
    def is_unfit(self) -> bool:
        """Whether it is there and does not have everything, for a reason that does not pass by itself."""
        return self in {ProxyState.REFUSED, ProxyState.FAILED, ProxyState.OVER_LIMIT}


@dataclass(frozen=True, slots=True)
class StandingNack:
    """What a proxy NACKed and has not accepted since, and what it has instead."""

    nack: Nack
    at: float
    held: tuple[NackedResource, ...]
    report: NackReport | None


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
    """The parts of its configuration that are not built, after faults of ours or because of limits."""

    late: tuple[str, ...] = ()
    """Of each process that serves it and is behind, what it serves. All else is about that."""

    draining: tuple[DrainingResource, ...] = ()
    """The resources that it has only for draining listeners."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """About the parts that are not built for it, and about NACKed resources."""
        nacks = (nack for stream in self.streams for of_type in stream.types for nack in of_type.refusals)
        of_nacks = map(finding, grouped(nack.report for nack in nacks if nack.report is not None))
        return (*self.failed, *of_nacks)


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether a proxy is there, and how it is."""

    state: ProxyState
    since: float | None
    """Since when it is in sync, or not; None where it is not connected."""

    connections: tuple[ConnectionRecord, ...]
    """The open streams or, if there are none, the last one that the hub remembers."""

    certificate: Certificate | None = None
    """What it shows to others of its mesh; None if it has none, or is not connected."""

    @property
    def finds_certificates(self) -> bool | None:
        """Whether a gRPC client without a proxy says that its library finds certificates; None: that is not known."""
        libraries = [record.node for record in self.connections if record.node.metadata.get(CERTIFICATES) != FETCHED]
        return any(map(names_provider, libraries)) if libraries else None


@dataclass(frozen=True, slots=True)
class OwnRevision:
    """What the process that asks others serves itself: by that it knows whose proxies are behind."""

    revision: int
    passed_at: Callable[[int], float | None]
    """When we began to serve more than a revision, in seconds since 1970; None: that is not remembered."""

    def is_ahead_of(self, revision: int) -> bool:
        """Not of 0, which stands for an earlier version that does not say what it serves."""
        return 0 < revision < self.revision

    def presence(self, reported: Presence, revision: int) -> Presence:
        """A presence as a process told it that serves a revision. What is in sync with less than all is not."""
        if not reported.state.is_in_sync or not self.is_ahead_of(revision):
            return reported
        passed_at = self.passed_at(revision)
        since = None if passed_at is None else max(passed_at, reported.since or passed_at)
        return replace(reported, state=ProxyState.OUT_OF_SYNC, since=since)

    def delivery(self, standing: Delivery, revision: int, name: str) -> Delivery:
        """A delivery as the process of that name told it."""
        late = tuple(f"{name}: {sentence}" for sentence in standing.late)  # of its workers
        if standing.presence.state is ProxyState.OFFLINE or not self.is_ahead_of(revision):
            return replace(standing, late=late)
        sentence = f"{name} serves revision {revision}, and not {self.revision}"
        return replace(standing, presence=self.presence(standing.presence, revision), late=(*late, sentence))


def presence(
    connections: Sequence[Connection],
    since: float | None,
    last: ConnectionRecord | None,
    failures: Collection[Failure] = (),
    *,
    in_sync: bool,
) -> Presence:
    records = tuple(connection.record() for connection in connections) or (() if last is None else (last,))
    return Presence(state_of(connections, failures, in_sync=in_sync), since, records)


def state_of(connections: Sequence[Connection], failures: Collection[Failure], *, in_sync: bool) -> ProxyState:
    """Return the state of a proxy. `failures` are the parts that are not built for it."""
    if not connections:
        return ProxyState.OFFLINE
    if has_fault(failures):
        return ProxyState.FAILED
    if in_sync:
        return ProxyState.OVER_LIMIT if failures else ProxyState.ONLINE
    return ProxyState.REFUSED if any(connection.nacks for connection in connections) else ProxyState.OUT_OF_SYNC


def delivery(
    dataplane: Key,
    proxy_presence: Presence,
    connections: Sequence[Connection],
    nack_reports: Iterable[NackReport],
    failed: Iterable[Finding] = (),
) -> Delivery:
    """`nack_reports` are those of this proxy."""
    by_nack = {report.nack: report for report in nack_reports}
    streams = tuple(
        _stream(connection, proxy_presence.since or connection.since, by_nack) for connection in connections
    )
    return Delivery(dataplane, proxy_presence, streams, tuple(failed))


def _stream(connection: Connection, since: float, nack_reports: Mapping[Nack, NackReport]) -> StreamDelivery:
    answers = {tally.type_url: tally for tally in connection.session.tallies}
    types = tuple(
        TypeDelivery(
            status,
            _since(connection, status, since),
            answers[status.type_url].accepted,
            answers[status.type_url].rejected,
            tuple(_refusal(connection, status, nack, nack_reports) for nack in status.nacks),
        )
        for status in connection.session.statuses
    )
    return StreamDelivery(connection.kind, connection.node.version, connection.since, connection.answered_at, types)


def _since(connection: Connection, status: TypeStatus, of_all: float) -> float:
    if status.in_sync:
        return connection.type_answered_at.get(status.type_url, connection.since)
    if status.nacks:
        return min(nacked_since(connection, status.type_url, nack) for nack in status.nacks)
    return of_all


def _refusal(
    connection: Connection, status: TypeStatus, nack: Nack, nack_reports: Mapping[Nack, NackReport]
) -> StandingNack:
    held = tuple(resource for resource in status.held_back if resource.name in nack.names)
    return StandingNack(nack, nacked_since(connection, status.type_url, nack), held, nack_reports.get(nack))


def nacked_since(connection: Connection, type_url: str, nack: Nack) -> float:
    """Since when a client has ACKed no version of some resource that it NACKs here."""
    of_names = (connection.trouble_since.get((type_url, name)) for name in nack.names)
    return min(
        (at for at in of_names if at is not None), default=connection.nacked_at.get(nack, connection.answered_at)
    )

"""What becomes of a call: which row took it, and where it goes or what it is answered."""

from __future__ import annotations

from dataclasses import dataclass

from cp.insight.simulate.conditions import RouteCondition
from cp.model.duration import Duration

_NO_LIMIT = Duration()


@dataclass(frozen=True, slots=True)
class RowTrial:
    """One row of a route table, and how the request compares with what it asks for."""

    index: int
    name: str
    conditions: tuple[RouteCondition, ...]

    @property
    def matches(self) -> bool | None:
        """None: that cannot be told."""
        answers = [condition.holds for condition in self.conditions]
        return False if False in answers else None if None in answers else True


@dataclass(frozen=True, slots=True)
class TrafficShare:
    """A cluster, with its weight among all that a row leads to."""

    cluster: str
    weight: int = 1
    endpoints: tuple[str, ...] = ()
    is_missing: bool = False
    """Whether there is no cluster of that name."""

    status: int = 0
    """What is answered where it is missing; a connection is closed."""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """When a request is sent again, and how soon. What the configuration leaves open is Envoy's own default."""

    on: tuple[str, ...]
    retries: int
    per_try_timeout: Duration
    """Zero: the timeout of the whole request."""

    base_interval: Duration
    max_interval: Duration
    statuses: tuple[int, ...] = ()
    host_attempts: int = 1


@dataclass(frozen=True, slots=True)
class ForwardedCall:
    """A request that goes on, or a connection."""

    shares: tuple[TrafficShare, ...]
    path: str = ""
    host: str | None = ""
    """None: that of the endpoint."""

    timeout: Duration = _NO_LIMIT
    """Zero: no limit, here and below."""

    idle_timeout: Duration = _NO_LIMIT
    retry: RetryRule | None = None
    connect_attempts: int = 1
    """Of a connection; a request has `retry`."""

    mirrors: tuple[tuple[str, float], ...] = ()
    """Clusters that get a copy, each with the percentage of requests."""


@dataclass(frozen=True, slots=True)
class DirectReply:
    """An answer of Envoy's own."""

    status: int
    reason: str
    body: str = ""
    location: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of a call. Either it goes on, or it is answered."""

    listener: str
    path: str = ""
    """As the routes see it; empty for a connection."""

    host: str = ""
    table: str = ""
    virtual_host: str = ""
    rows: tuple[RowTrial, ...] = ()
    """Every row, in the order in which they are tried: the first that matches takes the request."""

    forward: ForwardedCall | None = None
    reply: DirectReply | None = None

    @property
    def row(self) -> RowTrial | None:
        return next((row for row in self.rows if row.matches), None)

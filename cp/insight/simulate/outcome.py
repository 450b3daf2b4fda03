"""The outcome of a call: the row that took it, and the clusters that it goes to or the answer that it gets."""

from __future__ import annotations

from dataclasses import dataclass

from cp.insight.simulate.conditions import RouteCondition
from cp.model.duration import Duration

_NO_LIMIT = Duration()


@dataclass(frozen=True, slots=True)
class RowTrial:
    """One row of a route table, tried on a request."""

    index: int
    name: str
    conditions: tuple[RouteCondition, ...]

    @property
    def matches(self) -> bool | None:
        """Whether the row takes the request; None if that is not simulated."""
        answers = [condition.holds for condition in self.conditions]
        return False if False in answers else None if None in answers else True


@dataclass(frozen=True, slots=True)
class TrafficShare:
    """A cluster, with its weight among the clusters of a row."""

    cluster: str
    weight: int = 1
    endpoints: tuple[str, ...] = ()
    is_missing: bool = False
    """Whether there is no cluster of that name."""

    status: int = 0
    """The status of the answer if it is missing; zero for a connection, which is closed."""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """When a request is retried, and how soon, with Envoy's defaults for what is not configured."""

    on: tuple[str, ...]
    retries: int
    per_try_timeout: Duration
    """Zero: no limit but the timeout of the whole request."""

    base_interval: Duration
    max_interval: Duration
    statuses: tuple[int, ...] = ()
    host_attempts: int = 1


@dataclass(frozen=True, slots=True)
class ForwardedCall:
    """A request or a connection that is forwarded."""

    shares: tuple[TrafficShare, ...]
    path: str = ""
    host: str | None = ""
    """None: the endpoint's host name, where it has one."""

    timeout: Duration = _NO_LIMIT
    """Zero: no limit, here and below."""

    idle_timeout: Duration = _NO_LIMIT
    retry: RetryRule | None = None
    connect_attempts: int = 1
    """For a connection; a request has `retry`."""

    mirrors: tuple[tuple[str, float], ...] = ()
    """The clusters that get copies, each with the percentage of requests."""


@dataclass(frozen=True, slots=True)
class DirectReply:
    """An answer that Envoy gives by itself."""

    status: int
    """0: it closes the connection without one."""

    reason: str
    body: str = ""
    location: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call: it is either forwarded or answered."""

    listener: str
    path: str = ""
    """The path with its query, as routes see it; empty for a connection."""

    host: str = ""
    table: str = ""
    virtual_host: str = ""
    rows: tuple[RowTrial, ...] = ()
    """Every row in the order in which Envoy tries them: the first that matches takes the request."""

    forward: ForwardedCall | None = None
    reply: DirectReply | None = None

    @property
    def row(self) -> RowTrial | None:
        return next((row for row in self.rows if row.matches), None)

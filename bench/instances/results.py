"""What a run measures with so many instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from bench.api import Times


@dataclass(frozen=True, slots=True)
class Percentiles:
    """In seconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Self:
        times = Times(sorted(seconds))
        return cls(times.at(0.5), times.at(0.99))


@dataclass(frozen=True, slots=True)
class PacedResult:
    """Of writes at the first instance that come one by one, each with a turn of its own. Seconds for each of them."""

    asked: float
    """Of the processor, of the first instance."""

    told: float | None
    """Of the processor, of each other instance; None without any."""

    database_cpu: float
    client: float
    """Of the processor, of who writes."""

    turn: float
    """That a turn takes."""

    answered: float
    """Until the median write is answered."""


@dataclass(frozen=True, slots=True)
class SteadyResult:
    """Of writes that come steadily at all instances, and edits among them that concern every proxy."""

    writes_a_second: float
    answered: Percentiles
    served: Percentiles
    """Of each write at each instance."""

    at_proxies: Percentiles
    """Of each edit at each proxy."""

    in_force: Percentiles
    """Of each edit, at the last proxy."""

    fed: Percentiles
    """Of each write on the feed of each instance, which pages read."""

    cpu: float
    """Processor seconds of an instance in a second, edits included."""

    database_cpu: float
    """Of the database in a second."""

    turns: float
    """Of an instance in a second."""


@dataclass(frozen=True, slots=True)
class InstancesResult:
    """What was measured with so many instances."""

    instances: int
    until_answered: float
    """Seconds until the last proxy of all instances had answered, in the median edit."""

    cpu: float
    """Processor seconds of an instance for an edit, its proxies included."""

    turn: float
    """Seconds that the turn of an edit takes."""

    bare_turn: float
    """The same of a write that concerns nobody, before a proxy is connected."""

    load_cpu: float
    """Processor seconds of all proxies of an instance, for an edit."""

    memory: float
    """MiB of an instance, the largest."""

    messages: Mapping[str, int]
    """To all proxies, by an edit."""

    transactions: float
    """In the database, for an edit."""

    idle: float
    """Transactions in a second without edits."""

    idle_cpu: float
    """Processor seconds of an instance in such a second."""

    idle_database_cpu: float
    """Of the database in such a second."""

    read_cpu: float
    """Of an instance in such a second, while somebody reads the feed of each."""

    writes_a_second: float
    """Of many clients at once."""

    database_cpu: float
    """Processor seconds of the database for one of these, with what all instances read of it."""

    cpu_of_a_write: float
    """Processor seconds of an instance for one of these, be it asked for it or only told of it."""

    connections: int
    """To the database after these, of all instances."""

    paced: PacedResult
    steady: SteadyResult

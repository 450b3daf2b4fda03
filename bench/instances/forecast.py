"""What the simulation says: first of what was measured, with the error, and then of more instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.instances.costs import Costs
from bench.instances.model import MODELLED
from bench.instances.results import InstancesResult, Percentiles
from bench.instances.simulation import Layout, Outcome, Simulation, Traffic
from bench.instances.stand import CLIENTS, EDIT_EVERY, PACE, Options

NETWORK: Final = 0.00025
"""Seconds from a machine to another one of the same place."""

RATES: Final = (20, 100, 200)
PROXIES: Final = (100, 1000)
"""Of each instance."""

LADDER: Final = (25, 50, 100, 200, 400, 800)
"""Writes a second, of which the most is looked for that are still served in time."""

IN_TIME: Final = 0.25
"""Seconds in which 99 of 100 writes have to be served by each instance."""

SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure that was measured, and what the simulation says of it. Times are in seconds."""

    name: str
    instances: int
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        return self.simulated / self.measured - 1


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is to be expected of so many instances, each on a machine of its own, as is the database."""

    instances: int
    proxies: int
    """Of each instance."""

    writes: float
    """In a second."""

    answered: Percentiles
    at_proxies: Percentiles
    """Until an edit is in force at a proxy."""

    is_kept_up: bool
    """Whether all writes and edits are in force soon after the last: else there are too many."""

    busiest: str
    share: float
    """Of the time in which that was busy."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The most writes in a second that are served in time, and what is busiest with as many as were tried beyond."""

    change: str
    """To the usual layout; empty: none."""

    instances: int
    writes: int
    busiest: str
    share: float


def comparisons(
    costs: Costs, results: Sequence[InstancesResult], options: Options, processors: int
) -> Iterator[Comparison]:
    """Of a machine that all share, as it is measured."""
    for result in results:
        layout = Layout(result.instances, options.proxies, shared=processors)
        for name, measured, simulated in _compared(costs, layout, result, options):
            yield Comparison(name, result.instances, measured, simulated)


def _compared(
    costs: Costs, layout: Layout, result: InstancesResult, options: Options
) -> Iterator[tuple[str, float, float]]:
    edited = simulated(costs, layout, Traffic(SECONDS, edit_every=EDIT_EVERY))
    yield "an edit, at the last proxy", result.until_answered, Percentiles.of(edited.in_force).p50
    paced = simulated(costs, layout, Traffic(SECONDS, PACE, is_even=True, asked=1))
    yield "a write alone, answered", result.paced.answered, Percentiles.of(paced.answered).p50
    at_once = simulated(costs, layout, Traffic(SECONDS / 2, clients=CLIENTS))
    yield "writes a second, as many as there can be", result.writes_a_second, at_once.writes_a_second
    traffic = Traffic(options.seconds, options.rate, edit_every=EDIT_EVERY, is_even=True)
    steady = simulated(costs, replace(layout, has_readers=True), traffic)
    yield "steadily: a write, answered, p50", result.steady.answered.p50, Percentiles.of(steady.answered).p50
    yield "steadily: a write, answered, p99", result.steady.answered.p99, Percentiles.of(steady.answered).p99
    yield "steadily: a write, served, p50", result.steady.served.p50, Percentiles.of(steady.served).p50
    yield "steadily: a write, served, p99", result.steady.served.p99, Percentiles.of(steady.served).p99
    yield "steadily: an edit, at a proxy, p50", result.steady.at_proxies.p50, Percentiles.of(steady.at_proxies).p50
    yield "steadily: an edit, at a proxy, p99", result.steady.at_proxies.p99, Percentiles.of(steady.at_proxies).p99
    yield "steadily: processor of an instance", result.steady.cpu, steady.instance_cpu
    yield "steadily: processor of the database", result.steady.database_cpu, steady.database_cpu


def forecasts(costs: Costs) -> Iterator[Forecast]:
    for instances in MODELLED:
        for proxies in PROXIES:
            for writes in RATES:
                outcome = simulated(costs, usual(instances, proxies), Traffic(SECONDS, writes, edit_every=2.0))
                yield Forecast(
                    instances,
                    proxies,
                    writes,
                    Percentiles.of(outcome.answered),
                    Percentiles.of(outcome.at_proxies),
                    outcome.is_kept_up,
                    outcome.busiest,
                    outcome.shares[outcome.busiest],
                )


def limits(costs: Costs) -> Iterator[Limit]:
    """Where it ends, and how far what would lift it lifts it."""
    for instances in MODELLED:
        layout = usual(instances, 100)
        yield _limit(costs, layout, "")
        yield _limit(costs, replace(layout, database=4 * layout.database), "four times the processors of the database")
        yield _limit(costs, replace(layout, pause=0.02), "instances ask at most every 20 ms")
        yield _limit(costs, replace(layout, statements=2), "a transaction of two round trips in place of five")
        yield _limit(replace(costs, disk=0.004), layout, "a disk that takes 4 ms for a commit")


def _limit(costs: Costs, layout: Layout, change: str) -> Limit:
    most = 0
    for writes in LADDER:
        outcome = simulated(costs, layout, Traffic(SECONDS / 2, writes))
        if not outcome.is_kept_up or Percentiles.of(outcome.served).p99 > IN_TIME:
            break
        most = writes
    return Limit(change, layout.instances, most, outcome.busiest, outcome.shares[outcome.busiest])


def usual(instances: int, proxies: int) -> Layout:
    return Layout(instances, proxies, network=NETWORK, has_readers=True)


def simulated(costs: Costs, layout: Layout, traffic: Traffic) -> Outcome:
    return Simulation(costs, layout, traffic).run()


def show(
    console: Console, compared: Sequence[Comparison], forecasts: Sequence[Forecast], limits: Sequence[Limit]
) -> None:
    table = Table(*("", "instances", "measured", "simulated", "error"), title="what was measured, simulated")
    for comparison in compared:
        values = f"{comparison.measured:.4g}", f"{comparison.simulated:.4g}", f"{comparison.error:+.0%}"
        table.add_row(comparison.name, str(comparison.instances), *values)
    console.print(table)
    names = [
        "instances",
        "proxies of each",
        "writes/s",
        "a write is answered, ms",
        "an edit is in force, ms",
        "busiest",
    ]
    table = Table(*names, title="simulated, p50 and p99: each instance and the database on a machine of its own")
    for of in forecasts:
        sizes = str(of.instances), str(of.proxies), f"{of.writes:g}"
        table.add_row(*sizes, _milliseconds(of.answered), _in_force(of), f"{of.busiest}, {of.share:.0%}")
    console.print(table)
    table = Table(*("instances", "", "writes/s in time", "then", "busy"), title="where it ends, simulated")
    for limit in limits:
        busy = f"{limit.share:.0%}"
        table.add_row(str(limit.instances), limit.change or "as it is", str(limit.writes), limit.busiest, busy)
    console.print(table)


def _in_force(of: Forecast) -> str:
    return _milliseconds(of.at_proxies) if of.is_kept_up else "never: too much"


def _milliseconds(times: Percentiles) -> str:
    return f"{times.p50 * 1000:.0f}, {times.p99 * 1000:.0f}"

"""The whole run: one to four instances, one after the other, then the model, the simulation, and what is promised."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.instances import forecast
from bench.instances.costs import Costs
from bench.instances.ground import Ground, ground
from bench.instances.model import MODELLED, Line, Model, ModelledCosts
from bench.instances.results import InstancesResult
from bench.instances.stand import InstancesStand, Options, database_cpu
from bench.serving.promises import Promise
from bench.serving.report import show_promises
from tests.support.postgres import PostgresServer, binaries, postgres_server

READS: Final = 4
"""Transactions that an edit may cost the database for each instance that follows."""

WRITES: Final = 4
"""And for the write itself."""

GROWS: Final = 1.5
"""By which factor an edit may cost an instance more beside others than alone."""


def run(options: Options) -> dict[str, Any]:
    """Measure on a server of our own, and print what was found."""
    console = Console(width=160)
    if binaries() is None:
        console.print("there is no PostgreSQL here: nothing was measured")
        return {"held": False}
    with postgres_server({}) as server, tempfile.TemporaryDirectory() as folder:
        by_themselves = asyncio.run(ground(server.new_url(), partial(database_cpu, server)))
        results = [_measured_with(server, Path(folder), count, options, console) for count in options.instances]
    model, kept = model_of(results), list(promises(results, options.proxies))
    _show(console, results, options)
    _show_costs(console, list(costs(results, model)))
    _show_lines(console, model)
    show_promises(console, kept)
    return {
        "held": all(promise.held for promise in kept),
        "measured": [asdict(result) for result in results],
        "model": asdict(model),
        "ground": asdict(by_themselves),
        "options": asdict(options),
        **_simulated(console, results, by_themselves, options),
    }


def simulate(kept: Path) -> dict[str, Any]:
    """Simulate with what a run has kept (`--json`), and measure nothing."""
    data = json.loads(kept.read_text())["instances"]
    results = msgspec.convert(data["measured"], list[InstancesResult])
    by_themselves, options = msgspec.convert(data["ground"], Ground), msgspec.convert(data["options"], Options)
    return {"held": True, **_simulated(Console(width=160), results, by_themselves, options)}


def _simulated(
    console: Console, results: Sequence[InstancesResult], by_themselves: Ground, options: Options
) -> dict[str, Any]:
    """What the simulation says, if one instance was measured and another number: these say what things cost."""
    if len(results) < 2 or results[0].instances != 1:
        console.print("to simulate, one instance has to be measured and another number of them")
        return {}
    costs_of = Costs.of(results, by_themselves, options)
    processors = os.cpu_count() or 1
    compared = list(forecast.comparisons(costs_of, results, options, processors))
    forecasts, limits = list(forecast.forecasts(costs_of)), list(forecast.limits(costs_of))
    forecast.show(console, compared, forecasts, limits)
    return {
        "processors": processors,
        "costs": asdict(costs_of),
        "compared": [asdict(comparison) for comparison in compared],
        "forecasts": [asdict(of) for of in forecasts],
        "limits": [asdict(limit) for limit in limits],
    }


def _measured_with(
    server: PostgresServer, folder: Path, instances: int, options: Options, console: Console
) -> InstancesResult:
    console.print(f"measuring {instances}, of at most {max(options.instances)} instances")
    return InstancesStand(server, folder, instances, options).run()


def model_of(results: Sequence[InstancesResult]) -> Model:
    """Lines through what was measured."""
    return Model(
        database_ms=Line.through({result.instances: result.database_cpu * 1000 for result in results}),
        transactions=Line.through({result.instances: result.transactions for result in results}),
        idle=Line.through({result.instances: result.idle for result in results}),
        connections=Line.through({result.instances: result.connections for result in results}),
    )


def costs(results: Sequence[InstancesResult], model: Model) -> Iterator[ModelledCosts]:
    """What was measured, and the model for what was not."""
    measured: Mapping[int, ModelledCosts] = {result.instances: _measured(result) for result in results}
    for instances in sorted({*measured, *MODELLED}):
        yield measured.get(instances) or model.costs(instances)


def _measured(result: InstancesResult) -> ModelledCosts:
    values = result.database_cpu * 1000, result.transactions, result.idle, result.connections
    return ModelledCosts(result.instances, True, *values)  # noqa: FBT003  # as the field is named


def promises(results: Sequence[InstancesResult], proxies: int) -> Iterator[Promise]:
    """What an edit costs, however many instances there are."""
    alone = results[0].cpu
    for result in results:
        of, each = f"{result.instances} instances", {"routes": result.instances * proxies}
        sent = ", ".join(f"{number} {kind}" for kind, number in result.messages.items())
        yield Promise(f"{of}: each proxy is sent one route table", sent, result.messages == each)
        most = WRITES + READS * result.instances
        held = result.transactions <= most
        yield Promise(f"{of}: at most {most} transactions for an edit", f"{result.transactions:.1f}", held)
        times = result.cpu / alone
        yield Promise(f"{of}: an edit costs each at most {GROWS:g} times", f"{times:.2f}", times <= GROWS)


def quick(options: Options) -> Options:
    """A small run, to see that all of it works."""
    return replace(options, instances=(1, 2), proxies=10, services=10, edits=3, writes=40, seconds=3)


def _show(console: Console, results: Sequence[InstancesResult], options: Options) -> None:
    title = f"measured: {options.proxies} proxies of each instance, {options.services} services"
    names = ["instances", "edit ms", "CPU ms of each", "transactions", "MiB of each", "idle: transactions/s"]
    names += ["idle: CPU ms/s of each", "writes/s", "CPU ms of one for each", "for the database", "connections"]
    table = Table(*names, title=title, title_justify="left")
    for result in results:
        table.add_row(
            str(result.instances),
            f"{result.until_answered * 1000:.0f}",
            f"{result.cpu * 1000:.1f}",
            f"{result.transactions:.1f}",
            f"{result.memory:.0f}",
            f"{result.idle:.1f}",
            f"{result.idle_cpu * 1000:.1f}",
            f"{result.writes_a_second:.0f}",
            f"{result.cpu_of_a_write * 1000:.2f}",
            f"{result.database_cpu * 1000:.2f}",
            str(result.connections),
        )
    console.print(table)


def _show_costs(console: Console, all_costs: Sequence[ModelledCosts]) -> None:
    names = ["instances", "", "database ms of a write", "writes/s of a processor", "transactions of an edit"]
    names += ["idle: transactions/s", "connections"]
    table = Table(*names, title="what more instances cost", title_justify="left")
    for of in all_costs:
        values = of.database_ms, of.writes_a_second, of.transactions, of.idle, of.connections
        known = "measured" if of.is_measured else "modelled"
        table.add_row(str(of.instances), known, *(f"{value:.1f}" for value in values))
    console.print(table)


def _show_lines(console: Console, model: Model) -> None:
    for name, line in (
        ("database ms", model.database_ms),
        ("transactions", model.transactions),
        ("idle", model.idle),
        ("connections", model.connections),
    ):
        worst = f"{line.worst:.0%} off at the most"
        console.print(f"model of {name}: {line.fixed:.2f} and {line.of_each:.2f} for each instance, {worst}")

"""The whole run: one to four instances, one after the other, then the model and what is promised."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.instances.model import MODELLED, Costs, Line, Model
from bench.instances.stand import InstancesResult, InstancesStand, Options
from bench.serving.promises import Promise
from bench.serving.report import show_promises
from tests.support.postgres import PostgresServer, binaries, postgres_server

READS: Final = 5
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


def costs(results: Sequence[InstancesResult], model: Model) -> Iterator[Costs]:
    """What was measured, and the model for what was not."""
    measured: Mapping[int, Costs] = {result.instances: _measured(result) for result in results}
    for instances in sorted({*measured, *MODELLED}):
        yield measured.get(instances) or model.costs(instances)


def _measured(result: InstancesResult) -> Costs:
    values = result.database_cpu * 1000, result.transactions, result.idle, result.connections
    return Costs(result.instances, True, *values)  # noqa: FBT003  # as the field is named


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
    return replace(options, instances=(1, 2), proxies=10, services=10, edits=3, writes=40)


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


def _show_costs(console: Console, all_costs: Sequence[Costs]) -> None:
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

"""The whole run: both kinds of streams at one size, then how the cost grows with the size."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.serving import report
from bench.serving.gateways import GatewayResult, GatewayStand, gateway_promises
from bench.serving.gateways import as_data as gateway_as_data
from bench.serving.processes import ControlPlane, Worker
from bench.serving.promises import Promise, growth, promises
from bench.serving.scenarios import ROUTE, Scenario, scenarios
from bench.serving.stand import ScenarioResult, Stand, Step
from bench.serving.witnesses import Witnesses, binary

PARTS: Final = ("delta", "sotw", "growth", "gateways")
_FOLDER: Final = Path(".bench")
_STEPS: Final = 3  # the mesh, the cold start, the way back
_STEPS_OF_A_SIZE: Final = 4
_STEPS_OF_GATEWAYS: Final = 12
_WIDTH: Final = 150


@dataclass(frozen=True, slots=True)
class Options:
    proxies: int = 1000
    services: int = 1000
    sizes: tuple[int, ...] = (100, 300, 1000)
    """The numbers of proxies and of services in the table of growth."""

    hostnames: int = 1000
    """How many each of the gateways has."""

    parts: tuple[str, ...] = PARTS
    witnesses: int = 3


def run(options: Options) -> dict[str, Any]:
    console = _console()
    kept: list[Promise] = []
    results: list[ScenarioResult] = []
    grown: dict[str, Any] = {}
    with _stepping(console, options) as step:
        for part in ("delta", "sotw"):
            if part in options.parts:
                part_results, witnessed = _both(options, step, delta=part == "delta")
                report.show(console, part_results, f"{options.proxies} proxies x {options.services} services, {part}")
                results += part_results
                kept += witnessed
        if "growth" in options.parts:
            grown = _growth(options, step)
        at_gateways = _gateways(options, step) if "gateways" in options.parts else []
    kept = [*promises(results, options.proxies), *kept]
    if at_gateways:
        report.show_gateways(console, at_gateways, options.hostnames)
        kept += gateway_promises(at_gateways, options.hostnames)
    for of, costs in grown.items():
        report.show_growth(console, costs, of, "s")
        kept += growth(costs, of)
    report.show_promises(console, kept)
    return _written(console, options, _Figures(results, grown, at_gateways), kept)


@dataclass(frozen=True, slots=True)
class _Figures:
    """Everything that was measured."""

    results: list[ScenarioResult]
    grown: dict[str, Any]
    at_gateways: list[GatewayResult]


def _gateways(options: Options, step: Step) -> list[GatewayResult]:
    """What edits cost gateways. Without an Envoy there is nobody to measure."""
    envoy = binary()
    if envoy is None:
        return []
    with _folder() as folder:
        return GatewayStand(folder, envoy, options.hostnames, step).run()


def _both(options: Options, step: Step, *, delta: bool) -> tuple[list[ScenarioResult], list[Promise]]:
    """All scenarios on one kind of stream, and a comparison with real Envoys."""
    witnessed: list[Promise] = []
    envoy = binary()
    with _folder() as folder:

        def ask(plane: ControlPlane, load: Worker) -> None:
            if envoy is not None and options.witnesses > 0:
                differ = Witnesses(envoy, options.witnesses, delta).disagreements(plane, load, folder)
                says = f"{options.witnesses} real Envoys have the same, {'delta' if delta else 'state of the world'}"
                witnessed.append(Promise(says, ", ".join(differ) or "the same", not differ))

        stand = Stand(folder, options.proxies, options.services, delta=delta, step=step)
        return stand.run(scenarios(options.services), at_the_end=ask), witnessed


def _growth(options: Options, step: Step) -> dict[str, dict[tuple[int, int], float]]:
    cold: dict[tuple[int, int], float] = {}
    edit: dict[tuple[int, int], float] = {}
    for proxies, services in product(options.sizes, options.sizes):
        of_size = partial(_named, step, f"{proxies} x {services}")
        of_size("")
        with _folder() as folder:
            stand = Stand(folder, proxies, services, delta=True, step=of_size)
            started, edited = stand.run(_routes_only(services), again=False)
        cold[proxies, services], edit[proxies, services] = started.cpu, edited.took
    return {"the processor time of a cold start": cold, "the time of an edit of a route": edit}


def _named(step: Step, size: str, step_name: str) -> None:
    step(f"{size} {step_name}")


def _routes_only(services: int) -> Iterator[Scenario]:
    return (scenario for scenario in scenarios(services) if scenario.name == ROUTE)


def _console() -> Console:
    """A console wide enough for the table, also if the output is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="koguma-bench-") as name:
        yield Path(name)


@contextmanager
def _stepping(console: Console, options: Options) -> Iterator[Step]:
    """A progress bar that names the current step."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    steps = _STEPS + len(list(scenarios(options.services)))
    total = sum(part in {"delta", "sotw"} for part in options.parts) * steps
    total += _STEPS_OF_GATEWAYS if "gateways" in options.parts else 0
    total += len(options.sizes) ** 2 * _STEPS_OF_A_SIZE if "growth" in options.parts else 0
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)

        def step(description: str) -> None:
            progress.update(task, description=description, advance=1)

        yield step


def _written(
    console: Console,
    options: Options,
    figures: _Figures,
    all_promises: list[Promise],
) -> dict[str, Any]:
    data = {
        "proxies": options.proxies,
        "services": options.services,
        "scenarios": [report.as_data(result) for result in figures.results],
        "gateways": [gateway_as_data(result) for result in figures.at_gateways],
        "growth": {
            of: [{"proxies": size[0], "services": size[1], "seconds": cost} for size, cost in costs.items()]
            for of, costs in figures.grown.items()
        },
        "promises": [
            {"says": promise.says, "found": promise.measured, "held": promise.held} for promise in all_promises
        ],
        "held": all(promise.held for promise in all_promises),
    }
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / f"serving-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(data, indent=1))
    console.print(f"Written to {path}")
    return data

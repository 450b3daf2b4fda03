"""Results as tables for people and as data for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.serving.edge import ROUTES
from bench.serving.gateways import GatewayResult
from bench.serving.promises import Costs, Promise
from bench.serving.stand import Measurement, ScenarioResult


def show(console: Console, results: Sequence[ScenarioResult], title: str) -> None:
    table = Table(
        title=title,
        caption="When half of the proxies, 99 of 100 and the last had answered. Of several edits the middle one. "
        "MiB is the peak of memory, built the fragments that were, and at most so late was the event loop: "
        "by the clock, and by the processor time of its own callbacks.",
    )
    table.add_column("scenario", no_wrap=True)
    table.add_column("stream")
    times = ("p50", "p99", "last ms", "floor", "ratio", "cpu s", "floor")
    columns = (*times, "messages", "resources", "KiB", "built", "MiB", "late ms", "own ms")
    for name in columns:
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(result.scenario, "delta" if result.delta else "SotW", *_cells(result))
    console.print(table)


def _cells(result: ScenarioResult) -> Iterable[str]:
    middle = result.middle
    yield _milliseconds(percentile(middle, 0.50))
    yield _milliseconds(percentile(middle, 0.99))
    yield _milliseconds(result.took)
    yield _milliseconds(result.took_on_the_floor)
    yield "" if result.ratio is None else f"{result.ratio:.2f}"
    yield f"{result.cpu:.2f}"
    yield f"{result.cpu_on_the_floor:.2f}" if result.floor else ""
    yield f"{sum(middle.messages.values()):,}"
    yield f"{sum(middle.resources.values()):,}"
    yield f"{middle.size / 1024:,.0f}"
    yield "" if middle.fragments is None else f"{middle.fragments:.0f}"
    yield f"{middle.peak:.0f}"
    yield f"{result.lag * 1000:g}"
    yield f"{result.own_lag * 1000:g}"


def show_growth(console: Console, costs: Costs, of: str, unit: str) -> None:
    sizes = [sorted({size[axis] for size in costs}) for axis in (0, 1)]
    table = Table(title=f"{of}, {unit}")
    table.add_column("proxies", justify="right")
    for services in sizes[1]:
        table.add_column(f"{services} services", justify="right")
    for proxies in sizes[0]:
        table.add_row(str(proxies), *(f"{costs[proxies, services]:.3g}" for services in sizes[1]))
    console.print(table)


def show_gateways(console: Console, results: Sequence[GatewayResult], hostnames: int) -> None:
    table = Table(
        title=f"gateways with {hostnames:,} hostnames and {hostnames * ROUTES:,} routes",
        caption="Until a real Envoy had answered all that an edit sends it, what of that Envoy needed itself, and the "
        "rest: of several edits the middle one. At last the longest callback of our event loop, by processor time. "
        "The sidecar is in the same mesh.",
    )
    table.add_column("proxy", no_wrap=True)
    table.add_column("scenario", no_wrap=True)
    for name in ("ms", "Envoy's", "ours", "resources", "KiB", "built", "own ms"):
        table.add_column(name, justify="right")
    for result in results:
        middle = result.middle
        times = (_milliseconds(seconds) for seconds in (middle.took, middle.of_envoy, middle.own))
        counts = f"{sum(middle.resources.values()):,}", f"{middle.size / 1024:,.1f}", f"{middle.fragments:,.0f}"
        own_lag = max(cost.own_lag for cost in result.costs)
        table.add_row(result.proxy, result.scenario, *times, *counts, f"{own_lag * 1000:g}")
    console.print(table)


def show_promises(console: Console, promises: Iterable[Promise]) -> None:
    table = Table(title="what is promised")
    table.add_column("")
    table.add_column("promise", no_wrap=True)
    table.add_column("found")
    for promise in promises:
        table.add_row("[green]✓[/]" if promise.held else "[red]✗[/]", promise.says, promise.measured)
    console.print(table)


def as_data(result: ScenarioResult) -> dict[str, Any]:
    return {
        "scenario": result.scenario,
        "stream": "delta" if result.delta else "sotw",
        "p50": percentile(result.middle, 0.50),
        "p99": percentile(result.middle, 0.99),
        "last": result.took,
        "floor": result.took_on_the_floor,
        "ratio": result.ratio,
        "cpu": result.cpu,
        "floor_cpu": result.cpu_on_the_floor,
        "each": [each_as_data(measured) for measured in result.measured],
    }


def each_as_data(measured: Measurement) -> dict[str, Any]:
    return {
        "last": measured.took,
        "proxies": len(measured.last),
        "messages": dict(measured.messages),
        "resources": dict(measured.resources),
        "removed": measured.removed,
        "bytes": measured.size,
        "cpu": measured.cpu,
        "peak": measured.peak,
        "fragments": measured.fragments,
        "lag": measured.lag,
        "own_lag": measured.own_lag,
    }


def percentile(measured: Measurement, share: float) -> float | None:
    """The time until this share of the affected proxies had answered."""
    return measured.last[min(int(len(measured.last) * share), len(measured.last) - 1)] if measured.last else None


def _milliseconds(seconds: float | None) -> str:
    return f"{seconds * 1000:,.0f}" if seconds is not None and seconds > 0 else ""

"""Promises about costs, with the measured values. Times are ratios to the floor of the same run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from bench.serving.mesh import FEW as FEW_PROXIES
from bench.serving.scenarios import AGAIN, COLD, ENDPOINT, FEW, ROUTE, SAME, UNRELATED
from bench.serving.stand import ScenarioResult

COLD_RATIO: Final = 3.0
PEAK: Final = 600.0  # MiB
EDIT_RATIO, EDIT_MORE = 2.0, 0.050
EXPONENT: Final = 1.1
LAG: Final = 0.05  # a bound of the histogram

Costs = Mapping[tuple[int, int], float]
"""Costs by the number of proxies and the number of services."""


@dataclass(frozen=True, slots=True)
class Promise:
    says: str
    measured: str
    held: bool


def promises(results: Sequence[ScenarioResult], proxies: int) -> Iterator[Promise]:
    for result in results:
        kind = "delta" if result.delta else "state of the world"
        for promise in _of(result, proxies):
            yield Promise(f"{result.scenario}, {kind}: {promise.says}", promise.measured, promise.held)
    if results:
        yield on_time("", max(result.own_lag for result in results), max(result.lag for result in results))


def on_time(scenario: str, own_lag: float, lag: float) -> Promise:
    """By the loop's own processor time: what other programs take says nothing about us."""
    says = f"{scenario}the event loop's callbacks keep it at most {LAG * 1000:g} ms"
    return Promise(says, f"{own_lag * 1000:g} ms ({lag * 1000:g} by the clock)", own_lag <= LAG)


def _of(result: ScenarioResult, proxies: int) -> Iterator[Promise]:
    if any(measured.late for measured in result.measured):
        yield Promise("everybody hears of it", "not everybody did", held=False)
    if result.scenario == COLD:
        ratio = result.ratio or 0.0
        yield Promise(f"within {COLD_RATIO:g} x the floor", f"{ratio:.2f} x", ratio <= COLD_RATIO)
        yield Promise(f"less than {PEAK:g} MiB", f"{result.middle.peak:.0f} MiB", result.middle.peak < PEAK)
    elif result.scenario in {ROUTE, ENDPOINT}:
        yield _soon(result)
        kind = "routes" if result.scenario == ROUTE else "endpoints"
        yield _sends(result, Counter({kind: proxies}), f"one resource of {kind} to each, and nothing else")
        yield from _built(result)
    elif result.scenario == FEW:
        yield _sends(
            result, Counter({"routes": min(FEW_PROXIES, proxies)}), "one message to each of those, and no other"
        )
    elif result.scenario in {UNRELATED, SAME}:
        yield _sends(result, Counter(), "nothing is sent")
    elif result.scenario == AGAIN:
        resources = sum(result.middle.resources.values())
        yield Promise("no resource is sent", str(resources), resources == 0)


def _soon(result: ScenarioResult) -> Promise:
    bound = EDIT_RATIO * result.took_on_the_floor + EDIT_MORE
    says = f"within {EDIT_RATIO:g} x the floor and {EDIT_MORE * 1000:.0f} ms"
    return Promise(says, f"{result.took * 1000:.0f} of {bound * 1000:.0f} ms", result.took <= bound)


def _sends(result: ScenarioResult, expected: Counter[str], says: str) -> Promise:
    sent = [+measured.resources for measured in result.measured]
    wrong = [resources for resources in sent if resources != expected]
    counted = (wrong or sent)[0]
    counts_text = ", ".join(f"{number} {kind}" for kind, number in counted.items()) or "nothing"
    alone = all(measured.messages == measured.resources for measured in result.measured)
    return Promise(says, counts_text, not wrong and alone)


def _built(result: ScenarioResult) -> Iterator[Promise]:
    built = [measured.fragments for measured in result.measured if measured.fragments is not None]
    if built:
        yield Promise("at most one fragment is built", f"{max(built):.0f}", max(built) <= 1)


def growth(costs: Costs, of: str) -> Iterator[Promise]:
    for axis, name in enumerate(("proxies", "services")):
        if (power := exponent(costs, axis)) is not None:
            says = f"{of} grows with the {name} to a power of at most {EXPONENT:g}"
            yield Promise(says, f"{power:.2f}", power <= EXPONENT)


def exponent(costs: Costs, axis: int) -> float | None:
    """The exponent with which costs grow with one of the sizes; every pair of sizes must have been measured."""
    sizes = [math.log(size[axis]) for size in costs]
    logs = [math.log(cost) for cost in costs.values()]
    spread = _together(sizes, sizes)
    return _together(sizes, logs) / spread if spread > 0 else None


def _together(xs: Iterable[float], ys: Iterable[float]) -> float:
    xs, ys = [*xs], [*ys]
    return sum((x - mean(xs)) * (y - mean(ys)) for x, y in zip(xs, ys, strict=True))

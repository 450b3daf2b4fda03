"""What is promised, beside what was found. Times are ratios to the floor of the same run; counts are counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from bench.serving.mesh import FEW as FEW_PROXIES
from bench.serving.scenarios import AGAIN, COLD, ENDPOINT, FEW, ROUTE, SAME, UNRELATED
from bench.serving.stand import Found

COLD_RATIO: Final = 3.0
PEAK: Final = 600.0  # MiB
EDIT_RATIO, EDIT_MORE = 2.0, 0.050
EXPONENT: Final = 1.1
LAG: Final = 0.05  # a bound of the histogram

Costs = Mapping[tuple[int, int], float]
"""What something cost, by the number of proxies and of services."""


@dataclass(frozen=True, slots=True)
class Promise:
    says: str
    found: str
    held: bool


def promises(found: Sequence[Found], proxies: int) -> Iterator[Promise]:
    for one in found:
        kind = "delta" if one.delta else "state of the world"
        for promise in _of(one, proxies):
            yield Promise(f"{one.scenario}, {kind}: {promise.says}", promise.found, promise.held)
    if found:
        lag = max(one.lag for one in found)
        yield Promise(f"the event loop is at most {LAG * 1000:g} ms late", f"{lag * 1000:g} ms", lag <= LAG)


def _of(one: Found, proxies: int) -> Iterator[Promise]:
    if any(measured.late for measured in one.measured):
        yield Promise("everybody hears of it", "not everybody did", held=False)
    if one.scenario == COLD:
        ratio = one.ratio or 0.0
        yield Promise(f"within {COLD_RATIO:g} x the floor", f"{ratio:.2f} x", ratio <= COLD_RATIO)
        yield Promise(f"less than {PEAK:g} MiB", f"{one.one.peak:.0f} MiB", one.one.peak < PEAK)
    elif one.scenario in {ROUTE, ENDPOINT}:
        yield _soon(one)
        kind = "routes" if one.scenario == ROUTE else "endpoints"
        yield _sends(one, Counter({kind: proxies}), f"one resource of {kind} to each, and nothing else")
        yield from _built(one)
    elif one.scenario == FEW:
        yield _sends(one, Counter({"routes": min(FEW_PROXIES, proxies)}), "one message to each of those, and no other")
    elif one.scenario in {UNRELATED, SAME}:
        yield _sends(one, Counter(), "nothing is sent")
    elif one.scenario == AGAIN:
        resources = sum(one.one.resources.values())
        yield Promise("no resource is sent", str(resources), resources == 0)


def _soon(one: Found) -> Promise:
    bound = EDIT_RATIO * one.took_on_the_floor + EDIT_MORE
    says = f"within {EDIT_RATIO:g} x the floor and {EDIT_MORE * 1000:.0f} ms"
    return Promise(says, f"{one.took * 1000:.0f} of {bound * 1000:.0f} ms", one.took <= bound)


def _sends(one: Found, wanted: Counter[str], says: str) -> Promise:
    sent = [+measured.resources for measured in one.measured]
    wrong = [resources for resources in sent if resources != wanted]
    counted = (wrong or sent)[0]
    found = ", ".join(f"{number} {kind}" for kind, number in counted.items()) or "nothing"
    alone = all(measured.messages == measured.resources for measured in one.measured)
    return Promise(says, found, not wrong and alone)


def _built(one: Found) -> Iterator[Promise]:
    built = [measured.fragments for measured in one.measured if measured.fragments is not None]
    if built:
        yield Promise("at most one fragment is built", f"{max(built):.0f}", max(built) <= 1)


def growth(costs: Costs, of: str) -> Iterator[Promise]:
    for axis, name in enumerate(("proxies", "services")):
        if (power := exponent(costs, axis)) is not None:
            says = f"{of} grows with the {name} to a power of at most {EXPONENT:g}"
            yield Promise(says, f"{power:.2f}", power <= EXPONENT)


def exponent(costs: Costs, axis: int) -> float | None:
    """By what power of one of the sizes the cost grows, where every pair of sizes was measured."""
    sizes = [math.log(size[axis]) for size in costs]
    logs = [math.log(cost) for cost in costs.values()]
    spread = _together(sizes, sizes)
    return _together(sizes, logs) / spread if spread > 0 else None


def _together(some: Iterable[float], others: Iterable[float]) -> float:
    some, others = [*some], [*others]
    return sum((one - mean(some)) * (other - mean(others)) for one, other in zip(some, others, strict=True))

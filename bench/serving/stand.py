"""`Stand`: measures one mesh on one kind of stream, on a control plane and on the floor, each with its own proxies.

The floor repeats each measurement right after the control plane: a shared machine may be half as fast a minute later.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.serving import mesh
from bench.serving.processes import ControlPlane, Worker
from bench.serving.scenarios import AGAIN, COLD, Edit, Scenario

_QUIET: Final = 0.2  # seconds without a message, after which no more is expected
_QUIET_IF_NOBODY: Final = 0.6
_WITHIN: Final = 90.0
_FRAGMENTS: Final = "koguma_fragments_built_total"
_LAG: Final = "event_loop_lag_seconds"
OWN_LAG: Final = "event_loop_own_lag_seconds"


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measurement of one edit, of a cold start or of a restart. Times are in seconds from its beginning."""

    last: tuple[float, ...]
    """When each affected proxy gave its last answer."""

    messages: Counter[str]
    resources: Counter[str]
    removed: int
    size: int
    late: bool
    """Whether too few proxies were reached in time."""

    cpu: float = 0.0
    peak: float = 0.0
    fragments: float | None = None
    lag: float = 0.0
    """The greatest delay of the control plane's event loop by the clock, as a bound of its histogram."""

    own_lag: float = 0.0
    """The same by the processor time of the loop's thread: what other programs took is not in it."""

    @property
    def took(self) -> float:
        return max(self.last, default=0.0)


@dataclass(slots=True)
class ScenarioResult:
    """All measurements of a scenario: on the control plane, and on the floor."""

    scenario: str
    delta: bool
    measured: list[Measurement] = field(default_factory=list)
    floor: list[Measurement] = field(default_factory=list)

    @property
    def took(self) -> float:
        """The time until the last answer of the last proxy, in the median edit."""
        return median(measurement.took for measurement in self.measured)

    @property
    def took_on_the_floor(self) -> float:
        return median(measurement.took for measurement in self.floor) if self.floor else 0.0

    @property
    def ratio(self) -> float | None:
        return self.took / self.took_on_the_floor if self.took_on_the_floor > 0 else None

    @property
    def cpu(self) -> float:
        """Seconds of processor time of the control plane for one edit."""
        return sum(measurement.cpu for measurement in self.measured) / len(self.measured)

    @property
    def cpu_on_the_floor(self) -> float:
        return sum(measurement.cpu for measurement in self.floor) / len(self.floor) if self.floor else 0.0

    @property
    def lag(self) -> float:
        return max(measurement.lag for measurement in self.measured)

    @property
    def own_lag(self) -> float:
        return max(measurement.own_lag for measurement in self.measured)

    @property
    def middle(self) -> Measurement:
        """The edit with the median time."""
        return sorted(self.measured, key=lambda measurement: measurement.took)[len(self.measured) // 2]


@dataclass(frozen=True, slots=True)
class PlaneState:
    """The counters of the control plane before an edit."""

    cpu: float
    metrics: Mapping[str, float]


Step = Callable[[str], None]
AtTheEnd = Callable[[ControlPlane, Worker], None]


class MeasuredPlane:
    """A control plane with proxies of its own, and what it takes to serve these."""

    def __init__(self, plane: ControlPlane, load: Worker, proxies: int) -> None:
        self.plane = plane
        self.load = load
        self._proxies = proxies

    def cold(self) -> Measurement:
        """All proxies connect, and none of them has anything."""
        self.plane.until_idle()
        began, state_before = self.load.do("prepare")["now"], self.state()
        self.load.do("connect", port=self.plane.ads_port)
        settled = self.load.do("settle", wants="ready", least=self._proxies, quiet=_QUIET, within=_WITHIN)
        return self.measured(settled, began, state_before)

    def edit(self, edit: Edit, least: int, *, takes_turns: bool = False) -> Measurement:
        began, state_before = self.begin()
        edit(self.plane)
        if takes_turns:
            self.plane.until_idle()
        quiet = _QUIET if least > 0 else _QUIET_IF_NOBODY
        settled = self.load.do("settle", wants="answered", least=least, quiet=quiet, within=_WITHIN)
        return self.measured(settled, began, state_before)

    def again(self) -> Measurement:
        """Restart the control plane; all proxies reconnect with the resources that they have."""
        self.load.do("disconnect")
        self.plane.stop()
        self.plane.start()
        self.plane.until_idle()
        began, state_before = self.load.do("prepare")["now"], self.state()
        self.load.do("connect", port=self.plane.ads_port)
        at_rest = self.plane.until_idle()
        settled = self.load.do("settle", wants="ready", least=self._proxies, quiet=_QUIET_IF_NOBODY, within=_WITHIN)
        return self.measured({**settled, "last": [at_rest]}, began, state_before)

    def begin(self) -> tuple[float, PlaneState]:
        """Start counting, when the control plane is idle. Returns when that was, and its counters then."""
        self.plane.until_idle(quiet=0.1)
        state = self.state()
        return self.load.do("begin")["now"], state

    def state(self) -> PlaneState:
        self.plane.forget_peak()
        metrics = self.plane.metrics()
        return PlaneState(self.plane.cpu, metrics)

    def measured(self, settled: dict[str, Any], began: float, state_before: PlaneState) -> Measurement:
        spent, peak = self.plane.cpu - state_before.cpu, self.plane.peak
        metrics = self.plane.metrics()
        fragments = metrics[_FRAGMENTS] - state_before.metrics[_FRAGMENTS]
        lag, own_lag = (greatest(name, state_before.metrics, metrics) for name in (_LAG, OWN_LAG))
        return replace(_measured(settled, began, cpu=spent), peak=peak, fragments=fragments, lag=lag, own_lag=own_lag)


def load_of(folder: Path, name: str, proxies: int, *, delta: bool) -> Worker:
    """A process with so many proxies."""
    worker = Worker("bench.serving.load", log=folder / f"{name}.log")
    make(worker, proxies, delta=delta)
    return worker


def make(load: Worker, proxies: int, *, delta: bool) -> None:
    """Have so many proxies that have nothing."""
    load.do("make", names=[f"{mesh.MESH}.{mesh.proxy_name(number)}" for number in range(proxies)], delta=delta)


class Stand:
    def __init__(self, folder: Path, proxies: int, services: int, *, delta: bool, step: Step = lambda _: None) -> None:
        self._folder = folder
        self._proxies = proxies
        self._services = services
        self._delta = delta
        self._step = step

    def run(
        self, scenarios: Iterable[Scenario], *, again: bool = True, at_the_end: AtTheEnd | None = None
    ) -> list[ScenarioResult]:
        """Measure a cold start, the scenarios and a restart. All but the restart are repeated on the floor."""
        self._step("the mesh")
        store = f"sqlite:///{self._folder}/koguma.db"
        mesh.fill(store, mesh.documents(self._proxies, self._services))
        with ExitStack() as stack:
            plane = stack.enter_context(ControlPlane(store, self._folder / "control-plane.log"))
            served = MeasuredPlane(plane, stack.enter_context(self._load("load")), self._proxies)
            floor = Floor(
                stack.enter_context(Worker("bench.serving.floor", log=self._folder / "floor.log")),
                stack.enter_context(self._load("load-of-the-floor")),
                self._folder / "recorded",
            )
            results = [self._cold(served, floor)]
            results += [self._scenario(served, floor, scenario) for scenario in scenarios]
            if again:
                self._step(AGAIN)
                results.append(ScenarioResult(AGAIN, self._delta, [served.again()]))
            if at_the_end is not None:
                at_the_end(plane, served.load)
        return results

    def _load(self, name: str) -> Worker:
        return load_of(self._folder, name, self._proxies, delta=self._delta)

    def _cold(self, served: MeasuredPlane, floor: Floor) -> ScenarioResult:
        self._step(COLD)
        measured = served.cold()
        floor.learn(served.load, COLD)
        return ScenarioResult(COLD, self._delta, [measured], [floor.cold(self._proxies)])

    def _scenario(self, served: MeasuredPlane, floor: Floor, scenario: Scenario) -> ScenarioResult:
        self._step(scenario.name)
        result = ScenarioResult(scenario.name, self._delta)
        least = scenario.hears(self._proxies)
        if scenario.first is not None:
            served.edit(scenario.first, least)
        for number, edit in enumerate(scenario.edits):
            measured = served.edit(edit, least, takes_turns=scenario.takes_turns)
            floor.learn(served.load, name := f"{scenario.name} {number}")
            result.measured.append(measured)
            result.floor.append(floor.push(name, len(measured.last)))
        return result


class Floor:
    """A server that only sends recorded bytes, with proxies of its own."""

    def __init__(self, server: Worker, load: Worker, recorded: Path) -> None:
        self._server = server
        self._load = load
        self._recorded = recorded
        self._port = server.hear()["port"]

    def learn(self, load: Worker, name: str) -> None:
        """Load what the other proxies received since they began, under a name."""
        load.do("record", name=name)
        load.do("write", path=str(self._recorded))
        self._server.tell(str(self._recorded))

    def cold(self, proxies: int) -> Measurement:
        self._server.tell(COLD)
        began, spent = self._load.do("prepare")["now"], self._server.cpu
        self._load.do("connect", port=self._port)
        settled = self._load.do("settle", wants="ready", least=proxies, quiet=_QUIET, within=_WITHIN)
        return _measured(settled, began, cpu=self._server.cpu - spent)

    def push(self, name: str, least: int) -> Measurement:
        began, spent = self._load.do("begin")["now"], self._server.cpu
        self._server.tell(name)
        quiet = _QUIET if least > 0 else 0.0
        settled = self._load.do("settle", wants="answered", least=least, quiet=quiet, within=_WITHIN)
        return _measured(settled, began, cpu=self._server.cpu - spent)


def greatest(histogram: str, metrics_before: Mapping[str, float], metrics_after: Mapping[str, float]) -> float:
    """The bound of the highest bucket of a histogram that has grown."""
    bucket = re.compile(rf'koguma_{histogram}_bucket\{{le="(.+)"\}}')
    bounds = {float(match[1]): name for name in metrics_after if (match := bucket.fullmatch(name))}
    grown = {bound: metrics_after[name] - metrics_before[name] for bound, name in sorted(bounds.items())}
    return min(bound for bound, count in grown.items() if count == grown[math.inf])


def _measured(settled: dict[str, Any], began: float, cpu: float = 0.0) -> Measurement:
    return Measurement(
        last=tuple(sorted(last - began for last in settled["last"])),
        messages=Counter(settled["messages"]),
        resources=Counter(settled["resources"]),
        removed=settled["removed"],
        size=settled["bytes"],
        late="late" in settled,
        cpu=cpu,
    )

"""What an edit costs a gateway with many hostnames: the control plane, and apart from it the real Envoy.

A relay between both tells when a response was sent and when it was answered. The edit of a sidecar's route, in the same
mesh and by the same way, says what any edit costs there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.serving import edge, mesh
from bench.serving.edge import HTTP, HTTPS, Edge
from bench.serving.processes import ControlPlane
from bench.serving.promises import EDIT_MORE, EDIT_RATIO, Promise
from bench.serving.relay import Exchange, Relay
from bench.serving.stand import OWN_LAG, greatest
from bench.serving.witnesses import free_port, running_envoy

SIDECAR: Final = "sidecar"
COLD, OF_ROUTE, ROUTE_TIMEOUT, TIMEOUT, CERTIFICATE = (
    "cold start",
    "a route leads elsewhere",
    "a route's timeout",
    "a timeout for all",
    "a certificate",
)
ROUTES: Final = "RouteConfiguration"
CERTIFICATES: Final = "Secret"
_TIMES: Final = 5
_QUIET: Final = 0.3
_WITHIN: Final = 120.0
_FRAGMENTS: Final = "koguma_fragments_built_total"
_CHUNK: Final = 1000
Step = Callable[[str], None]
Edits = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class EditCost:
    """What it took until Envoy had answered everything that one edit, or its own start, sent it."""

    took: float
    of_envoy: float
    """What of that went by between the responses and Envoy's answers."""

    resources: Counter[str]
    size: int
    fragments: float
    refused: tuple[str, ...] = ()
    own_lag: float = 0.0
    """The longest callback of the control plane's event loop, by its processor time, as a bound of the histogram."""

    @property
    def own(self) -> float:
        """Without what Envoy needed."""
        return self.took - self.of_envoy


@dataclass(slots=True)
class GatewayResult:
    """All edits of one kind for one proxy."""

    proxy: str
    scenario: str
    costs: list[EditCost] = field(default_factory=list)

    @property
    def middle(self) -> EditCost:
        return sorted(self.costs, key=lambda cost: cost.took)[len(self.costs) // 2]

    @property
    def own(self) -> float:
        return median(cost.own for cost in self.costs)


class GatewayStand:
    """A control plane with a sidecar and two gateways, each a real Envoy behind a relay."""

    def __init__(self, folder: Path, envoy: Path, hostnames: int, step: Step = lambda _: None) -> None:
        ports = tuple((protocol, free_port()) for protocol in (HTTPS, HTTP))
        self._edge = Edge(hostnames, min(hostnames, 100), ports)
        self._folder = folder
        self._envoy = envoy
        self._step = step
        self._seconds = count(20)

    def run(self, times: int = _TIMES) -> list[GatewayResult]:
        self._step("the mesh with gateways")
        store = f"sqlite:///{self._folder}/koguma.db"
        mesh.fill(store, edge.documents(self._edge))
        with ExitStack() as stack:
            plane = stack.enter_context(ControlPlane(store, self._folder / "control-plane.log"))
            self._write_certificates(plane)
            sidecar = stack.enter_context(Relay(plane.ads_port))
            self._start(stack, plane, mesh.proxy_name(0), sidecar)
            results = list(self._of_sidecar(plane, sidecar, times))
            for protocol in (HTTPS, HTTP):
                with ExitStack() as of_gateway:
                    relay = of_gateway.enter_context(Relay(plane.ads_port))
                    results.append(self._cold(of_gateway, plane, protocol, relay))
                    results += self._all_edits(plane, relay, protocol, times)
        return results

    def _write_certificates(self, plane: ControlPlane) -> None:
        written = list(edge.certificates(self._edge))
        for begin in range(0, len(written), _CHUNK):
            plane.apply(written[begin : begin + _CHUNK])

    def _start(self, stack: ExitStack, plane: ControlPlane, name: str, relay: Relay) -> None:
        stack.enter_context(running_envoy(self._envoy, plane, name, self._folder, delta=True, ads_port=relay.port))
        _settle(relay, 1)

    def _cold(self, stack: ExitStack, plane: ControlPlane, protocol: str, relay: Relay) -> GatewayResult:
        self._step(f"{protocol}, {COLD}")
        plane.until_idle()
        before = plane.metrics()
        self._start(stack, plane, edge.proxy_name(protocol), relay)
        cost = _cost(relay.exchanges, relay.began, before, plane.metrics())
        return GatewayResult(protocol, COLD, [cost])

    def _all_edits(self, plane: ControlPlane, relay: Relay, protocol: str, times: int) -> Iterator[GatewayResult]:
        edits = {
            # The services of two other routes, so that their clusters are there.
            OF_ROUTE: [edge.route(protocol, 1, 2, number % 2) for number in range(times + 1)],
            ROUTE_TIMEOUT: [edge.timeout_of_route(protocol, next(self._seconds)) for _ in range(times + 1)],
            TIMEOUT: [edge.timeout_of_all(protocol, next(self._seconds)) for _ in range(times + 1)],
        }
        if protocol == HTTPS:
            edits[CERTIFICATE] = [edge.certificate(1) for _ in range(times + 1)]
        for scenario, of_scenario in edits.items():
            yield self._edits(plane, relay, protocol, scenario, of_scenario)

    def _of_sidecar(self, plane: ControlPlane, relay: Relay, times: int) -> Iterator[GatewayResult]:
        routes = [mesh.route(1 + number % 2) for number in range(times + 1)]
        yield self._edits(plane, relay, SIDECAR, OF_ROUTE, routes)
        timeouts = [mesh.route_timeout(f"{next(self._seconds)}s") for _ in range(times + 1)]
        yield self._edits(plane, relay, SIDECAR, ROUTE_TIMEOUT, timeouts)

    def _edits(self, plane: ControlPlane, relay: Relay, proxy: str, scenario: str, edits: Edits) -> GatewayResult:
        """Each edit alone. The first only creates what the others change."""
        self._step(f"{proxy}, {scenario}")
        first, *others = edits
        self._edit(plane, relay, first)
        return GatewayResult(proxy, scenario, [self._edit(plane, relay, document) for document in others])

    def _edit(self, plane: ControlPlane, relay: Relay, document: Mapping[str, Any]) -> EditCost:
        plane.until_idle(quiet=0.1)
        relay.forget()
        before, began = plane.metrics(), time.monotonic()
        plane.put(mesh.path_of(dict(document)), document)
        _settle(relay, 1)
        return _cost(relay.exchanges, began, before, plane.metrics())


def _settle(relay: Relay, least: int) -> None:
    """Wait until Envoy has answered all, and nothing more comes."""
    deadline, since, known = time.monotonic() + _WITHIN, time.monotonic(), -1
    while time.monotonic() < deadline:
        answered = [exchange for exchange in relay.exchanges if exchange.answered is not None]
        if len(answered) != known or len(answered) < len(relay.exchanges):
            known, since = len(answered), time.monotonic()
        elif known >= least and time.monotonic() - since > _QUIET:
            return
        time.sleep(0.01)
    raise RuntimeError("Envoy did not answer in time")


def _cost(
    exchanges: Sequence[Exchange], began: float, before: Mapping[str, float], after: Mapping[str, float]
) -> EditCost:
    resources: Counter[str] = Counter()
    for exchange in exchanges:
        resources[exchange.kind] += exchange.resources
    return EditCost(
        took=max(exchange.answered or 0.0 for exchange in exchanges) - began,
        of_envoy=_covered(exchanges),
        resources=+resources,
        size=sum(exchange.size for exchange in exchanges),
        fragments=after[_FRAGMENTS] - before[_FRAGMENTS],
        own_lag=greatest(OWN_LAG, before, after),
        refused=tuple(exchange.refused for exchange in exchanges if exchange.refused),
    )


def _covered(exchanges: Sequence[Exchange]) -> float:
    """How long Envoy had something to answer: several responses at a time count once."""
    total, until = 0.0, 0.0
    for exchange in sorted(exchanges, key=lambda each: each.sent):
        answered = exchange.answered or exchange.sent
        total += max(0.0, answered - max(exchange.sent, until))
        until = max(until, answered)
    return total


def gateway_promises(results: Sequence[GatewayResult], hostnames: int) -> Iterator[Promise]:
    of_sidecar = {result.scenario: result for result in results if result.proxy == SIDECAR}
    for result in results:
        if result.proxy != SIDECAR:
            for promise in _promises(result, of_sidecar, hostnames):
                says = f"{result.proxy} gateway, {result.scenario}: {promise.says}"
                yield Promise(says, promise.measured, promise.held)


def _promises(result: GatewayResult, of_sidecar: Mapping[str, GatewayResult], hostnames: int) -> Iterator[Promise]:
    refused = [text for cost in result.costs for text in cost.refused]
    yield Promise("Envoy takes all", refused[0] if refused else "all taken", not refused)
    if result.scenario in {OF_ROUTE, ROUTE_TIMEOUT}:
        yield from _counted(result, Counter({ROUTES: 1}), 2, "one route table")
        bound = EDIT_RATIO * of_sidecar[result.scenario].own + EDIT_MORE
        more = f"{EDIT_MORE * 1000:.0f} ms and what Envoy needs"
        says = f"in force in {EDIT_RATIO:g} x the time of a sidecar's edit, {more}"
        took = f"{result.own * 1000:.0f} of {bound * 1000:.0f} ms, and {result.middle.of_envoy * 1000:.0f} ms"
        yield Promise(says, took, result.own <= bound)
    elif result.scenario == TIMEOUT:
        tables = hostnames if result.proxy == HTTPS else 1
        yield from _counted(result, Counter({ROUTES: tables}), None, "each route table once")
    elif result.scenario == CERTIFICATE:
        yield from _counted(result, Counter({CERTIFICATES: 1}), 1, "one secret")


def _counted(result: GatewayResult, expected: Counter[str], most: int | None, what: str) -> Iterator[Promise]:
    sent = [cost.resources for cost in result.costs]
    wrong = next((resources for resources in sent if resources != expected), None)
    yield Promise(f"{what}, and nothing else", _words(wrong or sent[0]), wrong is None)
    if most is not None:
        built = max(cost.fragments for cost in result.costs)
        yield Promise(f"at most {most} fragments are built", f"{built:.0f}", built <= most)


def _words(resources: Counter[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in resources.items()) or "nothing"


def as_data(result: GatewayResult) -> dict[str, Any]:
    return {
        "proxy": result.proxy,
        "scenario": result.scenario,
        "each": [
            {
                "took": cost.took,
                "envoy": cost.of_envoy,
                "resources": dict(cost.resources),
                "bytes": cost.size,
                "fragments": cost.fragments,
                "own_lag": cost.own_lag,
            }
            for cost in result.costs
        ],
    }

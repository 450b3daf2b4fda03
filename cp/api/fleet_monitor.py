"""`FleetMonitor`: how all proxies are, and what is to be found, as metrics.

The control plane that leads alone tells of what is the same for all of them, so that sums over control planes are
right. It looks again and again, and rests many times as long as a look has worked, so that a large mesh is looked at
less often.

See record 0091.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import structlog

from cp.api.collaborators import Collaborators
from cp.api.findings import FindingSources, finding_sources, findings_of
from cp.api.work_budget import WorkBudget, budgeted
from cp.model.checkpoint import Stopped, checkpoint_set
from cp.model.names import Key
from cp.model.violation import Finding
from cp.policies import Policies, discover
from cp.precedence import yielding
from cp.resources.world import World
from cp.serving.delivery import Presence, ProxyState

T = TypeVar("T")

EVERY: Final = 2.0
"""Seconds between two looks at the least."""

RESTS: Final = 20
"""For how many times as long as a look has worked it rests. There are two kinds of looks, at proxies and for findings,
and each costs a twentieth of a processor at the most. To wait for a control plane that does not answer is no work."""

_LEADS_SOON: Final = 1.0
"""Seconds after which it is asked again whether this control plane leads. Who leads again sooner tells what it saw."""

OUTDATED: Final = 600.0
"""Seconds after which findings are worked out again though nothing has changed: certificates end with time."""

BUDGET: Final = WorkBudget()
"""What one search for findings may take: that of a question. Its seconds are of the processor."""

STATES: Final[Mapping[ProxyState, str]] = {
    ProxyState.ONLINE: "in sync",
    ProxyState.OVER_LIMIT: "over limit",
    ProxyState.OUT_OF_SYNC: "behind",
    ProxyState.REFUSED: "refusing",
    ProxyState.FAILED: "failed",
    ProxyState.OFFLINE: "offline",
    ProxyState.UNKNOWN: "unknown",
}


@dataclass(frozen=True, slots=True)
class FleetView:
    """How all proxies were at the last look."""

    dataplanes: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    """How many there are, by mesh and state."""

    behind: Mapping[str, float] = field(default_factory=dict)
    """By mesh since when the proxy is behind that has been so for the longest time; 0: none is."""


@dataclass(frozen=True, slots=True)
class FindingsView:
    """What was to be found at the last look."""

    counts: Mapping[tuple[str, ...], float] | None = field(default_factory=dict)
    """How many there are, by severity and code. None if they take too long to find."""

    looked_at: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    """When that was, in seconds since 1970; nothing before the first time."""

    worked_out_at: float = 0.0
    sources: FindingSources | None = None
    """Of what they were worked out."""


class FleetMonitor:
    """Its metrics are there while this control plane leads, from its first look on; between two, they are of the last
    that succeeded."""

    def __init__(
        self,
        collaborators: Collaborators,
        leads: Callable[[], bool],
        findings_every: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`findings_every`: seconds between two looks for findings; 0: never."""
        self._api, self._leads, self._clock = collaborators, leads, clock
        self._findings_every = findings_every
        self._policies: Policies = discover()
        self._view, self._findings = FleetView(), FindingsView()
        self._log = structlog.get_logger()
        self._register()

    async def watch(self) -> None:
        """Until cancelled. Fleet and findings are looked at apart, as lint takes much longer."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forget_in_time())
            group.create_task(self._repeat(self.look, EVERY))
            if self._findings_every:
                group.create_task(self._repeat(self.look_for_findings, self._findings_every))

    async def _repeat(self, look: Callable[[World], Awaitable[float]], pause: float) -> None:
        while True:
            world, began, elsewhere = self._api.state.loaded_world, time.thread_time(), 0.0
            if world is None or not self._leads():
                await asyncio.sleep(_LEADS_SOON)
                continue
            try:
                elsewhere = await look(world)
            except Exception:  # noqa: BLE001  # what cannot be told now is told later
                self._log.exception("monitor.failed")
            await asyncio.sleep(max(pause, RESTS * (time.thread_time() - began + elsewhere)))

    async def _forget_in_time(self) -> None:
        while True:
            self.forget_unless_leading()
            await asyncio.sleep(_LEADS_SOON)

    def forget_unless_leading(self) -> None:
        """Who leads again later looks first: what it saw the last time may be hours old."""
        if not self._leads():
            self._view, self._findings = FleetView(), FindingsView()

    async def look(self, world: World) -> float:
        """How all proxies are. Returns the processor time that it took in other threads."""
        presences = await self._api.observed.presences(_dataplanes(world))
        meshes = [mesh.name for mesh in world.table("Mesh")]
        self._view = FleetView(_counted(meshes, presences), _behind(meshes, presences))
        return 0.0

    async def look_for_findings(self, world: World) -> float:
        """Count what lint finds, again only if something has changed or may have ended since.

        Returns the processor time that it took in other threads.
        """
        now, elsewhere = self._clock(), 0.0
        meshes = [mesh.name for mesh in world.table("Mesh")]
        sources = await finding_sources(self._api, world, meshes, _patiently)
        if self._findings.sources != sources or abs(now - self._findings.worked_out_at) > OUTDATED:
            findings, elsewhere = await asyncio.to_thread(self._within_budget, sources, now)
            if findings is None:
                self._log.warning("monitor.over_budget", seconds=round(elsewhere, 1))
                self._findings = FindingsView(None, {}, now, sources)
            else:
                counts = Counter[tuple[str, ...]]((finding.severity.value, finding.code) for finding in findings)
                self._findings = FindingsView(counts, {(): now}, now, sources)
        if self._findings.counts is not None:
            self._findings = replace(self._findings, looked_at={(): now})
        return elsewhere

    def _within_budget(self, sources: FindingSources, now: float) -> tuple[list[Finding] | None, float]:
        """The findings, or None if they take more than a question may take, and the processor time of this thread."""
        began = time.thread_time()
        is_over = budgeted(lambda: time.thread_time() - began > BUDGET.seconds, BUDGET.memory)
        checkpoint = yielding(self._api.works.precedence, is_over)
        with checkpoint_set(checkpoint), suppress(Stopped):
            return findings_of(self._policies, sources, checkpoint, now), time.thread_time() - began
        return None, time.thread_time() - began

    def _register(self) -> None:
        register = self._api.metrics.register
        dataplanes = "Registered proxies by how they are, on all control planes; told by the one that leads"
        register("dataplanes", dataplanes, self._while_leading(lambda: self._view.dataplanes), "mesh", "state")
        behind = "For how long the proxy has been behind that has been so for the longest time"
        register("dataplanes_behind_seconds", behind, self._while_leading(self._behind_for), "mesh")
        findings = "What koguma lint finds; told by the control plane that leads"
        register("findings", findings, self._while_leading(lambda: self._findings.counts or {}), "severity", "code")
        looked_at = "When it was looked for findings, in seconds since 1970"
        register("findings_timestamp_seconds", looked_at, self._while_leading(lambda: self._findings.looked_at))

    def _while_leading(self, read: Callable[[], Mapping[T, float]]) -> Callable[[], Mapping[T, float]]:
        """Nothing while another control plane tells it."""
        return lambda: read() if self._leads() else {}

    def _behind_for(self) -> Mapping[str, float]:
        now = self._clock()
        return {mesh: max(0.0, now - since) if since else 0.0 for mesh, since in self._view.behind.items()}


async def _patiently(asking: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return await asking()


def _dataplanes(world: World) -> list[Key]:
    return [dataplane.key for mesh in world.table("Mesh") for dataplane in world.table("Dataplane", mesh.name)]


def _counted(meshes: Iterable[str], presences: Mapping[Key, Presence]) -> Mapping[tuple[str, ...], float]:
    """Each state of each mesh, those without a proxy too."""
    counts = Counter((key.mesh, STATES[presence.state]) for key, presence in presences.items())
    return {(mesh, state): counts[mesh, state] for mesh in meshes for state in STATES.values()}


def _behind(meshes: Iterable[str], presences: Mapping[Key, Presence]) -> Mapping[str, float]:
    earliest = dict.fromkeys(meshes, 0.0)
    for key, presence in presences.items():
        if presence.state is ProxyState.OUT_OF_SYNC and presence.since is not None:
            known = earliest.get(key.mesh, 0.0)
            earliest[key.mesh] = min(known, presence.since) if known else presence.since
    return earliest

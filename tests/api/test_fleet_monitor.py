"""How all proxies are, as metrics: told by the control plane that leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cp.api import fleet_monitor
from cp.api.fleet_monitor import EVERY, OUTDATED, RESTS, FleetMonitor
from cp.api.work_budget import WorkBudget
from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import Finding, Severity
from cp.resources.world import World
from cp.serving.delivery import Presence, ProxyState
from tests.api.conftest import KINDS, FixedState, NobodyThere, Unit
from tests.random_mesh.words import document_of as document

NOW = 1_000_000.0
STATES = {
    "web-1": Presence(ProxyState.ONLINE, NOW - 5, ()),
    "web-2": Presence(ProxyState.OUT_OF_SYNC, NOW - 30, ()),
    "web-3": Presence(ProxyState.OUT_OF_SYNC, NOW - 90, ()),
    "web-4": Presence(ProxyState.REFUSED, NOW - 7, ()),
}


class Observed(NobodyThere):
    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        offline = Presence(ProxyState.OFFLINE, None, ())
        return {key: STATES.get(key.name, offline) for key in dataplanes}


def dataplane(name: str) -> Document:
    inbound = {"port": 8080, "tags": {"kuma.io/service": "web"}}
    networking = {"address": "192.0.2.1", "inbound": [inbound]}
    return document({"type": "Dataplane", "mesh": "default", "name": name, "networking": networking})


def mesh(name: str) -> Document:
    return document({"type": "Mesh", "name": name})


def world() -> World:
    return World.of([mesh("default"), mesh("empty"), *(dataplane(f"web-{number}") for number in range(1, 6))], KINDS)


class Rig:
    """A monitor on a clock of ours."""

    def __init__(self, start: Unit, **changes: Any) -> None:
        self.world, self.leads, self.now = world(), True, NOW
        self.api = start(**{"state": FixedState(self.world), "observed": Observed(), **changes})
        self.metrics = self.api.collaborators.metrics
        self.monitor = FleetMonitor(self.api.collaborators, lambda: self.leads, 60, lambda: self.now)

    def look(self) -> None:
        self.api.run(self.monitor.look(self.world))

    def look_for_findings(self) -> None:
        self.api.run(self.monitor.look_for_findings(self.world))

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"koguma_{name}", labels)


def test_proxies_are_counted_by_mesh_and_state_whether_they_are_connected_or_not(start: Unit) -> None:
    rig = Rig(start)
    rig.look()

    counts = {"in sync": 1, "behind": 2, "refusing": 1, "failed": 0, "offline": 1, "unknown": 0}
    assert {state: rig.value("dataplanes", mesh="default", state=state) for state in counts} == counts
    assert rig.value("dataplanes", mesh="empty", state="offline") == 0, "an alert needs a number to compare with"


def test_the_longest_that_a_proxy_is_behind_grows_until_the_next_look(start: Unit) -> None:
    rig = Rig(start)
    rig.look()
    rig.now += 10

    assert rig.value("dataplanes_behind_seconds", mesh="default") == 100
    assert rig.value("dataplanes_behind_seconds", mesh="empty") == 0


def test_who_does_not_lead_tells_nothing_of_what_another_one_tells(start: Unit) -> None:
    rig = Rig(start)
    rig.look()
    rig.look_for_findings()
    rig.leads = False

    told = rig.metrics.text().decode()
    assert not [line for line in told.splitlines() if line.startswith(("koguma_dataplanes", "koguma_findings"))]


def test_who_leads_again_looks_before_it_tells_anything(start: Unit) -> None:
    rig = Rig(start)
    rig.look()
    rig.look_for_findings()

    async def lose_and_lead_again() -> None:
        async with asyncio.TaskGroup() as group:
            rig.leads = False
            watching = group.create_task(rig.monitor.watch())
            for _ in range(2):  # it begins, and then what it starts
                await asyncio.sleep(0)
            watching.cancel()
        rig.leads = True

    rig.api.run(lose_and_lead_again())

    assert rig.value("dataplanes", mesh="default", state="offline") is None
    assert rig.value("findings_timestamp_seconds") is None
    rig.look()
    assert rig.value("dataplanes", mesh="default", state="offline") == 1


def rest_after(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> float:
    """The seconds until the second look."""
    rests: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    async def watch() -> None:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(rig.monitor._repeat(rig.monitor.look, EVERY))
            while not rests:
                await sleep(0)
            watching.cancel()

    monkeypatch.setattr(asyncio, "sleep", noted)
    rig.api.run(watch())
    return rests[0]


def test_a_control_plane_that_does_not_answer_makes_no_look_late(start: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for at each look; what it costs is time alone."""
    now = [0.0]
    clocks = SimpleNamespace(monotonic=lambda: now[0], thread_time=time.thread_time, time=time.time)

    class Slow(Observed):
        async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
            now[0] += 8.0
            return await super().presences(dataplanes)

    monkeypatch.setattr(fleet_monitor, "time", clocks)
    assert rest_after(Rig(start, observed=Slow()), monkeypatch) < 2 * EVERY


def test_a_look_that_works_for_long_is_followed_by_a_long_rest(start: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(Observed):
        async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
            began = time.thread_time()
            while time.thread_time() - began < 2 * EVERY / RESTS:
                pass
            return await super().presences(dataplanes)

    assert rest_after(Rig(start, observed=Busy()), monkeypatch) >= 2 * EVERY


def test_findings_are_counted_by_severity_and_code(start: Unit) -> None:
    silent = Finding("instance-silent", Severity.WARNING, None, "a control plane does not answer")
    rig = Rig(start, own_findings=lambda: (silent,))
    rig.look_for_findings()

    assert rig.value("findings", severity="warning", code="instance-silent") == 1
    assert rig.value("findings", severity="warning", code="address-shared") == 4, "five have one address"
    assert rig.value("findings_timestamp_seconds") == NOW


def test_findings_over_their_budget_are_not_counted(
    start: Unit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = Rig(start)
    rig.look_for_findings()
    with monkeypatch.context() as patch:
        patch.setattr(fleet_monitor, "BUDGET", WorkBudget(seconds=-1.0))
        rig.now += OUTDATED + 1
        rig.look_for_findings()

    assert "monitor.over_budget" in capsys.readouterr().out
    assert rig.value("findings", severity="warning", code="address-shared") is None
    rig.look_for_findings()
    assert rig.value("findings_timestamp_seconds") is None, "nothing has changed, so it is not tried again"
    rig.now += OUTDATED + 1
    rig.look_for_findings()
    assert rig.value("findings", severity="warning", code="address-shared") == 4


def test_what_has_not_changed_is_not_worked_out_again_until_it_may_be_outdated(start: Unit) -> None:
    rig = Rig(start)
    rig.look_for_findings()
    first = rig.monitor._findings

    rig.now += 60
    rig.look_for_findings()
    assert rig.monitor._findings.counts is first.counts
    assert rig.value("findings_timestamp_seconds") == NOW + 60

    rig.now += OUTDATED
    rig.look_for_findings()
    assert rig.monitor._findings.counts is not first.counts

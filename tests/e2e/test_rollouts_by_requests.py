"""A rollout that makes requests fail goes back by what Envoys count, read by way of their agents."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from tests.e2e.test_rollouts import koguma, limit, rollout
from tests.support.client import call
from tests.support.load import Calls
from tests.support.mesh import Proxy, mesh_service
from tests.support.playground import Playground, dp_run
from tests.support.waiting import eventually

pytestmark = [pytest.mark.envoy, pytest.mark.long]

NAMES: Final = ("web-1", "web-2")


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    """Two proxies with agents, which call a service that takes its time."""
    folder = tmp_path_factory.mktemp("agents")
    empty_mesh.control_plane.apply(mesh_service("backend"), limit("5s"))
    empty_mesh.bare("backend", "backend").on("/slow", delay=0.02)  # longer than the limit that makes requests fail
    with ExitStack() as stack:
        for name in NAMES:
            proxy = empty_mesh.proxies[name] = Proxy(name, "web", backends=("backend",))
            running = stack.enter_context(dp_run(empty_mesh, proxy, folder))
            eventually(lambda proxy=proxy, running=running: _serves(proxy, running), within=40)  # type: ignore[misc]  # bound here
        eventually(lambda: empty_mesh.control_plane.metrics()["koguma_agent_links"] == len(NAMES), within=40)
        yield empty_mesh


def _serves(proxy: Proxy, running: Any) -> bool:
    running.check()
    return call(proxy.outbound(), "/").status == 200


def rolled_out(mesh: Playground, request: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Counter[str]]]:
    """How a rollout ends while both proxies are called all the time, and what their callers were answered."""
    order = ("--rollout", "1,100%", "--hold", "2s", "--until", "5xx < 10%")
    with ExitStack() as stack:
        calls = {name: stack.enter_context(Calls(lambda name=name: answered(mesh, name), 0.03)) for name in NAMES}  # type: ignore[misc]  # bound here
        ended = koguma(mesh, "apply", "-f", "-", *order, given=json.dumps(limit(request)))
    return ended, {name: of_name.answers for name, of_name in calls.items()}


def answered(mesh: Playground, name: str) -> str:
    return str(call(mesh.proxies[name].outbound(), "/slow").status)


def test_a_change_that_makes_requests_fail_goes_back_and_the_others_never_saw_it(mesh: Playground) -> None:
    ended, answers = rolled_out(mesh, "1ms")

    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "not `5xx < 10%`" in ended.stderr
    last = rollout(mesh)
    (chosen,) = last["proxies"]
    (other,) = set(NAMES) - {chosen}
    assert (last["state"], last["step"]) == ("RolledBack", 1)
    assert answers[chosen]["504"] > 0
    assert set(answers[other]) == {"200"}
    stored = mesh.control_plane.find(limit("5s"))
    assert stored is not None
    assert stored["spec"] == limit("5s")["spec"]
    mesh.control_plane.in_force()
    eventually(lambda: answered(mesh, chosen) == "200")


def test_a_change_that_lets_requests_be_goes_on_to_its_end(mesh: Playground) -> None:
    ended, answers = rolled_out(mesh, "7s")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "step 2 of 2 (100%), 2 of 2 proxies, holding" in ended.stderr
    assert all(set(of_name) == {"200"} for of_name in answers.values())
    stored = mesh.control_plane.find(limit("7s"))
    assert stored is not None
    assert stored["spec"] == limit("7s")["spec"]


def test_without_an_agent_nothing_is_judged_and_nobody_is_sent_anything(mesh: Playground) -> None:
    mesh.proxy("bare-1", "bare", None, "backend")
    mesh.envoys["bare-1"].ready()
    mesh.control_plane.in_force()
    order = ("--rollout", "100%", "--hold", "1s", "--until", "5xx < 10%")
    ended = koguma(mesh, "apply", "-f", "-", *order, given=json.dumps(limit("9s")))

    assert ended.returncode == 1
    assert "cannot be judged: no agent of Dataplane default/bare-1 is connected" in ended.stderr
    assert (rollout(mesh)["state"], rollout(mesh)["step"]) == ("RolledBack", 0)

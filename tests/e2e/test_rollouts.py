"""Rollouts to real Envoys: a good one, one that Envoys refuse, and one in the middle of which everything is killed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from cp.cli.answers import ANSWERS
from tests.support.control_plane import KOGUMA
from tests.support.mesh import Document, mesh_service, policy, service_item
from tests.support.playground import Playground, accepted, changed, playground, timeouts
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

WEBS: Final = ("web-1", "web-2", "web-3")
JOBS: Final = ("job-1", "job-2")
SERVED: Final = ("clusters", "listeners", "routes")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    """Three proxies of one service and two of another, which all call a third."""
    folder = tmp_path_factory.mktemp("rollouts")
    with playground(folder, f"sqlite:///{folder}/koguma.db") as mesh:
        mesh.control_plane.apply(mesh_service("backend"))
        mesh.bare("backend", "backend")
        for name in (*WEBS, *JOBS):
            service = name.partition("-")[0]
            mesh.proxy(name, service, None, "backend", team=service)
        mesh.ready()
        yield mesh


@pytest.fixture
def mesh(shared: Playground) -> Playground:
    """With a limit that all of them have."""
    shared.control_plane.apply(limit("5s"))
    if shared.control_plane.find(of_jobs("", "")) is not None:
        shared.control_plane.delete(of_jobs("", ""))
    shared.control_plane.in_force()
    eventually(lambda: request_timeouts(shared) == dict.fromkeys(shared.envoys, "5s"))
    return shared


def limit(request: str) -> Document:
    return policy("MeshTimeout", "limit", service_item("backend", {"http": {"requestTimeout": request}}))


def of_jobs(path: str, value: Any) -> Document:
    """A change of a cluster for the jobs, which Envoy takes or refuses."""
    change = {"op": "add", "path": path, "value": value}
    modification = {"cluster": {"operation": "Patch", "match": {"origin": "outbound"}, "jsonPatches": [change]}}
    target = {"kind": "MeshSubset", "tags": {"team": "job"}}
    spec = {"targetRef": target, "default": {"appendModifications": [modification]}}
    return {"type": "MeshProxyPatch", "mesh": "default", "name": "patch", "spec": spec}


def koguma(mesh: Playground, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(KOGUMA), *words, "--address", mesh.control_plane.api.url]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=False)


def roll_out(mesh: Playground, *documents: Document, steps: str = "1,100%", hold: str = "100ms") -> Any:
    text = "\n---\n".join(map(json.dumps, documents))
    return koguma(mesh, "apply", "-f", "-", "--rollout", steps, "--hold", hold, given=text)


def begin(mesh: Playground, order: Mapping[str, str], *documents: Document) -> None:
    """Begin a rollout, and leave it to itself."""
    body = {"resources": [{"text": json.dumps(each)} for each in documents], "rollout": order}
    content, kind = json.dumps(body).encode(), {"content-type": "application/json"}
    mesh.control_plane.request("POST", "/_apply", content, **kind).raise_for_status()


def rollout(mesh: Playground) -> Any:
    return mesh.control_plane.get("/meshes/default/_rollout")


def responses(mesh: Playground, name: str) -> dict[str, tuple[int, int]]:
    """What a proxy was sent on its stream, and how much of it it refused."""
    (stream,) = mesh.control_plane.get(f"/meshes/default/dataplanes/{name}/_delivery")["streams"]
    return {each["type"]: (each["responses"], each["rejected"]) for each in stream["types"] if each["type"] in SERVED}


def request_timeouts(mesh: Playground) -> dict[str, str]:
    return {name: timeouts(envoy)["/"] for name, envoy in mesh.envoys.items()}


@pytest.mark.long
def test_a_good_change_comes_to_some_of_each_class_first_and_nobody_is_sent_it_twice(mesh: Playground) -> None:
    before = {name: accepted(envoy) for name, envoy in mesh.envoys.items()}

    ended = roll_out(mesh, limit("7s"))

    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (
        0,
        f"rollout {rollout(mesh)['number']} of mesh default is done",
    ), ended.stderr
    assert "step 1 of 2 (1), 1 of 5 proxies, holding" in ended.stderr
    assert "step 2 of 2 (100%), 5 of 5 proxies, holding" in ended.stderr
    mesh.control_plane.in_force()
    assert request_timeouts(mesh) == dict.fromkeys(mesh.envoys, "7s")
    moved = {name: changed(before[name], accepted(envoy)) for name, envoy in mesh.envoys.items()}
    assert [sum(counters.values()) for counters in moved.values()] == [1] * len(mesh.envoys)
    stored = mesh.control_plane.find(limit("7s"))
    assert stored is not None
    assert stored["spec"] == limit("7s")["spec"]


def test_a_change_that_one_class_of_envoys_refuses_goes_back_and_the_others_never_saw_it(mesh: Playground) -> None:
    before = {name: responses(mesh, name) for name in mesh.envoys}
    rejected = {name: envoy.stat("cluster_manager.cds.update_rejected") for name, envoy in mesh.envoys.items()}

    ended = roll_out(mesh, of_jobs("/connectTimeout", "0s"))

    assert ended.returncode == 1
    assert "was rolled back" in ended.stderr
    assert "refuses" in ended.stderr
    assert "Nothing was stored" in ended.stderr
    last = rollout(mesh)
    (refusing,) = last["proxies"]
    assert (refusing in JOBS, last["state"], last["step"], last["reached"]) == (True, "RolledBack", 1, 2)
    assert mesh.control_plane.find(of_jobs("/connectTimeout", "0s")) is None
    mesh.control_plane.in_force()
    after = {name: envoy.stat("cluster_manager.cds.update_rejected") for name, envoy in mesh.envoys.items()}
    assert {name for name in mesh.envoys if after[name] != rejected[name]} == {refusing}
    assert {name for name in mesh.envoys if responses(mesh, name) != before[name]} == {refusing}
    state = mesh.control_plane.get(f"/meshes/default/dataplanes/{refusing}/_delivery")
    assert (state["status"], state["findings"]) == ("Online", [])
    good = roll_out(mesh, of_jobs("/connectTimeout", "3s"))
    assert good.returncode == 0, good.stderr


@pytest.mark.long
def test_a_rollout_goes_on_after_everything_was_killed_in_the_middle(mesh: Playground) -> None:
    steps = {"steps": "1,100%", "hold": "3s"}
    begin(mesh, steps, limit("7s"))
    chosen = set(eventually(lambda: rollout(mesh)["state"] == "Holding" and rollout(mesh)["proxies"], within=30))

    mesh.control_plane.kill()
    mesh.control_plane.start().ready()

    assert rollout(mesh)["underWay"]
    assert set(rollout(mesh)["proxies"]) == chosen
    shown = koguma(mesh, "rollout", "show", "--follow")
    assert (shown.returncode, "is done" in shown.stdout) == (0, True), shown
    assert request_timeouts(mesh) == dict.fromkeys(mesh.envoys, "7s")


@pytest.mark.long
def test_a_rollout_can_be_seen_paused_and_aborted_and_explanations_know_of_it(mesh: Playground) -> None:
    begin(mesh, {"steps": "1,100%", "hold": "10m"}, limit("7s"))
    chosen = set(eventually(lambda: rollout(mesh)["state"] == "Holding" and rollout(mesh)["proxies"], within=30))
    (other, *_) = set(mesh.envoys) - chosen

    for name, value, served in ((min(chosen), "7s", "what it proposes"), (other, "5s", "what is stored")):
        shown = koguma(mesh, "explain", name, "GET http://backend/")
        assert f"requestTimeout {value} service limit" in " ".join(shown.stdout.split()), shown.stdout + shown.stderr
        assert f"this proxy is served {served}" in shown.stdout
        assert f"this proxy is served {served}" in koguma(mesh, "inspect", "dataplane", name).stdout
        config = json.dumps(mesh.control_plane.get(f"/meshes/default/dataplanes/{name}/_config"))
        assert f'"timeout": "{value}"' in config
    second = koguma(mesh, "apply", "-f", "-", "--rollout", "1", given=json.dumps(limit("8s")))
    assert (second.returncode, "is under way, begun by" in second.stderr) == (1, True)
    paused = koguma(mesh, "rollout", "pause")
    assert "step 1 of 2 (1), 1 of 5 proxies, paused" in paused.stdout
    assert "Paused" in koguma(mesh, "rollout", "list").stdout
    for command, state in (("continue", "Going"), ("pause", "Paused"), ("abort", "Aborted")):
        answer = json.loads(koguma(mesh, "rollout", command, "-o", "json").stdout)
        described = {each.name for each in ANSWERS["rollout", command].fields}
        assert (answer["state"], described - answer.keys()) == (state, set())
    mesh.control_plane.in_force()
    eventually(lambda: request_timeouts(mesh) == dict.fromkeys(mesh.envoys, "5s"))
    shown = koguma(mesh, "rollout", "show", "-o", "json")
    assert json.loads(shown.stdout)["state"] == "Aborted"

"""`koguma apply --wait`, and what is told of proxies that refuse something, with real Envoys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Ended, Koguma
from tests.support.client import Traffic, call
from tests.support.loopback import Address
from tests.support.mesh import Document, mesh_service, policy, request_timeout, service_item
from tests.support.playground import Playground, timeouts
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

CLIENTS = ("frontend-1", "frontend-2", "frontend-3")


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("backend"))
    empty_mesh.service("backend")
    for name in CLIENTS:
        empty_mesh.client(name, "backend")
    empty_mesh.ready()
    eventually(lambda: statuses(koguma_of(empty_mesh)) == dict.fromkeys([*CLIENTS, "backend"], "Online"))
    return empty_mesh


def koguma_of(mesh: Playground) -> Koguma:
    return Koguma(mesh.control_plane.api.url)


@pytest.fixture
def koguma(mesh: Playground) -> Koguma:
    return koguma_of(mesh)


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend-1"].outbound()


@pytest.fixture(autouse=True)
def traffic_goes_on(backend: Address) -> Iterator[None]:
    """Requests all through each test, none of which may fail."""
    with Traffic(backend, per_second=100) as traffic:
        yield
        eventually(lambda: len(traffic.outcomes) > 10)
    assert traffic.failures == []


def statuses(koguma: Koguma) -> dict[str, str]:
    answer = json.loads(koguma("inspect", "dataplanes", "-o", "json").out)
    return {item["name"]: item["status"] for item in answer["items"]}


def patch(connect_timeout: str, *, proxy: str = "") -> Document:
    """Envoy takes no cluster whose connect timeout is zero."""
    changes = [{"op": "replace", "path": "/connectTimeout", "value": connect_timeout}]
    name = "kri_msvc_default___backend_main"
    change = {"cluster": {"operation": "Patch", "match": {"name": name}, "jsonPatches": changes}}
    target = {"targetRef": {"kind": "Dataplane", "name": proxy}} if proxy else {}
    spec = {**target, "default": {"appendModifications": [change]}}
    return {"type": "MeshProxyPatch", "mesh": "default", "name": "patch", "spec": spec}


def timeout(duration: str) -> Document:
    return policy("MeshTimeout", "timeout", service_item("backend", request_timeout(duration)))


def applied(koguma: Koguma, folder: Path, *documents: Document, more: tuple[str, ...] = ()) -> Ended:
    (file := folder / "change.yaml").write_text(yaml.safe_dump_all(documents))
    return koguma("apply", "-f", file, "--wait", *more)


def inspected(koguma: Koguma, proxy: str) -> Any:
    return json.loads(koguma("inspect", "dataplane", proxy, "-o", "json").out)


def test_a_change_is_in_force_when_apply_returns(mesh: Playground, koguma: Koguma, tmp_path: Path) -> None:
    ended = applied(koguma, tmp_path, timeout("7s"))

    assert ended.status == 0, ended.err
    assert "3 of 3 proxies have it, 0 refused" in ended.out
    assert all(timeouts(mesh.envoys[name])["/"] == "7s" for name in CLIENTS)
    deleted = koguma("delete", "meshtimeout", "timeout", "--wait")
    assert "3 of 3 proxies have it" in deleted.out


def test_a_rollback_is_in_force_as_an_edit_is(mesh: Playground, koguma: Koguma, tmp_path: Path) -> None:
    applied(koguma, tmp_path, timeout("7s"))
    before = json.loads(koguma("history", "-o", "json").out)["newest"]
    applied(koguma, tmp_path, timeout("9s"))
    compared = koguma("diff", str(before), "--proxies").lines

    ended = koguma("rollback", str(before), "--wait")
    assert ended.status == 0, ended.err
    assert ended.lines[0] == "MeshTimeout default/timeout Updated"
    assert "3 of 3 proxies have it, 0 refused" in ended.out
    assert all(timeouts(mesh.envoys[name])["/"] == "7s" for name in CLIENTS)
    assert any(line.endswith("route.timeout: 7s → 9s") for line in compared)
    koguma("delete", "meshtimeout", "timeout", "--wait")


def test_a_change_for_nobody_returns_at_once_and_says_so(koguma: Koguma, tmp_path: Path) -> None:
    about_nothing = policy("MeshTimeout", "about-nothing", service_item("nobody", request_timeout("1s")))

    first = applied(koguma, tmp_path, about_nothing)
    again = applied(koguma, tmp_path, about_nothing)

    assert (first.status, first.lines[-1]) == (0, "it reaches no proxy")
    assert (again.status, again.lines[-1]) == (0, "unchanged; 4 of 4 connected proxies have what they should have")


def test_what_one_proxy_refuses_is_told_with_the_policy_and_all_else_is_in_force(
    mesh: Playground, koguma: Koguma, tmp_path: Path
) -> None:
    refused = applied(koguma, tmp_path, timeout("8s"), patch("0s", proxy="frontend-2"))

    assert refused.status == 1
    assert "default.frontend-2 refuses what follows from MeshProxyPatch default/patch" in refused.err
    assert "refused-by-envoy" in refused.err
    assert "ConnectTimeout" in refused.err, "Envoy's own words"
    assert all(timeouts(mesh.envoys[name])["/"] == "8s" for name in CLIENTS), "what came with it is in force"
    assert call(mesh.proxies["frontend-2"].outbound(), "/").status == 200, "with the cluster that it had before"
    assert statuses(koguma) == {**dict.fromkeys([*CLIENTS, "backend"], "Online"), "frontend-2": "Refused"}
    (cluster,) = [one for one in inspected(koguma, "frontend-2")["streams"][0]["types"] if one["type"] == "clusters"]
    (refusal,) = cluster["refusals"]
    (held,) = refusal["resources"]
    assert held["name"] == "kri_msvc_default___backend_main"
    assert held["inForce"]
    assert held["inForce"] != held["refused"]
    suspects = [(one["name"], one["path"], one["line"]) for one in refusal["policies"] if one["suspect"]]
    assert suspects[0][:2] == ("patch", "spec.default.appendModifications[0]")
    assert suspects[0][2] > 0
    (finding,) = [
        one for one in json.loads(koguma("lint", "-o", "json").out)["findings"] if one["code"] == "refused-by-envoy"
    ]
    assert finding["resource"] == "MeshProxyPatch default/patch"
    of_policy = koguma("inspect", "meshproxypatch", "patch").out
    assert "refused: the cluster" in of_policy
    assert "in force" not in of_policy

    again = applied(koguma, tmp_path, patch("0s", proxy="frontend-2"))
    assert again.status == 1, "that nothing was changed does not make it good"
    mended = applied(koguma, tmp_path, patch("3s", proxy="frontend-2"))
    assert mended.status == 0, mended.err
    assert "1 of 1 proxy has it" in mended.out
    assert inspected(koguma, "frontend-2")["status"] == "Online"
    assert koguma("delete", "meshproxypatch", "patch", "--wait").status == 0
    koguma("delete", "meshtimeout", "timeout", "--wait")


def test_what_all_refuse_is_one_finding_and_one_line_in_the_log(
    mesh: Playground, koguma: Koguma, tmp_path: Path
) -> None:
    before = len(findings_in_the_log(mesh))

    ended = applied(koguma, tmp_path, patch("0s"))

    assert ended.status == 1
    assert ended.err.count("[refused-by-envoy]") == 1, ended.err
    assert "3 proxies refuse" in ended.err
    eventually(lambda: len(findings_in_the_log(mesh)) > before)
    (told,) = findings_in_the_log(mesh)[before:]
    assert (told["resource"], told["proxies"]) == ("MeshProxyPatch default/patch", 3)
    shown = koguma("inspect", "dataplane", "frontend-1")
    assert "refuses something" in shown.lines[0]
    assert "made with MeshProxyPatch patch spec.default.appendModifications[0]" in shown.out
    unrelated = applied(koguma, tmp_path, timeout("9s"))
    assert unrelated.status == 0, "an old refusal is not the fault of a new change"
    assert koguma("delete", "meshproxypatch", "patch", "--wait").status == 0
    koguma("delete", "meshtimeout", "timeout", "--wait")


def findings_in_the_log(mesh: Playground) -> list[Any]:
    return [event for event in mesh.control_plane.events("finding") if event["code"] == "refused-by-envoy"]


def test_who_does_not_answer_in_time_is_named(mesh: Playground, koguma: Koguma, tmp_path: Path) -> None:
    envoy = mesh.envoys["frontend-3"]
    envoy.hang()
    try:
        ended = applied(koguma, tmp_path, timeout("10s"), more=("--timeout", "1s"))
    finally:
        envoy.resume()

    assert ended.status == 1
    assert "not within 1s: default.frontend-3 has not answered" in ended.err
    assert "2 of 3 proxies have it" in ended.out
    assert applied(koguma, tmp_path, timeout("11s")).status == 0
    koguma("delete", "meshtimeout", "timeout", "--wait")


def test_a_proxy_that_was_never_there_is_told_with_what_to_do(mesh: Playground, koguma: Koguma, tmp_path: Path) -> None:
    document = {**mesh.proxies["frontend-1"].document, "name": "later"}
    applied(koguma, tmp_path, document)

    shown = koguma("inspect", "dataplane", "later").out

    assert shown.startswith("Dataplane default/later: offline\n")
    assert "koguma dp run --name later" in shown
    koguma("delete", "dataplane", "later")

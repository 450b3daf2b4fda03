"""Several processes serve proxies on one port, and what they are asked about is answered as by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import AF_INET, SO_REUSEPORT, SOCK_STREAM, SOL_SOCKET, socket

import httpx
import psutil
import pytest

from tests.cli.conftest import Koguma
from tests.support.client import Traffic
from tests.support.control_plane import ControlPlane
from tests.support.mesh import Document, mesh_service, policy, request_timeout, service_item
from tests.support.playground import Playground, playground, timeouts
from tests.support.processes import has_ended
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

PROXIES = 6
START = 30.0
"""Seconds for a process to start on a busy machine."""

STREAMS = re.compile(r'^koguma_ads_streams\{[^}]*worker="(\d)"\} (\S+)$', re.MULTILINE)


def timeout(value: str) -> Document:
    return policy("MeshTimeout", "edited", service_item("backend", request_timeout(value)))


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    folder = tmp_path_factory.mktemp("workers")
    with playground(folder, f"sqlite:///{folder}/koguma.db", KOGUMA_WORKERS="2") as mesh:
        mesh.control_plane.apply(mesh_service("backend"), timeout("9s"))
        mesh.service("backend")
        for number in range(PROXIES):
            mesh.client(f"client-{number}", "backend")
        mesh.ready()
        yield mesh


def streams(control_plane: ControlPlane) -> dict[str, float]:
    """How many streams each worker has."""
    text = httpx.get(f"{control_plane.diagnostics.url}/metrics").raise_for_status().text
    found: dict[str, float] = {}
    for worker, count in STREAMS.findall(text):
        found[worker] = found.get(worker, 0) + float(count)
    return found


def workers(control_plane: ControlPlane) -> list[psutil.Process]:
    return [child for child in psutil.Process(control_plane.process.pid).children() if _is_worker(child)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "cp.serving.workers.worker" in process.cmdline()
    except psutil.NoSuchProcess:  # it has just ended
        return False


def everybody_has(mesh: Playground, value: str) -> bool:
    return all(timeouts(mesh.envoys[f"client-{n}"]) == {"/": value} for n in range(PROXIES))


def test_what_proxies_of_several_workers_have_and_refuse_is_told_as_by_one(mesh: Playground, tmp_path: Path) -> None:
    koguma = Koguma(mesh.control_plane.api.url)
    (file := tmp_path / "change.yaml").write_text(json.dumps(timeout("8s")))
    changes = [{"op": "replace", "path": "/connectTimeout", "value": "0s"}]
    name = "kri_msvc_default___backend_main"
    change = {"cluster": {"operation": "Patch", "match": {"name": name}, "jsonPatches": changes}}
    spec = {"default": {"appendModifications": [change]}}
    patch = {"type": "MeshProxyPatch", "mesh": "default", "name": "patch", "spec": spec}
    eventually(lambda: everybody_has(mesh, "9s"))

    whole = koguma("apply", "-f", file, "--wait")
    file.write_text(json.dumps(patch))
    refused = koguma("apply", "-f", file, "--wait")
    listed = koguma("inspect", "dataplanes").lines

    assert f"{PROXIES} of {PROXIES} proxies have it" in whole.out, whole.err
    assert everybody_has(mesh, "8s")
    assert refused.status == 1
    assert refused.err.count("[refused-by-envoy]") == 1
    assert f"{PROXIES} proxies refuse" in refused.err
    assert sum("Refused" in line for line in listed) == PROXIES
    assert "refuses something" in koguma("inspect", "dataplane", "client-0").lines[0]
    assert koguma("delete", "meshproxypatch", "patch", "--wait").status == 0
    file.write_text(json.dumps(timeout("9s")))
    assert koguma("apply", "-f", file, "--wait").status == 0


def test_a_change_reaches_the_proxies_of_every_worker(mesh: Playground) -> None:
    eventually(lambda: sum(streams(mesh.control_plane).values()) == PROXIES + 1)
    assert len(workers(mesh.control_plane)) == 2

    mesh.control_plane.apply(timeout("3s"))

    eventually(lambda: everybody_has(mesh, "3s"))
    in_sync = 'koguma_dataplanes{mesh="default",state="in sync",worker="api"}'
    eventually(lambda: mesh.control_plane.metrics().get(in_sync) == PROXIES + 1)


def test_a_worker_that_dies_is_replaced_and_no_request_fails(mesh: Playground) -> None:
    before = workers(mesh.control_plane)
    with Traffic(mesh.proxies["client-0"].outbound(), per_second=50) as traffic:
        eventually(lambda: len(traffic.outcomes) > 10)
        before[0].kill()
        eventually(
            lambda: len(workers(mesh.control_plane)) == 2 and before[0] not in workers(mesh.control_plane), START
        )
        eventually(lambda: sum(streams(mesh.control_plane).values()) == PROXIES + 1, START)
        mesh.control_plane.apply(timeout("4s"))
        eventually(lambda: everybody_has(mesh, "4s"))
    assert not [outcome for outcome in traffic.outcomes if outcome.status != 200]
    assert len(mesh.control_plane.events("worker.died")) == 1


def test_wait_expects_the_proxies_of_dead_workers_back(mesh: Playground, tmp_path: Path) -> None:
    koguma = Koguma(mesh.control_plane.api.url)
    (file := tmp_path / "change.yaml").write_text(json.dumps(timeout("5s")))
    with ExitStack() as hanging:  # so that no Envoy comes back before its time
        for number in range(PROXIES):
            mesh.envoys[f"client-{number}"].hang()
            hanging.callback(mesh.envoys[f"client-{number}"].resume)
        before, started = workers(mesh.control_plane), len(mesh.control_plane.events("worker.ready"))
        for one in before:
            one.kill()
        eventually(lambda: len(mesh.control_plane.events("worker.ready")) == started + len(before), START)

        early = koguma("apply", "-f", file, "--wait", "--timeout", "1s")

    assert early.status == 1, early.out
    assert "not known within 1s" in early.err
    late = koguma("apply", "-f", file, "--wait")
    assert late.status == 0, late.err
    assert everybody_has(mesh, "5s")


@pytest.mark.long
def test_it_ends_as_a_whole_when_it_is_told_to(tmp_path: Path) -> None:
    with ControlPlane(tmp_path, f"sqlite:///{tmp_path}/koguma.db", KOGUMA_WORKERS="2") as control_plane:
        there = workers(control_plane)

        assert (len(there), control_plane.stop()) == (2, 0)
        assert not [one for one in there if not has_ended(one)]


@pytest.mark.long
def test_workers_do_not_outlive_who_started_them(tmp_path: Path) -> None:
    with ControlPlane(tmp_path, f"sqlite:///{tmp_path}/koguma.db", KOGUMA_WORKERS="2") as control_plane:
        there = workers(control_plane)
        control_plane.kill()

        eventually(lambda: not [one for one in there if not has_ended(one)])


def test_a_port_that_somebody_else_shares_is_an_error(tmp_path: Path) -> None:
    """Otherwise each of two control planes would have half of the proxies, and neither would know."""
    control_plane = ControlPlane(tmp_path, f"sqlite:///{tmp_path}/koguma.db", KOGUMA_WORKERS="2")
    with socket(AF_INET, SOCK_STREAM) as other:
        other.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
        other.bind(control_plane.ads)
        other.listen()
        control_plane.start()

        assert eventually(lambda: control_plane.process.code is not None)
        assert control_plane.process.code == 1
    assert f"cannot listen on {control_plane.ads}" in control_plane.log.read_text()
    control_plane.close()

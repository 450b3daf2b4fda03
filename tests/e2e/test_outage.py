"""Proxies do not need the control plane to go on, and when it is back it does not disturb them."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Traffic, call
from tests.support.mesh import Document, http_route, mesh_service, policy, prefix, request_timeout, route_item, rule
from tests.support.playground import Playground, changed, playground, settled, timeouts
from tests.support.waiting import eventually, holds

pytestmark = pytest.mark.envoy

OUTAGES = [(2.0, 0.5), pytest.param(10.0, 0.8, marks=pytest.mark.long)]
"""How long an outage is, and the share of the traffic that has to be in it: a late start counts more in a short one."""

CONNECTED = "control_plane.connected_state"


def on_route(duration: str) -> Document:
    return policy("MeshTimeout", "on-route", route_item("route", request_timeout(duration)))


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    """A mesh whose resources survive the control plane."""
    folder: Path = tmp_path_factory.mktemp("outage")
    with playground(folder, f"sqlite:///{folder}/koguma.db") as mesh:
        route = http_route("route", "backend", rule(prefix("/slow"), to={"backend": 1}))
        mesh.control_plane.apply(mesh_service("backend"), route, on_route("2s"))
        mesh.service("backend")
        mesh.client("frontend", "backend")
        mesh.ready()
        eventually(lambda: timeouts(mesh.envoys["frontend"]).get("/slow") == "2s")
        yield mesh


def disconnected(mesh: Playground) -> bool:
    return all(envoy.stat(CONNECTED) == 0 for envoy in mesh.envoys.values())


def nobody_listens(mesh: Playground) -> bool:
    """An Envoy that tries to connect calls itself connected for a moment, so it is not asked."""
    with socket.socket() as attempt:
        return attempt.connect_ex(mesh.control_plane.ads) != 0


def reconnected(mesh: Playground) -> bool:
    """Everybody has said what it has, so that an edit is not part of the answer to that."""
    return mesh.control_plane.metrics()['koguma_proxies{state="in sync"}'] == len(mesh.envoys)


@pytest.mark.parametrize(("outage", "share"), OUTAGES)
def test_a_time_without_a_control_plane_costs_no_request_and_resends_nothing(
    mesh: Playground, outage: float, share: float
) -> None:
    eventually(lambda: reconnected(mesh), within=15)
    mesh.control_plane.apply(on_route("2s"))
    eventually(lambda: timeouts(mesh.envoys["frontend"])["/slow"] == "2s", within=15)
    before = {name: settled(envoy) for name, envoy in mesh.envoys.items()}
    with Traffic(mesh.proxies["frontend"].outbound(), per_second=50) as traffic:
        eventually(lambda: len(traffic.outcomes) > 20)
        mesh.control_plane.stop()
        began = time.monotonic()
        eventually(lambda: disconnected(mesh))
        holds(lambda: nobody_listens(mesh), during=outage - (time.monotonic() - began), pause=0.2)
        during = len(traffic.since(began))
        mesh.control_plane.start().ready()
        eventually(lambda: reconnected(mesh), within=15)
        mesh.control_plane.apply(on_route("1s"))  # what would be sent on connecting comes before this
        eventually(lambda: timeouts(mesh.envoys["frontend"])["/slow"] == "1s", within=15)
        after = {name: settled(envoy) for name, envoy in mesh.envoys.items()}

    assert traffic.failures == []
    assert during > outage * 50 * share, "too little traffic to tell"
    assert changed(before["backend"], after["backend"]) == {}
    assert sum(changed(before["frontend"], after["frontend"]).values()) == 1, "more than the one edit was sent"
    taken = [(event["proxy"], event["type"]) for event in mesh.control_plane.events("resources.accepted")]
    assert taken == [("default.frontend", "routes")]


@pytest.mark.long
def test_a_write_right_before_a_power_cut_is_in_force_after_it(mesh: Playground) -> None:
    mesh.control_plane.apply(on_route("3s"))
    mesh.control_plane.kill()
    mesh.control_plane.start().ready()

    eventually(lambda: timeouts(mesh.envoys["frontend"])["/slow"] == "3s", within=15)
    assert call(mesh.proxies["frontend"].outbound()).status == 200


def test_a_control_plane_that_hangs_costs_no_request(mesh: Playground) -> None:
    with Traffic(mesh.proxies["frontend"].outbound(), per_second=100) as traffic:
        mesh.control_plane.hang()
        try:
            eventually(lambda: len(traffic.outcomes) > 100)
        finally:
            mesh.control_plane.resume()
        mesh.control_plane.apply(on_route("4s"))
        eventually(lambda: timeouts(mesh.envoys["frontend"])["/slow"] == "4s", within=15)

    assert traffic.failures == []

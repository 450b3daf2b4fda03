"""A change sends what it changes, and nothing else."""

import time

import pytest

from tests.support.client import TICK, call
from tests.support.mesh import (
    Document,
    http_route,
    mesh_service,
    policy,
    prefix,
    request_timeout,
    route_item,
    rule,
    service_item,
    subset,
)
from tests.support.playground import Playground, accepted, changed, settled, timeouts
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

CALLERS = ("one", "two")


def on_route(duration: str) -> Document:
    return policy("MeshTimeout", "on-route", route_item("route", request_timeout(duration)))


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    """Two proxies that call two services, one of which has a route, and one that calls the other alone."""
    empty_mesh.control_plane.apply(
        mesh_service("backend"),
        mesh_service("other"),
        http_route("route", "backend", rule(prefix("/slow"), to={"backend": 1})),
        policy("MeshTimeout", "on-services", service_item("backend", request_timeout("2s"))),
        on_route("1s"),
    )
    empty_mesh.service("backend").on("/slow", delay=5)
    empty_mesh.service("other")
    for name in CALLERS:
        empty_mesh.client(name, "backend", "other")
    empty_mesh.client("bystander", "other")
    empty_mesh.ready()
    for name in CALLERS:
        eventually(lambda name=name: timeouts(empty_mesh.envoys[name]).get("/slow") == "1s")  # type: ignore[misc]
    return empty_mesh


def test_one_edited_timeout_sends_one_route_configuration_to_those_who_call(mesh: Playground) -> None:
    before = {name: settled(envoy) for name, envoy in mesh.envoys.items()}

    mesh.control_plane.apply(on_route("300ms"))
    for name in CALLERS:
        eventually(lambda name=name: timeouts(mesh.envoys[name])["/slow"] == "0.300s")  # type: ignore[misc]

    moved = {name: changed(before[name], settled(envoy)) for name, envoy in mesh.envoys.items()}
    for name in CALLERS:
        (counter,) = moved.pop(name).items()
        assert counter[1] == 1
        assert ".rds." in counter[0]
        assert "backend" in counter[0]
    assert not any(moved.values()), moved
    assert call(mesh.proxies["one"].outbound("backend"), "/slow").seconds >= 0.3 - TICK


def test_a_change_is_in_force_within_half_a_second(mesh: Playground) -> None:
    mesh.control_plane.apply(on_route("900ms"))
    eventually(lambda: timeouts(mesh.envoys["one"])["/slow"] == "0.900s")

    written = mesh.control_plane.apply(on_route("700ms"))
    eventually(lambda: timeouts(mesh.envoys["one"])["/slow"] == "0.700s", pause=0.005)

    assert time.monotonic() - written < 0.5


def test_writing_the_same_again_sends_nothing(mesh: Playground) -> None:
    mesh.control_plane.apply(on_route("600ms"))
    eventually(lambda: timeouts(mesh.envoys["two"])["/slow"] == "0.600s")
    before = {name: settled(envoy) for name, envoy in mesh.envoys.items()}

    mesh.control_plane.apply(on_route("600ms"), mesh_service("backend"))
    mesh.control_plane.apply(on_route("500ms"))  # once this one is there, the others would be
    eventually(lambda: timeouts(mesh.envoys["two"])["/slow"] == "0.500s")

    assert sum(changed(before["two"], settled(mesh.envoys["two"])).values()) == 1
    assert changed(before["bystander"], accepted(mesh.envoys["bystander"])) == {}


@pytest.mark.long
def test_a_policy_that_is_about_nobody_sends_nothing(mesh: Playground) -> None:
    before = {name: settled(envoy) for name, envoy in mesh.envoys.items()}
    item = service_item("backend", request_timeout("10s"))
    nobody = policy("MeshTimeout", "for-nobody", item, target=subset(team="none"))

    with mesh.having(nobody):
        after = {name: settled(envoy) for name, envoy in mesh.envoys.items()}

    assert after == before


def test_a_new_instance_gets_requests_and_a_removed_one_gets_none(mesh: Playground) -> None:
    backend = mesh.proxies["one"].outbound("other")
    assert {call(backend).service for _ in range(10)} == {"other"}

    mesh.service("other-2", "other")
    mesh.envoys["other-2"].ready()
    eventually(lambda: {call(backend).service for _ in range(10)} == {"other", "other-2"})
    mesh.control_plane.delete(mesh.proxies["other-2"].document)
    eventually(lambda: {call(backend).service for _ in range(10)} == {"other"})

    assert {call(backend).status for _ in range(20)} == {200}

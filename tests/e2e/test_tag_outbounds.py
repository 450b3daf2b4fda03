"""Outbounds by the tag `kuma.io/service`, as documents without MeshServices have them; and services of plain TCP."""

import pytest

from tests.support.client import TICK, call, greeting
from tests.support.mesh import http_route, mesh_service, policy, prefix, request_timeout, rule, service_item
from tests.support.playground import Playground, timeouts
from tests.support.services import TcpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

BY_TAG = "tag=backend"


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    for version in ("v1", "v2"):
        empty_mesh.service(f"backend-{version}", "backend", version=version).on("/slow", delay=5)
    empty_mesh.client("frontend", BY_TAG)
    empty_mesh.ready()
    return empty_mesh


def test_a_tag_reaches_every_dataplane_that_has_it(mesh: Playground) -> None:
    backend = mesh.proxies["frontend"].outbound(BY_TAG)
    eventually(lambda: call(backend).status == 200)

    assert {call(backend).service for _ in range(20)} == {"backend-v1", "backend-v2"}


def test_a_policy_on_a_service_of_this_name_is_about_the_tag_too(mesh: Playground) -> None:
    with mesh.having(policy("MeshTimeout", "timeout", service_item("backend", request_timeout("300ms")))):
        eventually(lambda: timeouts(mesh.envoys["frontend"]) == {"/": "0.300s"})

        answer = call(mesh.proxies["frontend"].outbound(BY_TAG), "/slow")

    assert answer.status == 504
    assert answer.seconds >= 0.3 - TICK


def test_a_route_to_a_subset_of_the_tag_reaches_that_subset(mesh: Playground) -> None:
    to_v2 = {"kind": "MeshServiceSubset", "name": "backend", "tags": {"version": "v2"}}
    backend = mesh.proxies["frontend"].outbound(BY_TAG)
    with mesh.having(http_route("v2", "backend", rule(prefix("/v2"), backendRefs=[to_v2]))):
        eventually(lambda: {call(backend, "/v2").service for _ in range(10)} == {"backend-v2"})

        assert {call(backend).service for _ in range(20)} == {"backend-v1", "backend-v2"}


def test_tcp_comes_through_to_whoever_serves_it(mesh: Playground) -> None:
    with TcpService("database") as database:
        mesh.control_plane.apply(mesh_service("database", protocol="tcp"))
        mesh.tcp("database", database.address)
        client = mesh.client("client", "database")
        mesh.envoys["database"].ready()
        mesh.envoys["client"].ready()

        assert eventually(lambda: greeting(client.outbound()) or None) == "database"

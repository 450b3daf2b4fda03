"""How often a failing service is asked: as often as the rule of the route says, or else that of the service."""

import pytest

from tests.support.client import call
from tests.support.loopback import Address
from tests.support.mesh import Document, http_route, mesh_service, policy, prefix, route_item, rule, service_item
from tests.support.playground import Playground, retries
from tests.support.services import HttpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

ROUTED, ELSE = "/routed", "/else"


def tries(retried: int) -> Document:
    back_off = {"baseInterval": "1ms", "maxInterval": "5ms"}
    return {"http": {"numRetries": retried, "retryOn": ["5xx"], "backOff": back_off}}


def on_route(retried: int) -> Document:
    return policy("MeshRetry", "on-route", route_item("route", tries(retried)))


def on_service(retried: int) -> Document:
    return policy("MeshRetry", "on-service", service_item("backend", tries(retried)))


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    route = http_route("route", "backend", rule(prefix(ROUTED), to={"backend": 1}))
    empty_mesh.control_plane.apply(mesh_service("backend"), route)
    empty_mesh.service("backend")
    empty_mesh.client("frontend", "backend")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def service(mesh: Playground) -> HttpService:
    return mesh.services["backend"]


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound()


def held(mesh: Playground, routed: int | None, otherwise: int | None) -> None:
    """Wait until the frontend's Envoy retries this often."""
    eventually(lambda: retries(mesh.envoys["frontend"]) == {ROUTED: routed, "/": otherwise})


@pytest.mark.parametrize("failures", [1, 3])
def test_a_service_that_fails_n_times_is_asked_once_more_on_the_route_and_once_elsewhere(
    mesh: Playground, service: HttpService, backend: Address, failures: int
) -> None:
    with mesh.having(on_route(3)):
        held(mesh, routed=3, otherwise=None)
        service.on(ROUTED, failures=failures)
        service.on(ELSE, failures=failures)

        assert (call(backend, ROUTED).status, service.hits(ROUTED)) == (200, failures + 1)
        assert (call(backend, ELSE).status, service.hits(ELSE)) == (503, 1)


def test_a_service_that_goes_on_failing_is_given_up(mesh: Playground, service: HttpService, backend: Address) -> None:
    with mesh.having(on_route(2)):
        held(mesh, routed=2, otherwise=None)
        service.on(ROUTED, failures=10)

        assert (call(backend, ROUTED).status, service.hits(ROUTED)) == (503, 3)


def test_zero_on_the_route_switches_the_retries_of_the_service_off(
    mesh: Playground, service: HttpService, backend: Address
) -> None:
    with mesh.having(on_service(3), on_route(0)):
        held(mesh, routed=None, otherwise=3)
        service.on(ROUTED, failures=2)
        service.on(ELSE, failures=2)

        assert (call(backend, ROUTED).status, service.hits(ROUTED)) == (503, 1)
        assert (call(backend, ELSE).status, service.hits(ELSE)) == (200, 3)


def test_what_the_route_leaves_out_is_the_services(mesh: Playground, service: HttpService, backend: Address) -> None:
    count_alone = policy("MeshRetry", "on-route", route_item("route", {"http": {"numRetries": 1}}))
    with mesh.having(on_service(3), count_alone):
        held(mesh, routed=1, otherwise=3)
        service.on(ROUTED, failures=3, failure=500)

        assert (call(backend, ROUTED).status, service.hits(ROUTED)) == (500, 2)


def test_without_a_policy_nothing_is_tried_again(mesh: Playground, service: HttpService, backend: Address) -> None:
    held(mesh, routed=None, otherwise=None)
    service.on(ROUTED, failures=1)

    assert (call(backend, ROUTED).status, service.hits(ROUTED)) == (503, 1)

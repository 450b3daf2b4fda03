"""What is tried again, when, and on whom: the fields of MeshRetry for HTTP.

How routes and their services share them is in test_route_retries, connections of TCP are in test_tcp_routes.
"""

import time
from collections.abc import Mapping
from statistics import mean
from typing import Any

import pytest

from tests.support.client import TICK, call
from tests.support.loopback import Address, new_address
from tests.support.mesh import (
    Document,
    bare_dataplane,
    http_route,
    mesh_service,
    policy,
    prefix,
    route_item,
    rule,
    service_item,
)
from tests.support.playground import Playground, rows
from tests.support.services import HANG_UP, HttpService
from tests.support.upstreams import at_once, upstream
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

ALWAYS = 1_000_000
TRIED_AGAIN_AT_ONCE = 3
"""As many as Envoy allows unless a MeshCircuitBreaker says otherwise."""

QUICKLY: Document = {"baseInterval": "1ms", "maxInterval": "2ms"}
AT_RANDOM = policy("MeshLoadBalancingStrategy", "random", service_item("twins", {"loadBalancer": {"type": "Random"}}))


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    """Services of one instance each, and one of two."""
    empty_mesh.control_plane.apply(*map(mesh_service, ("backend", "other", "twins")))
    empty_mesh.bare("backend", "backend")
    empty_mesh.bare("other", "other")
    for version in ("v1", "v2"):
        empty_mesh.bare(f"twin-{version}", "twins", version=version)
    empty_mesh.client("frontend", "backend", "other", "twins")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def service(mesh: Playground) -> HttpService:
    return mesh.services["backend"]


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("backend")


@pytest.fixture
def twins(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("twins")


def retrying(service: str = "backend", **http: Any) -> Document:
    conf = {"numRetries": 1, "backOff": QUICKLY, **http}
    return policy("MeshRetry", "retries", service_item(service, {"http": conf}))


def held(mesh: Playground, service: str = "backend") -> None:
    """Wait until the frontend's Envoy has a retry policy for this service, and for no other."""

    def retried() -> set[str]:
        actions = [row["route"] for row in rows(mesh.envoys["frontend"])]
        return {action["cluster"] for action in actions if "retry_policy" in action}

    eventually(lambda: retried() == {upstream(mesh.envoys["frontend"], service)["name"]})


def tries(
    service: HttpService, address: Address, method: str = "GET", sent: Mapping[str, str] | None = None, **told: Any
) -> int:
    """How often a service is asked that is told to fail once, and how."""
    service.on("/fails", **{"failures": 1, **told})
    call(address, "/fails", method, sent)
    return service.hits("/fails")


@pytest.mark.parametrize(
    ("condition", "retried", "left_alone"),
    [
        ("5xx", {"failure": 500}, {"failure": 409}),
        ("GatewayError", {"failure": 502}, {"failure": 500}),
        ("Reset", {"failure": HANG_UP}, {"failure": 503}),
        ("Retriable4xx", {"failure": 409}, {"failure": 404}),
        ("EnvoyRatelimited", {"failure": 429, "headers": {"x-envoy-ratelimited": "true"}}, {"failure": 429}),
        ("418", {"failure": 418}, {"failure": 417}),
    ],
)
def test_only_what_is_named_is_tried_again(
    mesh: Playground, backend: Address, condition: str, retried: dict[str, Any], left_alone: dict[str, Any]
) -> None:
    service, other = mesh.services["backend"], mesh.proxies["frontend"].outbound("other")
    with mesh.having(retrying(retryOn=[condition])):
        held(mesh)

        assert tries(service, backend, **retried) == 2
        assert tries(service, backend, **left_alone) == 1
        assert tries(mesh.services["other"], other, **retried) == 1


def test_what_is_not_named_has_a_default(mesh: Playground, service: HttpService, backend: Address) -> None:
    with mesh.having(retrying()):
        held(mesh)

        assert tries(service, backend, failure=503) == 2
        assert tries(service, backend, failure=500) == 1


def test_only_requests_with_a_method_are_tried_again(mesh: Playground, service: HttpService, backend: Address) -> None:
    with mesh.having(retrying(retryOn=["5xx", "HttpMethodGet"])):
        held(mesh)

        assert tries(service, backend) == 2
        assert tries(service, backend, "POST") == 1


def test_only_requests_with_a_header_are_tried_again(mesh: Playground, service: HttpService, backend: Address) -> None:
    wanted = {"type": "Prefix", "name": "x-safe", "value": "yes"}
    with mesh.having(retrying(retryOn=["5xx"], retriableRequestHeaders=[wanted])):
        held(mesh)

        assert tries(service, backend, sent={"x-safe": "yes, it is"}) == 2
        assert tries(service, backend, sent={"x-safe": "no"}) == 1
        assert tries(service, backend) == 1


def test_a_header_of_the_answer_has_it_tried_again(mesh: Playground, service: HttpService, backend: Address) -> None:
    wanted = {"type": "Exact", "name": "x-again", "value": "please"}
    with mesh.having(retrying(retriableResponseHeaders=[wanted])):
        held(mesh)

        assert tries(service, backend, failure=200, headers={"x-again": "please"}) == 2
        assert tries(service, backend, failure=200, headers={"x-again": "never"}) == 1


def test_each_try_has_a_time_of_its_own(mesh: Playground, service: HttpService, backend: Address) -> None:
    service.on("/slow", delay=5)
    with mesh.having(retrying(numRetries=2, perTryTimeout="200ms", retryOn=["5xx"])):
        held(mesh)
        answer = call(backend, "/slow")

    assert (answer.status, service.hits("/slow")) == (504, 3)
    assert answer.seconds >= 0.6 - TICK


def test_who_cannot_be_reached_is_not_asked_again(mesh: Playground, twins: Address) -> None:
    away = bare_dataplane("twin-away", "twins", new_address())
    with mesh.having(away):
        eventually(lambda: 503 in statuses(twins, 6))
        with mesh.having(retrying("twins", numRetries=3, retryOn=["ConnectFailure"])):
            held(mesh, "twins")

            assert set(statuses(twins, 30)) == {200}
            mesh.services["twin-v1"].on("/", failures=1)
            assert sorted(statuses(twins, 6)) == [200] * 5 + [503]


def statuses(address: Address, times: int) -> list[int]:
    return [call(address).status for _ in range(times)]


@pytest.mark.parametrize(
    "predicate",
    [{"predicate": "OmitPreviousHosts"}, {"predicate": "OmitHostsWithTags", "tags": {"version": "v1"}}],
    ids=["previous", "tags"],
)
def test_of_two_instances_of_which_one_fails_the_other_is_asked(
    mesh: Playground, twins: Address, predicate: Document
) -> None:
    """Chosen at random, the same one would be asked again half of the time."""
    mesh.services["twin-v1"].on("/", failures=ALWAYS)
    try:
        with mesh.having(AT_RANDOM):
            eventually(lambda: upstream(mesh.envoys["frontend"], "twins")["lb_policy"] == "RANDOM")
            with mesh.having(retrying("twins", retryOn=["5xx"])):
                held(mesh, "twins")
                assert set(statuses(twins, 40)) == {200, 503}
            selection = {"hostSelection": [predicate], "hostSelectionMaxAttempts": 20}
            with mesh.having(retrying("twins", retryOn=["5xx"], **selection)):
                held(mesh, "twins")

                assert set(statuses(twins, 60)) == {200}
    finally:
        mesh.services["twin-v1"].on("/")


@pytest.mark.parametrize(
    ("back_off", "least"),
    [({"baseInterval": "1ms", "maxInterval": "2ms"}, 0.0), ({"baseInterval": "300ms", "maxInterval": "300ms"}, 0.35)],
    ids=["short", "long"],
)
def test_between_tries_some_time_passes(
    mesh: Playground, service: HttpService, backend: Address, back_off: Document, least: float
) -> None:
    """Each pause is of any length up to its interval: four of 0.3 s are 0.6 s on average, by default it is 0.19 s."""
    with mesh.having(retrying(numRetries=4, retryOn=["5xx"], backOff=back_off)):
        held(mesh)
        service.on("/fails", failures=ALWAYS)
        answers = [answer for _ in range(2) for answer in at_once(backend, TRIED_AGAIN_AT_ONCE, "/fails")]

    assert service.hits("/fails") == 5 * len(answers)
    assert mean(answer.seconds for answer in answers) >= least


@pytest.mark.parametrize("form", ["Seconds", "UnixTimestamp"])
def test_who_says_when_to_come_again_is_heeded(
    mesh: Playground, service: HttpService, backend: Address, form: str
) -> None:
    limited = {"resetHeaders": [{"name": "x-reset", "format": form}], "maxInterval": "10s"}
    with mesh.having(retrying(retryOn=["429"], rateLimitedBackOff=limited)):
        held(mesh)
        reset = "1" if form == "Seconds" else str(int(time.time()) + 2)
        service.on("/fails", failures=1, failure=429, headers={"x-reset": reset})
        answer = call(backend, "/fails")

    assert (answer.status, service.hits("/fails")) == (200, 2)
    assert answer.seconds >= 0.9 - TICK


def test_who_wants_us_to_come_back_too_late_is_not_heeded(
    mesh: Playground, service: HttpService, backend: Address
) -> None:
    limited = {"resetHeaders": [{"name": "x-reset", "format": "Seconds"}], "maxInterval": "2s"}
    with mesh.having(retrying(retryOn=["429"], rateLimitedBackOff=limited)):
        held(mesh)
        service.on("/fails", failures=1, failure=429, headers={"x-reset": "60"})
        answer = call(backend, "/fails")

    assert (answer.status, service.hits("/fails")) == (200, 2)


def test_conditions_hold_for_one_route_and_not_for_its_service(
    mesh: Playground, service: HttpService, backend: Address
) -> None:
    route = http_route("route", "backend", rule(prefix("/routed"), to={"backend": 1}))
    conf = {"http": {"numRetries": 1, "retryOn": ["418"], "backOff": QUICKLY}}
    on_route = policy("MeshRetry", "on-route", route_item("route", conf))
    with mesh.having(route, on_route):
        held(mesh)
        for path in ("/routed", "/else"):
            service.on(path, failures=1, failure=418)

        assert (call(backend, "/routed").status, service.hits("/routed")) == (200, 2)
        assert (call(backend, "/else").status, service.hits("/else")) == (418, 1)

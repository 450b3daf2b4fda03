"""How much is sent to a service at once, and which of its instances are left alone after they failed."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.client import Answer, call
from tests.support.loopback import Address, new_address
from tests.support.mesh import Document, bare_dataplane, mesh_service, policy, service_item
from tests.support.playground import Playground, rows
from tests.support.upstreams import answering, at_once, upstream
from tests.support.waiting import eventually

pytestmark = [pytest.mark.envoy, pytest.mark.long]

INSTANCES = {"backend-1", "backend-2", "backend-3"}
BAD = "backend-1"
SLOW, ALWAYS = "/slow", 1_000_000
RATE = {"minimumHosts": 3, "requestVolume": 3}


def breaking(default: Document, service: str = "backend") -> Document:
    return policy("MeshCircuitBreaker", f"breaking-{service}", service_item(service, default))


def ejecting(**detection: object) -> Document:
    """Whoever is found is ejected within a moment, and for longer than a test."""
    at_once = {"interval": "200ms", "baseEjectionTime": "60s", "maxEjectionPercent": 100}
    return breaking({"outlierDetection": {**at_once, **detection}})


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("backend"), mesh_service("other"))
    for name in sorted(INSTANCES):
        empty_mesh.bare(name, "backend").on(SLOW, delay=0.4)
    empty_mesh.service("other").on(SLOW, delay=0.4)
    empty_mesh.client("frontend", "backend", "other")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("backend")


@pytest.fixture
def other(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("other")


@contextmanager
def failing(mesh: Playground, status: int, *names: str) -> Iterator[None]:
    """Instances that answer every request with this status."""
    for name in names:
        mesh.services[name].on("/", failures=ALWAYS, failure=status)
    yield
    for name in names:
        mesh.services[name].on("/")


def held(mesh: Playground, *, service: str = "backend", field: str = "outlier_detection") -> None:
    eventually(lambda: upstream(mesh.envoys["frontend"], service)[field])


def turned_away(answers: list[Answer]) -> int:
    return sum(1 for answer in answers if answer.status == 503 and "x-envoy-overloaded" in answer.headers)


def failed_often_enough(backend: Address) -> None:
    """Everybody has answered more requests than any detector needs to see fail."""
    assert answering(backend, 60).count(BAD) >= 10


@pytest.mark.parametrize(
    "limits",
    [{"maxRequests": 2}, {"maxConnections": 1, "maxPendingRequests": 1}],
    ids=["requests", "connections"],
)
def test_what_is_too_much_for_one_service_is_turned_away(
    mesh: Playground, backend: Address, other: Address, limits: Document
) -> None:
    with mesh.having(breaking({"connectionLimits": limits})):
        eventually(lambda: upstream(mesh.envoys["frontend"], "backend")["circuit_breakers"])
        crowd, others = at_once(backend, 12, SLOW), at_once(other, 12, SLOW)

    assert turned_away(crowd) >= 6
    assert any(answer.status == 200 for answer in crowd)
    assert turned_away(others) == 0


def test_where_connections_are_few_requests_wait_for_each_other(mesh: Playground, other: Address) -> None:
    with mesh.having(breaking({"connectionLimits": {"maxConnections": 1, "maxPendingRequests": 100}}, "other")):
        held(mesh, service="other", field="circuit_breakers")
        waited = max(answer.seconds for answer in at_once(other, 4, SLOW))

    assert waited > 4 * 0.4 - 0.05


@pytest.mark.parametrize(("limit", "tries"), [(100, 36), (1, None)])
def test_only_so_many_requests_are_tried_again_at_once(
    mesh: Playground, other: Address, limit: int, tries: int | None
) -> None:
    """Each of 12 requests fails three times if it may."""
    back_off = {"baseInterval": "1ms", "maxInterval": "2ms"}
    retrying = policy(
        "MeshRetry", "r", service_item("other", {"http": {"numRetries": 2, "retryOn": ["5xx"], "backOff": back_off}})
    )
    with mesh.having(retrying, breaking({"connectionLimits": {"maxRetries": limit}}, "other")):
        held(mesh, service="other", field="circuit_breakers")
        eventually(lambda: any("retry_policy" in row["route"] for row in rows(mesh.envoys["frontend"])))
        mesh.services["other"].on("/fails", failures=ALWAYS, delay=0.2)
        at_once(other, 12, "/fails")

    hits = mesh.services["other"].hits("/fails")
    assert hits == tries if tries else hits < 24


def test_without_a_policy_nobody_is_turned_away(backend: Address) -> None:
    eventually(lambda: turned_away(at_once(backend, 12, SLOW)) == 0)


def test_a_service_limits_what_reaches_it_itself(mesh: Playground, backend: Address, other: Address) -> None:
    spec = {
        "targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/service": "other"}},
        "rules": [{"default": {"connectionLimits": {"maxRequests": 2}}}],
    }
    with mesh.having({"type": "MeshCircuitBreaker", "mesh": "default", "name": "inbound", "spec": spec}):
        eventually(lambda: turned_away(at_once(other, 12, SLOW)) > 0)
        crowd = at_once(other, 12, SLOW)

        assert turned_away(crowd) >= 6
        assert any(answer.status == 200 for answer in crowd)
        assert turned_away(at_once(backend, 12, SLOW)) == 0
        assert "circuit_breakers" not in upstream(mesh.envoys["frontend"], "other")


@pytest.mark.parametrize(
    ("detector", "conf", "status"),
    [
        ("totalFailures", {"consecutive": 2}, 500),
        ("gatewayFailures", {"consecutive": 2}, 503),
        ("successRate", {**RATE, "standardDeviationFactor": "1"}, 500),
        ("failurePercentage", {**RATE, "threshold": 50}, 500),
    ],
)
def test_who_fails_is_left_alone(
    mesh: Playground, backend: Address, detector: str, conf: Document, status: int
) -> None:
    with mesh.having(ejecting(detectors={detector: conf})), failing(mesh, status, BAD):
        held(mesh)
        eventually(lambda: BAD not in answering(backend, 20))

        assert {call(backend).status for _ in range(20)} == {200}


def test_only_what_a_detector_looks_for_counts(mesh: Playground, backend: Address) -> None:
    with mesh.having(ejecting(detectors={"gatewayFailures": {"consecutive": 1}})), failing(mesh, 500, BAD):
        held(mesh)
        failed_often_enough(backend)

        assert set(answering(backend, 30)) == INSTANCES


def test_who_cannot_be_reached_is_left_alone(mesh: Playground, backend: Address) -> None:
    local = {"detectors": {"localOriginFailures": {"consecutive": 1}}, "splitExternalAndLocalErrors": True}
    nobody = bare_dataplane("backend-4", "backend", new_address())
    with mesh.having(nobody):
        eventually(lambda: call(backend).status == 503)
        with mesh.having(ejecting(**local)):
            eventually(lambda: {call(backend).status for _ in range(20)} == {200})

            assert set(answering(backend, 20)) == INSTANCES


def test_who_was_left_alone_gets_another_chance(mesh: Playground, backend: Address) -> None:
    soon = {"baseEjectionTime": "300ms", "detectors": {"totalFailures": {"consecutive": 1}}}
    with mesh.having(ejecting(**soon)):
        held(mesh)
        with failing(mesh, 500, BAD):
            eventually(lambda: BAD not in answering(backend, 20))

        eventually(lambda: BAD in answering(backend, 20))


def test_disabled_is_off(mesh: Playground, backend: Address) -> None:
    on = {"outlierDetection": {"detectors": {"totalFailures": {"consecutive": 1}}, "maxEjectionPercent": 100}}
    everywhere = policy("MeshCircuitBreaker", "all", {"targetRef": {"kind": "Mesh"}, "default": on})
    with mesh.having(everywhere, ejecting(disabled=True, detectors={"totalFailures": {}})), failing(mesh, 500, BAD):
        held(mesh, service="other")
        failed_often_enough(backend)

        assert set(answering(backend, 30)) == INSTANCES


@pytest.mark.parametrize(("threshold", "still_asked"), [(0, False), (100, True)])
def test_where_too_many_fail_all_are_asked_again(
    mesh: Playground, backend: Address, threshold: int, *, still_asked: bool
) -> None:
    all_out = {"healthyPanicThreshold": threshold, "detectors": {"totalFailures": {"consecutive": 1}}}
    with mesh.having(ejecting(**all_out)), failing(mesh, 500, *INSTANCES):
        held(mesh)
        ejected = "cluster.kri_msvc_default___backend_main.outlier_detection.ejections_active"
        eventually(lambda: answering(backend, 3) and mesh.envoys["frontend"].stat(ejected) == len(INSTANCES))
        eventually(lambda: any(answering(backend, 6)) is still_asked)

        assert any(answering(backend, 20)) is still_asked

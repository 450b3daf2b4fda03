"""Whom a caller reaches by where they are: its own zone first, what is near more often, others in the order given."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.client import call
from tests.support.loopback import Address
from tests.support.mesh import Document, bare_dataplane, mesh_service, policy, service_item
from tests.support.playground import Playground
from tests.support.upstreams import answering, upstream
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

ZONE = "kuma.io/zone"
BACKENDS = {
    "a-near": {ZONE: "a", "rack": "1"},
    "a-far": {ZONE: "a", "rack": "2"},
    "b": {ZONE: "b", "rack": "1"},
    "c": {ZONE: "c", "rack": "1"},
}
OWN, EVERYBODY = {"a-near", "a-far"}, set(BACKENDS)
ANY: Document = {"to": {"type": "Any"}}


def only(zone: str) -> Document:
    return {"to": {"type": "Only", "zones": [zone]}}


def located(awareness: Document) -> Document:
    return policy("MeshLoadBalancingStrategy", "zones", service_item("backend", {"localityAwareness": awareness}))


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("backend"))
    for name, tags in BACKENDS.items():
        empty_mesh.bare(name, "backend", **tags)
    empty_mesh.client("in-a", "backend", **{ZONE: "a", "rack": "1"})
    empty_mesh.client("in-b", "backend", **{ZONE: "b"})
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["in-a"].outbound()


@contextmanager
def without(mesh: Playground, *names: str) -> Iterator[None]:
    """Some instances say of themselves that they are not ready."""
    gone = [bare_dataplane(n, "backend", mesh.services[n].address, "NotReady", **BACKENDS[n]) for n in names]
    with mesh.having(*gone):
        yield


def reached(backend: Address, *expected: str) -> bool:
    """Whether these are reached, and nobody else, once what changed has arrived."""
    eventually(lambda: set(answering(backend, 12)) == set(expected))
    return set(answering(backend, 30)) == set(expected)


def test_each_caller_reaches_its_own_zone(mesh: Playground, backend: Address) -> None:
    assert reached(backend, *OWN)
    assert reached(mesh.proxies["in-b"].outbound(), "b")


def test_other_zones_answer_when_nobody_is_left_in_the_own_one(mesh: Playground, backend: Address) -> None:
    with without(mesh, *OWN):
        assert reached(backend, "b", "c")


def test_all_zones_are_alike_when_nobody_shall_look(mesh: Playground, backend: Address) -> None:
    with mesh.having(located({"disabled": True})):
        assert reached(backend, *EVERYBODY)


def test_who_is_near_answers_by_weight(mesh: Playground, backend: Address) -> None:
    with mesh.having(located({"localZone": {"affinityTags": [{"key": "rack", "weight": 9}]}})):
        eventually(
            lambda: "locality_weighted_lb_config" in upstream(mesh.envoys["in-a"], "backend")["common_lb_config"]
        )
        eventually(lambda: Counter(answering(backend, 20))["a-near"] >= 16)
        answers = Counter(answering(backend, 200))

    assert answers["a-near"] == pytest.approx(180, abs=12)
    assert answers["a-near"] + answers["a-far"] == 200


def test_a_zone_alone_has_nobody_to_fall_back_on(mesh: Playground, backend: Address) -> None:
    with mesh.having(located({"localZone": {}})), without(mesh, *OWN):
        eventually(lambda: call(backend).status == 503)

        assert {call(backend).status for _ in range(10)} == {503}


def test_zones_stand_in_for_each_other_in_the_order_that_is_given(mesh: Playground, backend: Address) -> None:
    with mesh.having(located({"crossZone": {"failover": [only("c"), ANY]}})):
        assert reached(backend, *OWN)
        with without(mesh, *OWN):
            assert reached(backend, "c")
            with without(mesh, "c"):
                assert reached(backend, "b")


def test_a_rule_is_for_the_zones_that_it_names(mesh: Playground, backend: Address) -> None:
    of_b = {"from": {"zones": ["b"]}, **only("c")}
    with mesh.having(located({"crossZone": {"failover": [of_b, only("b")]}})), without(mesh, *OWN, "b"):
        assert reached(mesh.proxies["in-b"].outbound(), "c")

        assert call(backend).status == 503


@pytest.mark.parametrize(("threshold", "others_help"), [(90, True), (50, False)])
def test_other_zones_help_below_the_threshold(
    mesh: Playground, backend: Address, threshold: int, *, others_help: bool
) -> None:
    """Half of the own zone is well: less than 90 percent of it, and enough for 50."""
    detectors = {"totalFailures": {"consecutive": 1}}
    ejecting = {"outlierDetection": {"maxEjectionPercent": 100, "interval": "100ms", "detectors": detectors}}
    cross_zone = {"failover": [ANY], "failoverThreshold": {"percentage": threshold}}
    mesh.services["a-far"].on("/", failures=1_000)
    with (
        mesh.having(policy("MeshCircuitBreaker", "ejecting", service_item("backend", ejecting))),
        mesh.having(located({"crossZone": cross_zone})),
    ):
        eventually(lambda: "a-far" not in answering(backend, 20))
        answers = set(answering(backend, 40))
    mesh.services["a-far"].on("/")

    assert answers == ({"a-near", "b", "c"} if others_help else {"a-near"})

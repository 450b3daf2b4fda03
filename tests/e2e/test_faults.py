"""Requests that fail or are slow on purpose, for everybody or for those who have certain tags."""

from collections import Counter

import pytest

from tests.support.client import TICK, Answer, call
from tests.support.loopback import Address
from tests.support.mesh import Document, mesh_service
from tests.support.playground import Playground
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

ALWAYS = 100


def faulty(service: str, *items: Document, field: str = "rules") -> Document:
    target = {"kind": "MeshSubset", "tags": {"kuma.io/service": service}, "proxyTypes": ["Sidecar"]}
    spec = {"targetRef": target, field: list(items)}
    return {"type": "MeshFaultInjection", "mesh": "default", "name": f"faults-of-{service}", "spec": spec}


def fault(**what: object) -> Document:
    return {"default": {"http": [what]}}


def abort(status: int, percentage: int = ALWAYS) -> Document:
    return fault(abort={"httpStatus": status, "percentage": percentage})


def from_subset(**tags: str) -> Document:
    return {"targetRef": {"kind": "MeshSubset", "tags": tags}}


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("backend"), mesh_service("other"))
    empty_mesh.service("backend")
    empty_mesh.service("other")
    empty_mesh.client("mobile", "backend", "other", "tag=backend", tier="a.b")
    empty_mesh.client("desktop", "backend", tier="axb")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def mobile(mesh: Playground) -> Address:
    return mesh.proxies["mobile"].outbound("backend")


@pytest.fixture
def desktop(mesh: Playground) -> Address:
    return mesh.proxies["desktop"].outbound("backend")


def answered(address: Address, status: int) -> Answer:
    """The first answer with a status."""

    def there() -> Answer:
        answer = call(address)
        assert answer.status == status
        return answer

    return eventually(there)


def test_requests_to_one_service_fail(mesh: Playground, mobile: Address) -> None:
    with mesh.having(faulty("backend", abort(418))):
        answered(mobile, 418)

        assert call(mesh.proxies["mobile"].outbound("tag=backend")).status == 418
        assert [call(mesh.proxies["mobile"].outbound("other")).status for _ in range(5)] == [200] * 5
    answered(mobile, 200)


def test_as_many_fail_as_was_said(mesh: Playground, mobile: Address) -> None:
    with mesh.having(faulty("backend", abort(418, percentage=50))):
        answered(mobile, 418)
        statuses = Counter(call(mobile).status for _ in range(200))

    assert statuses.keys() == {200, 418}
    assert 60 <= statuses[418] <= 140  # 5.6 standard deviations


def test_requests_are_slow(mesh: Playground, mobile: Address) -> None:
    with mesh.having(faulty("backend", fault(delay={"value": "400ms", "percentage": ALWAYS}))):
        eventually(lambda: call(mobile).seconds >= 0.39 - TICK)

        assert call(mobile).seconds >= 0.39 - TICK
        assert min(call(mesh.proxies["mobile"].outbound("other")).seconds for _ in range(10)) < 0.39


def test_answers_trickle(mesh: Playground, mobile: Address) -> None:
    """An answer that repeats 4 KiB of the request, at 10 KiB/s."""
    bulky = {"x-bulky": "x" * 4096}
    with mesh.having(faulty("backend", fault(responseBandwidth={"limit": "82 kbps", "percentage": ALWAYS}))):
        eventually(lambda: call(mobile, headers=bulky).seconds >= 0.3 - TICK)

        assert call(mobile, headers=bulky).seconds >= 0.3 - TICK


def test_clients_are_told_apart_by_their_tags(mesh: Playground, mobile: Address, desktop: Address) -> None:
    everybody = {"targetRef": {"kind": "Mesh"}, **abort(418)}
    chosen = {**from_subset(tier="a.b"), **abort(419)}
    with mesh.having(faulty("backend", everybody, chosen, field="from")):
        answered(mobile, 419)
        answered(desktop, 418)

        assert [call(mobile).status for _ in range(5)] == [419] * 5
        assert call(mesh.proxies["mobile"].outbound("tag=backend")).status == 419
        assert call(mesh.proxies["backend"].inbound).status == 418
    answered(desktop, 200)


def test_services_are_not_told_the_tags_of_clients(mesh: Playground, mobile: Address, desktop: Address) -> None:
    chosen = {**from_subset(tier="a.b"), **abort(419)}
    with mesh.having(faulty("backend", chosen, field="from")):
        answered(mobile, 419)

        assert "x-kuma-tags" in call(mesh.proxies["mobile"].outbound("other")).seen["headers"]
        assert "x-kuma-tags" not in call(desktop).seen["headers"]
    eventually(lambda: "x-kuma-tags" not in call(mesh.proxies["mobile"].outbound("other")).seen["headers"])

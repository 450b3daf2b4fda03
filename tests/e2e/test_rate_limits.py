"""How many requests and connections a service takes, and what the others are told."""

import pytest

from tests.support.client import Answer, call, greeting
from tests.support.loopback import Address
from tests.support.mesh import Document, mesh_service
from tests.support.playground import Playground
from tests.support.services import TcpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

LONG = "60s"


def limiting(service: str, *rules: Document, field: str = "rules") -> Document:
    tags = {"kuma.io/service": service}
    target = {"kind": "MeshSubset", "tags": tags, "proxyTypes": ["Sidecar"]}
    spec = {"targetRef": target, field: list(rules)}
    return {"type": "MeshRateLimit", "mesh": "default", "name": f"limit-{service}", "spec": spec}


def requests(num: int, interval: str = LONG, **more: object) -> Document:
    return {"default": {"local": {"http": {"requestRate": {"num": num, "interval": interval}, **more}}}}


def from_identity(spiffe_id: str) -> Document:
    return {"matches": [{"spiffeID": {"type": "Exact", "value": spiffe_id}}]}


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("backend"), mesh_service("other"))
    empty_mesh.service("backend")
    empty_mesh.service("other")
    echo = empty_mesh.stack.enter_context(TcpService("echo"))
    empty_mesh.tcp("echo", echo.address)
    empty_mesh.client("frontend", "backend", "other", "tag=backend")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("backend")


@pytest.fixture
def other(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("other")


def refused(address: Address, status: int = 429) -> Answer:
    """The answer to the first request that is too much."""

    def too_much() -> Answer:
        answer = call(address)
        assert answer.status == status
        return answer

    return eventually(too_much)


@pytest.mark.parametrize("field", ["rules", "from"])
def test_what_is_too_much_for_one_service_is_refused_there_alone(
    mesh: Playground, backend: Address, other: Address, field: str
) -> None:
    everybody = {"targetRef": {"kind": "Mesh"}} if field == "from" else {}
    with mesh.having(limiting("backend", {**everybody, **requests(2)}, field=field)):
        refused(backend)

        assert [call(backend).status for _ in range(5)] == [429] * 5
        assert [call(other).status for _ in range(5)] == [200] * 5
        assert call(mesh.proxies["frontend"].outbound("tag=backend")).status == 429
    eventually(lambda: [call(backend).status for _ in range(5)] == [200] * 5)


def test_after_the_interval_requests_are_taken_again(mesh: Playground, backend: Address) -> None:
    with mesh.having(limiting("backend", requests(1, "500ms"))):
        refused(backend)

        eventually(lambda: call(backend).status == 200, within=3)
        refused(backend)


def test_the_answer_is_as_it_was_written(mesh: Playground, backend: Address) -> None:
    headers = {"set": [{"name": "x-limited", "value": "100%"}], "add": [{"name": "x-why", "value": "too many"}]}
    with mesh.having(limiting("backend", requests(1, onRateLimit={"status": 503, "headers": headers}))):
        answer = refused(backend, 503)

        assert answer.headers["x-limited"] == "100%"
        assert answer.headers["x-why"] == "too many"


def test_who_is_not_meant_by_a_rule_is_held_to_that_for_everybody(mesh: Playground, backend: Address) -> None:
    batch, everybody = from_identity("spiffe://default/batch"), requests(1, onRateLimit={"status": 503})
    with mesh.having(limiting("backend", {**batch, **requests(1)}, everybody)):
        refused(backend, 503)


def test_connections_that_are_too_many_are_closed(mesh: Playground) -> None:
    echo = mesh.proxies["echo"].inbound
    rate = {"default": {"local": {"tcp": {"connectionRate": {"num": 2, "interval": LONG}}}}}
    with mesh.having(limiting("echo", rate)):
        eventually(lambda: not greeting(echo))

        assert [greeting(echo) for _ in range(3)] == [""] * 3
    eventually(lambda: [greeting(echo) for _ in range(5)] == ["echo"] * 5)

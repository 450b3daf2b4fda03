"""Which instance of a service a request goes to: by algorithm, by what it is recognised by, and by route."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.client import call, greeting
from tests.support.loopback import Address, new_host
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
from tests.support.services import TcpService
from tests.support.upstreams import answering, called_from, upstream
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

INSTANCES = {"backend-1", "backend-2", "backend-3"}
USERS = [f"user-{number}" for number in range(15)]
ROUTED, SLOW = "/routed", "/slow"
BY_USER: Document = {"type": "Header", "header": {"name": "x-user"}}
BY_CART: Document = {"type": "Header", "header": {"name": "x-cart"}}
MESH_ITEM: Document = {"targetRef": {"kind": "Mesh"}}


def balanced(name: str, default: Document) -> Document:
    return policy("MeshLoadBalancingStrategy", name, service_item("backend", default))


def hashed(algorithm: str, *hash_policies: Document) -> Document:
    return balanced("hashed", {"loadBalancer": {"type": algorithm}, "hashPolicies": list(hash_policies)})


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    route = http_route("route", "backend", rule(prefix(ROUTED), to={"backend": 1}))
    empty_mesh.control_plane.apply(mesh_service("backend"), mesh_service("database", "tcp"), route)
    for name in sorted(INSTANCES):
        empty_mesh.bare(name, "backend").on(SLOW, delay=2)
    for number in range(3):
        database = empty_mesh.stack.enter_context(TcpService(f"database-{number}"))
        empty_mesh.control_plane.apply(bare_dataplane(database.name, "database", database.address))
    empty_mesh.client("frontend", "backend", "database")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("backend")


def held(mesh: Playground, algorithm: str, service: str = "backend") -> None:
    """Wait until the frontend's Envoy chooses by this algorithm."""
    envoy = mesh.envoys["frontend"]
    eventually(lambda: upstream(envoy, service).get("lb_policy", "ROUND_ROBIN") == algorithm)


def recognised(mesh: Playground, routed: list[str], otherwise: list[str]) -> None:
    """Wait until the frontend's Envoy recognises requests by these headers, on the route and elsewhere."""

    def headers() -> list[list[str]]:
        policies = [row["route"].get("hash_policy", ()) for row in rows(mesh.envoys["frontend"])]
        return [[one["header"]["header_name"] for one in of_row] for of_row in policies]

    eventually(lambda: headers() == [routed, otherwise])


def in_turn(answers: list[str]) -> bool:
    """Whether each instance answers once before any does again."""
    return all(set(answers[at : at + 3]) == INSTANCES for at in range(len(answers) - 2))


def test_at_random_nobody_waits_for_his_turn(mesh: Playground, backend: Address) -> None:
    with mesh.having(balanced("random", {"loadBalancer": {"type": "Random"}})):
        held(mesh, "RANDOM")
        answers = answering(backend, 40)

    assert set(answers) == INSTANCES
    assert not in_turn(answers)


def test_in_turn_for_one_service_of_a_mesh_at_random(mesh: Playground, backend: Address) -> None:
    at_random = policy("MeshLoadBalancingStrategy", "m", {**MESH_ITEM, "default": {"loadBalancer": {"type": "Random"}}})
    with mesh.having(at_random):
        held(mesh, "RANDOM", "database")
        held(mesh, "RANDOM")
        with mesh.having(balanced("turns", {"loadBalancer": {"type": "RoundRobin"}})):
            held(mesh, "ROUND_ROBIN")

            assert in_turn(answering(backend, 12))
            assert upstream(mesh.envoys["frontend"], "database")["lb_policy"] == "RANDOM"


def test_the_least_busy_is_asked(mesh: Playground, backend: Address) -> None:
    least = {"type": "LeastRequest", "leastRequest": {"choiceCount": 30}}
    with mesh.having(balanced("least", {"loadBalancer": least})), ThreadPoolExecutor(1) as pool:
        held(mesh, "LEAST_REQUEST")
        hits = {name: mesh.services[name].hits(SLOW) for name in INSTANCES}
        slow = pool.submit(call, backend, SLOW)
        eventually(lambda: any(mesh.services[name].hits(SLOW) > hits[name] for name in INSTANCES))
        others = set(answering(backend, 50))

        assert others == INSTANCES - {slow.result().service}


@pytest.mark.parametrize("algorithm", ["RingHash", "Maglev"])
def test_each_user_stays_with_one_instance(mesh: Playground, backend: Address, algorithm: str) -> None:
    with mesh.having(hashed(algorithm, BY_USER)):
        held(mesh, {"RingHash": "RING_HASH", "Maglev": "MAGLEV"}[algorithm])
        recognised(mesh, ["x-user"], ["x-user"])
        of_users = {user: set(answering(backend, 3, x_user=user)) for user in USERS}

    assert {len(found) for found in of_users.values()} == {1}
    assert len(set[str]().union(*of_users.values())) > 1


def test_a_cookie_is_given_and_recognised(mesh: Playground, backend: Address) -> None:
    cookie = {"type": "Cookie", "cookie": {"name": "session", "ttl": "60s", "path": "/"}}
    with mesh.having(hashed("RingHash", cookie)):
        held(mesh, "RING_HASH")
        eventually(lambda: call(backend).headers["set-cookie"])
        first = call(backend)
        given = first.headers["set-cookie"]
        again = set(answering(backend, 10, cookie=given.partition(";")[0]))

    assert given.startswith("session=")
    assert "Max-Age=60" in given
    assert again == {first.service}


def test_a_query_parameter_is_recognised(mesh: Playground, backend: Address) -> None:
    with mesh.having(hashed("Maglev", {"type": "QueryParameter", "queryParameter": {"name": "user"}})):
        held(mesh, "MAGLEV")
        eventually(lambda: len(set(answering(backend, 6, "/?user=one"))) == 1)
        of_users = [set(answering(backend, 3, f"/?user={user}")) for user in USERS]

    assert {len(found) for found in of_users} == {1}
    assert len(set[str]().union(*of_users)) > 1


def test_the_address_of_a_connection_is_recognised(mesh: Playground, backend: Address) -> None:
    with mesh.having(hashed("RingHash", {"type": "Connection", "connection": {"sourceIP": True}})):
        held(mesh, "RING_HASH")
        eventually(lambda: len(set(answering(backend, 6))) == 1)
        of_sources = [{called_from(source, backend) for _ in range(3)} for source in [new_host() for _ in USERS]]

    assert {len(found) for found in of_sources} == {1}
    assert len(set[str]().union(*of_sources)) > 1


def test_a_route_recognises_by_something_else_than_its_service(mesh: Playground, backend: Address) -> None:
    on_route = policy("MeshLoadBalancingStrategy", "on-route", route_item("route", {"hashPolicies": [BY_CART]}))
    with mesh.having(hashed("Maglev", BY_USER), on_route):
        held(mesh, "MAGLEV")
        recognised(mesh, ["x-cart"], ["x-user"])

        assert len({call(backend, ROUTED, headers={"x-cart": "1", "x-user": user}).service for user in USERS}) == 1
        assert len({call(backend, headers={"x-cart": cart, "x-user": "1"}).service for cart in USERS}) == 1
        assert len({call(backend, ROUTED, headers={"x-cart": cart, "x-user": "1"}).service for cart in USERS}) > 1
        assert len({call(backend, headers={"x-cart": "1", "x-user": user}).service for user in USERS}) > 1


def test_connections_of_plain_tcp_go_where_others_of_their_address_went(mesh: Playground) -> None:
    database = mesh.proxies["frontend"].outbound("database")
    by_source = {"type": "Connection", "connection": {"sourceIP": True}}
    conf = {"loadBalancer": {"type": "RingHash"}, "hashPolicies": [by_source]}
    assert len({greeting(database) for _ in range(6)}) == 3
    with mesh.having(policy("MeshLoadBalancingStrategy", "shards", service_item("database", conf))):
        held(mesh, "RING_HASH", "database")
        eventually(lambda: len({greeting(database) for _ in range(6)}) == 1)
        of_sources = [{greeted_from(source, database) for _ in range(3)} for source in [new_host() for _ in USERS]]

    assert {len(found) for found in of_sources} == {1}
    assert len(set[str]().union(*of_sources)) > 1


def greeted_from(source: str, address: Address) -> str:
    with socket.create_connection(address, 5, (source, 0)) as connection, connection.makefile("rb") as stream:
        return stream.readline().decode().strip()

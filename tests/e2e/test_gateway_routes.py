"""Routes of a builtin gateway: their filters and shares for requests over TLS, and where connections of TCP go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from tests.support.client import Answer, Conversation, greeting
from tests.support.edge import CA, Edge, certified, get
from tests.support.grpc_service import NAME, GrpcService
from tests.support.loopback import Address, new_address
from tests.support.mesh import (
    Document,
    backend,
    bare_dataplane,
    gateway_route,
    listener,
    mesh_gateway,
    mesh_item,
    mesh_service,
    policy,
    prefix,
    rule,
    secret,
)
from tests.support.playground import Playground
from tests.support.services import TcpService
from tests.support.waiting import eventually

pytestmark = [pytest.mark.envoy, pytest.mark.long]

SHOP = "shop.example.com"
DATABASES = {"database-1", "database-2"}
OF_TCP: Document = {"kind": "MeshGateway", "name": "edge", "tags": {"is": "tcp"}}


@pytest.fixture(scope="module")
def edge(empty_mesh: Playground) -> Edge:
    for name in ("web", "next"):
        empty_mesh.control_plane.apply(mesh_service(name))
        empty_mesh.service(name)
    for name in sorted(DATABASES):
        behind = empty_mesh.stack.enter_context(TcpService(name))
        empty_mesh.control_plane.apply(bare_dataplane(name, "database", behind.address))
    empty_mesh.control_plane.apply(mesh_service("database", "tcp"), secret("of-shop", certified(SHOP)))
    edge = Edge(empty_mesh, empty_mesh.gateway("edge"))
    empty_mesh.ready()
    edge.serves(
        mesh_gateway(
            "edge",
            listener(edge.address("https").port, "HTTPS", SHOP, "of-shop"),
            listener(edge.address("tcp").port, "TCP", tags={"is": "tcp"}),
        ),
        gateway_route("web", "edge", rule(prefix("/"), to={"web": 1})),
        tcp_route({"database": 1}),
    )
    eventually(lambda: ask(edge).service == "web")
    eventually(lambda: greeted(edge, 4).keys() == DATABASES)
    return edge


def ask(edge: Edge, path: str = "/", **headers: str) -> Answer:
    return get(edge.address("https"), SHOP, path=path, **headers)


def tcp_route(shares: dict[str, int]) -> Document:
    backends = [backend(service, weight) for service, weight in shares.items()]
    item = {"targetRef": {"kind": "Mesh"}, "rules": [{"default": {"backendRefs": backends}}]}
    return policy("MeshTCPRoute", "tcp", item, target=OF_TCP)


def greeted(edge: Edge, times: int) -> Counter[str]:
    """Who greets on so many connections; nobody where a connection was closed."""
    return Counter(greeting(edge.address("tcp")) for _ in range(times))


def filtered(*filters: Document) -> Document:
    """A route below `/old`, with filters."""
    return gateway_route("filtered", "edge", rule(prefix("/old"), to={"web": 1}, filters=list(filters)))


# --- requests ---


def test_headers_of_requests_and_of_answers_are_changed_for_a_route_alone(edge: Edge) -> None:
    asked = {"set": [{"name": "x-set", "value": "edge"}], "add": [{"name": "x-more", "value": "2"}], "remove": ["x-no"]}
    answered = {"set": [{"name": "content-type", "value": "text/plain"}], "remove": ["x-service"]}
    filters = (
        {"type": "RequestHeaderModifier", "requestHeaderModifier": asked},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": answered},
    )
    with edge.mesh.having(filtered(*filters)):
        eventually(lambda: ask(edge, "/old").headers["content-type"] == "text/plain")
        answer = ask(edge, "/old", x_set="1", x_more="1", x_no="1")
        untouched = ask(edge, "/", x_set="1", x_more="1", x_no="1")

    seen = answer.seen["headers"]
    assert (seen["x-set"], seen["x-more"], "x-no" in seen) == ("edge", "1, 2", False)
    assert "x-service" not in answer.headers
    assert untouched.headers["content-type"] == "application/json"
    assert {untouched.seen["headers"][name] for name in ("x-set", "x-more", "x-no")} == {"1"}


def test_a_copy_of_a_request_goes_to_another_service(edge: Edge) -> None:
    copied = edge.mesh.services["next"]
    copied.on("/old/page", failures=1_000_000)
    to_next = {"backendRef": {"kind": "MeshService", "name": "next", "port": 80}}
    with edge.mesh.having(filtered({"type": "RequestMirror", "requestMirror": to_next})):
        eventually(lambda: ask(edge, "/old").service == "web" and copied.hits("/old") > 0)
        answers = [ask(edge, "/old/page") for _ in range(5)]

        eventually(lambda: copied.hits("/old/page") == len(answers))
        assert {(answer.service, answer.status) for answer in answers} == {("web", 200)}


def test_a_path_and_a_host_are_changed_for_the_service(edge: Edge) -> None:
    path = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}
    rewrite = {"type": "URLRewrite", "urlRewrite": {"hostname": "in.side", "path": path}}
    with edge.mesh.having(filtered(rewrite)):
        eventually(lambda: ask(edge, "/old/x?a=b").seen["path"] == "/new/x?a=b")

        assert ask(edge, "/old/x").seen["headers"]["host"] == "in.side"
        assert ask(edge, "/else").seen["headers"]["host"] == SHOP


def test_services_get_their_shares_of_requests(edge: Edge) -> None:
    with edge.mesh.having(gateway_route("shares", "edge", rule(prefix("/shared"), to={"web": 1, "next": 3}))):
        eventually(lambda: ask(edge, "/shared").service == "next")
        shares = Counter(ask(edge, "/shared").service for _ in range(200))

    assert shares.keys() == {"web", "next"}
    assert shares["next"] / 200 == pytest.approx(0.75, abs=0.12)


def test_calls_of_grpc_come_through_and_are_tried_again(edge: Edge) -> None:
    retry = {"numRetries": 2, "retryOn": ["Unavailable"], "backOff": {"baseInterval": "10ms"}}
    again = policy("MeshRetry", "grpc", mesh_item({"grpc": retry}), target={"kind": "MeshGateway", "name": "edge"})
    to_ledger = gateway_route("ledger", "edge", rule(prefix("/koguma.test.Names"), to={"ledger": 1}))
    with GrpcService("ledger") as ledger:
        there = bare_dataplane("ledger", "ledger", ledger.address)
        with edge.mesh.having(mesh_service("ledger", "grpc"), there, to_ledger, again):
            eventually(lambda: named(edge) == "ledger")
            ledger.on(NAME, failures=2)

            assert named(edge) == "ledger"
            assert ledger.hits(NAME) == 3


def named(edge: Edge) -> str:
    """The name with which a service answers a call of gRPC; empty when none does."""
    options = [(f"grpc.{option}", SHOP) for option in ("ssl_target_name_override", "default_authority")]
    credentials, address = grpc.ssl_channel_credentials(CA.cert_pem.bytes()), str(edge.address("https"))
    with grpc.secure_channel(address, credentials, [*options, ("grpc.enable_retries", 0)]) as channel:
        called: Callable[..., bytes] = channel.unary_unary(NAME)
        try:
            return called(b"", timeout=5).decode()
        except grpc.RpcError:
            return ""


# --- connections ---


def test_services_get_their_shares_of_connections(edge: Edge) -> None:
    with TcpService("other") as other:
        documents = (mesh_service("other", "tcp"), bare_dataplane("other", "other", other.address))
        with edge.mesh.having(*documents, tcp_route({"database": 3, "other": 1})):
            eventually(lambda: greeting(edge.address("tcp")) == "other")
            shares = greeted(edge, 200)

    assert shares.keys() == DATABASES | {"other"}
    assert shares["other"] / 200 == pytest.approx(0.25, abs=0.12)


def test_a_connection_is_tried_again_where_an_instance_is_away(edge: Edge) -> None:
    again = policy("MeshRetry", "again", mesh_item({"tcp": {"maxConnectAttempt": 3}}), target=OF_TCP)
    with edge.mesh.having(bare_dataplane("away", "database", new_address())):
        eventually(lambda: greeted(edge, 6)[""] > 0)
        with edge.mesh.having(again):
            eventually(lambda: greeted(edge, 9).keys() == DATABASES)

            assert greeted(edge, 30).keys() == DATABASES


def test_connections_of_one_client_go_to_one_instance(edge: Edge) -> None:
    by_source = {"type": "Connection", "connection": {"sourceIP": True}}
    conf = {"loadBalancer": {"type": "RingHash"}, "hashPolicies": [by_source]}
    with edge.mesh.having(policy("MeshLoadBalancingStrategy", "same", mesh_item(conf), target=OF_TCP)):
        eventually(lambda: len(greeted(edge, 8)) == 1)

        assert len(greeted(edge, 20)) == 1
    eventually(lambda: greeted(edge, 8).keys() == DATABASES)


def test_connections_are_logged(edge: Edge, tmp_path: Path) -> None:
    file = tmp_path / "tcp.log"
    text = "%KUMA_SOURCE_SERVICE% %BYTES_SENT%"
    backend = {"type": "File", "file": {"path": str(file), "format": {"type": "Plain", "plain": text}}}
    with edge.mesh.having(policy("MeshAccessLog", "tcp", mesh_item({"backends": [backend]}), target=OF_TCP)):
        eventually(lambda: [greeted(edge, 1), f"edge {len('database-1') + 1}" in file.read_text()][-1])
        ask(edge, "/not-there")

    assert set(file.read_text().splitlines()) == {"edge 11"}


def test_a_client_that_says_nothing_is_sent_away(edge: Edge) -> None:
    spec = {"targetRef": OF_TCP, "rules": [{"default": {"idleTimeout": "300ms"}}]}
    with edge.mesh.having({"type": "MeshTimeout", "mesh": "default", "name": "idle", "spec": spec}):
        eventually(lambda: is_sent_away(edge.address("tcp")))


def is_sent_away(address: Address) -> bool:
    with Conversation(address, timeout=1.5) as conversation:
        try:
            _, said = conversation.until_closed()
        except TimeoutError:
            return False
        return said.strip() in DATABASES

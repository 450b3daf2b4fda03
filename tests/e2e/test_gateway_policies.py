"""Policies on a builtin gateway, for each listener and each route."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tests.support.client import TICK, Answer, call, greeting
from tests.support.collector import Collector
from tests.support.mesh import (
    Document,
    gateway_route,
    listener,
    mesh_gateway,
    mesh_item,
    mesh_service,
    policy,
    prefix,
    request_timeout,
    route_item,
    rule,
    service_item,
)
from tests.support.playground import Playground
from tests.support.services import TcpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

SHOP, BLOG, OTHER = "shop.example.com", "blog.example.com", "other.example.com"
GATEWAY: Document = {"kind": "MeshGateway", "name": "edge"}
OF_SHOP: Document = {**GATEWAY, "tags": {"site": "shop"}}
OF_TCP: Document = {**GATEWAY, "tags": {"site": "tcp"}}
_numbers = count()


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    edge = empty_mesh.gateway("edge")
    web, tcp = edge.port("web"), edge.port("tcp")
    empty_mesh.control_plane.apply(
        mesh_service("backend"),
        mesh_service("slow"),
        mesh_service("twin"),
        mesh_gateway(
            "edge",
            listener(web, hostname=SHOP, tags={"site": "shop"}),
            listener(web, hostname=BLOG, tags={"site": "blog"}),
            listener(web, tags={"site": "others"}),
            listener(tcp, "TCP", tags={"site": "tcp"}),
        ),
        gateway_route("all", "edge", rule(prefix("/"), to={"backend": 1})),
        gateway_route("twin", "edge", rule(prefix("/twin"), to={"twin": 1})),
        gateway_route("slow", "edge", rule(prefix("/slow"), to={"slow": 1})),
        policy(
            "MeshTCPRoute",
            "echo",
            {
                "targetRef": {"kind": "Mesh"},
                "rules": [{"default": {"backendRefs": [{"kind": "MeshService", "name": "echo"}]}}],
            },
            target=OF_TCP,
        ),
    )
    empty_mesh.service("backend")
    empty_mesh.service("slow").on("/slow", delay=1.0)
    for instance in ("twin-1", "twin-2"):
        empty_mesh.service(instance, "twin")
    echo = empty_mesh.stack.enter_context(TcpService("echo"))
    empty_mesh.tcp("echo", echo.address)
    empty_mesh.client("frontend", "slow")
    empty_mesh.ready()
    becomes(empty_mesh, SHOP, 200)
    return empty_mesh


def at(mesh: Playground, host: str, path: str = "/", headers: Mapping[str, str] | None = None) -> Answer:
    return call(mesh.proxies["edge"].outbound("web"), path, headers={"host": host, **(headers or {})})


def statuses(mesh: Playground, host: str, number: int = 5, path: str = "/") -> list[int]:
    return [at(mesh, host, path).status for _ in range(number)]


def becomes(mesh: Playground, host: str, status: int, path: str = "/") -> None:
    eventually(lambda: at(mesh, host, path).status == status)


def limit(name: str, num: int, target: Document = OF_SHOP) -> Document:
    rates = {"http": {"requestRate": {"num": num, "interval": "60s"}}}
    return policy("MeshRateLimit", name, mesh_item({"local": rates}), target=target)


def test_one_hostname_of_a_port_is_limited(mesh: Playground) -> None:
    with mesh.having(limit("shop", 2)):
        becomes(mesh, SHOP, 429)

        assert statuses(mesh, SHOP) == [429] * 5
        assert statuses(mesh, BLOG) == [200] * 5
        assert statuses(mesh, OTHER) == [200] * 5
    becomes(mesh, SHOP, 200)


def test_each_row_of_a_gateway_has_a_limit_of_its_own(mesh: Playground) -> None:
    with mesh.having(limit("all", 2, GATEWAY)):
        becomes(mesh, BLOG, 429)

        assert statuses(mesh, BLOG, 2, "/slow/and/not") == [200] * 2
        assert at(mesh, BLOG, "/slow/and/not").status == 429
    becomes(mesh, BLOG, 200)


def test_a_route_of_a_gateway_can_be_free_of_the_limit(mesh: Playground) -> None:
    free = policy(
        "MeshRateLimit",
        "free",
        mesh_item({"local": {"http": {"disabled": True}}}),
        target={"kind": "MeshHTTPRoute", "name": "slow"},
    )
    with mesh.having(free, limit("all", 1, GATEWAY)):
        becomes(mesh, SHOP, 429)

        assert statuses(mesh, SHOP, path="/slow/no/more") == [200] * 5


def test_connections_of_a_tcp_listener_are_limited(mesh: Playground) -> None:
    address = mesh.proxies["edge"].outbound("tcp")
    assert eventually(lambda: greeting(address)) == "echo"
    rates = {"tcp": {"connectionRate": {"num": 1, "interval": "60s"}}}
    with mesh.having(policy("MeshRateLimit", "tcp", mesh_item({"local": rates}), target=OF_TCP)):
        eventually(lambda: not greeting(address))

        assert statuses(mesh, SHOP) == [200] * 5
    eventually(lambda: greeting(address) == "echo")


def test_faults_are_for_the_hostname_that_they_were_written_for(mesh: Playground) -> None:
    everywhere = policy("MeshFaultInjection", "a", faults({"abort": abort(503, 0)}), target=GATEWAY)
    shop = policy(
        "MeshFaultInjection",
        "b",
        faults({"delay": {"value": "300ms", "percentage": 100}}, {"abort": abort(418, 100)}),
        target=OF_SHOP,
    )
    with mesh.having(everywhere, shop):
        becomes(mesh, SHOP, 418)

        assert at(mesh, SHOP).seconds >= 0.3 - TICK
        assert statuses(mesh, BLOG) == [200] * 5
    becomes(mesh, SHOP, 200)


def faults(*some: Document) -> Document:
    return mesh_item({"http": list(some)})


def abort(status: int, percentage: int) -> Document:
    return {"httpStatus": status, "percentage": percentage}


def test_a_timeout_for_a_route_holds_on_the_gateway_alone(mesh: Playground) -> None:
    """The route is there on the gateway alone, so its policy needs no other target."""
    of_route = policy("MeshTimeout", "route", route_item("slow", request_timeout("400ms")))
    with mesh.having(of_route):
        becomes(mesh, SHOP, 504, "/slow")

        assert statuses(mesh, SHOP, 2) == [200] * 2
        assert call(mesh.proxies["frontend"].outbound("slow"), "/slow").status == 200
    becomes(mesh, SHOP, 200, "/slow")


def test_a_route_has_the_timeouts_of_its_service_where_it_has_none_of_its_own(mesh: Playground) -> None:
    of_service = policy("MeshTimeout", "service", service_item("slow", request_timeout("300ms")))
    idle = {"http": {"streamIdleTimeout": "2s"}}
    with mesh.having(of_service, policy("MeshTimeout", "route", route_item("slow", idle))):
        becomes(mesh, BLOG, 504, "/slow")


def test_a_listener_has_timeouts_of_its_own(mesh: Playground) -> None:
    everywhere = policy("MeshTimeout", "a", mesh_item(request_timeout("5s")), target=GATEWAY)
    shop = policy("MeshTimeout", "b", mesh_item(request_timeout("300ms")), target=OF_SHOP)
    with mesh.having(everywhere, shop):
        becomes(mesh, SHOP, 504, "/slow")

        assert at(mesh, BLOG, "/slow").status == 200


def test_a_route_at_the_top_is_no_other_route_with_its_matches(mesh: Playground) -> None:
    same = gateway_route("same", "edge", rule(prefix("/slow"), to={"slow": 1}), hostnames=(OTHER,))
    old = policy(
        "MeshTimeout", "old", mesh_item(request_timeout("300ms")), target={"kind": "MeshHTTPRoute", "name": "same"}
    )
    with mesh.having(same, old):
        becomes(mesh, OTHER, 504, "/slow")

        assert at(mesh, SHOP, "/slow").status == 200


def test_clients_who_do_not_finish_their_requests_are_sent_away(mesh: Playground) -> None:
    limits = {"http": {"requestTimeout": "300ms"}}
    spec = {
        "targetRef": {"kind": "Mesh", "proxyTypes": ["Gateway"]},
        "from": [{"targetRef": {"kind": "Mesh"}, "default": limits}],
    }
    with mesh.having({"type": "MeshTimeout", "mesh": "default", "name": "clients", "spec": spec}):
        eventually(lambda: "408" in _answer_to_half_a_request(mesh))

        assert statuses(mesh, SHOP) == [200] * 5


def _answer_to_half_a_request(mesh: Playground) -> str:
    with socket.create_connection(mesh.proxies["edge"].outbound("web"), timeout=2) as connection:
        connection.sendall(f"POST / HTTP/1.1\r\nhost: {SHOP}\r\ncontent-length: 5\r\n\r\n".encode())
        with suppress(TimeoutError):
            return connection.recv(100).decode()
    return ""


def test_a_gateway_tries_again_and_a_route_may_not(mesh: Playground) -> None:
    retry = {"http": {"numRetries": 2, "retryOn": ["5xx"], "backOff": {"baseInterval": "10ms"}}}
    never = policy("MeshRetry", "never", route_item("slow", {"http": {"numRetries": 0}}))
    with mesh.having(policy("MeshRetry", "edge", mesh_item(retry), target=GATEWAY), never):
        eventually(lambda: _after_failures(mesh, "backend", "/") == 200)

        assert _after_failures(mesh, "slow", "/slow") == 503


def _after_failures(mesh: Playground, service: str, root: str) -> int:
    """The answer for a path that fails twice."""
    path = f"{root.rstrip('/')}/flaky-{next(_numbers)}"
    mesh.services[service].on(path, failures=2)
    return at(mesh, SHOP, path).status


def test_each_hostname_of_a_port_has_a_log_of_its_own(mesh: Playground, tmp_path: Path) -> None:
    shop, others, slow = tmp_path / "shop.log", tmp_path / "others.log", tmp_path / "slow.log"
    documents = (
        policy("MeshAccessLog", "others", mesh_item(log(others)), target=GATEWAY),
        policy("MeshAccessLog", "shop", mesh_item(log(shop)), target=OF_SHOP),
        policy("MeshAccessLog", "slow", route_item("slow", log(slow)), target=GATEWAY),
    )
    with mesh.having(*documents):
        eventually(lambda: [at(mesh, SHOP, "/ready"), lines(shop)])
        for number, host in enumerate((SHOP, BLOG, OTHER)):
            at(mesh, host, f"/{number}")
            at(mesh, host, f"/slow/{number}")
        at(mesh, BLOG, "/last")
        at(mesh, SHOP, "/last")

        # Envoy writes each file in its own time.
        eventually(lambda: "/last" in lines(shop)[-1] and "/last" in lines(others)[-1] and len(lines(slow)) == 3)
        assert [line for line in lines(shop) if "/ready" not in line] == [f"edge * {SHOP} /0", f"edge * {SHOP} /last"]
        assert lines(others)[-3:] == [f"edge * {BLOG} /1", f"edge * {OTHER} /2", f"edge * {BLOG} /last"]
        assert [line.split()[-1] for line in lines(slow)] == ["/slow/0", "/slow/1", "/slow/2"]


def log(path: Path) -> Document:
    text = "%KUMA_SOURCE_SERVICE% %KUMA_DESTINATION_SERVICE% %REQ(:AUTHORITY)% %REQ(:PATH)%"
    return {"backends": [{"type": "File", "file": {"path": str(path), "format": {"type": "Plain", "plain": text}}}]}


def lines(path: Path) -> list[str]:
    found = path.read_text().splitlines()
    assert found, f"{path} is empty"
    return found


def test_what_is_patched_is_what_clients_get(mesh: Playground) -> None:
    host: Document = {
        "operation": "Patch",
        "match": {"origin": "gateway", "name": SHOP},
        "value": "responseHeadersToAdd: [{header: {key: x-site, value: shop}}]",
    }
    spec = {"targetRef": GATEWAY, "default": {"appendModifications": [{"virtualHost": host}]}}
    with mesh.having({"type": "MeshProxyPatch", "mesh": "default", "name": "edge", "spec": spec}):
        eventually(lambda: at(mesh, SHOP).headers["x-site"] == "shop")

        assert "x-site" not in at(mesh, BLOG).headers


def test_a_circuit_is_broken_for_the_listener_it_was_written_for(mesh: Playground) -> None:
    detection = {"interval": "1s", "detectors": {"totalFailures": {"consecutive": 1}}, "maxEjectionPercent": 100}
    breaker = policy(
        "MeshCircuitBreaker",
        "shop",
        mesh_item({"outlierDetection": {**detection, "baseEjectionTime": "60s", "healthyPanicThreshold": 0}}),
        target=OF_SHOP,
    )
    with mesh.having(breaker):
        eventually(lambda: _cluster_of(mesh, SHOP) != _cluster_of(mesh, BLOG))
        mesh.services["backend"].on("/broken", failures=10)
        eventually(lambda: at(mesh, SHOP, "/broken").status == at(mesh, SHOP).status == 503)

        assert statuses(mesh, BLOG) == [200] * 5


def _cluster_of(mesh: Playground, host: str) -> str:
    tables = [entry["route_config"] for entry in mesh.envoys["edge"].config("dynamic_route_configs")]
    hosts = {each["name"]: each for table in tables for each in table["virtual_hosts"]}
    return str(hosts[host]["routes"][-1]["route"]["cluster"])


def test_who_is_ill_is_not_asked_by_the_listener_that_checks(mesh: Playground) -> None:
    twins, ill = {"twin-1", "twin-2"}, mesh.services["twin-1"]
    ill.on("/health", failures=1_000_000)
    soon = {"interval": "100ms", "noTrafficInterval": "100ms", "timeout": "2s", "unhealthyThreshold": 1}
    check = mesh_item({**soon, "http": {"path": "/health"}})
    with mesh.having(policy("MeshHealthCheck", "shop", check, target=OF_SHOP)):
        eventually(lambda: _asked(mesh, SHOP) == {"twin-2"})

        assert _asked(mesh, BLOG) == twins
        ill.on("/health")
        eventually(lambda: _asked(mesh, SHOP) == twins)


def _asked(mesh: Playground, host: str) -> set[str]:
    """The instances of the service with two that answer requests for a host."""
    return {at(mesh, host, "/twin").service for _ in range(20)}


def test_requests_of_one_user_go_to_one_instance(mesh: Playground) -> None:
    twins = {"twin-1", "twin-2"}
    eventually(lambda: _asked(mesh, SHOP) == twins)
    strategy: Document = {
        "loadBalancer": {"type": "Maglev"},
        "hashPolicies": [{"type": "Header", "header": {"name": "x-user"}}],
    }
    with mesh.having(policy("MeshLoadBalancingStrategy", "users", mesh_item(strategy), target=GATEWAY)):
        eventually(lambda: len(_instances(mesh, "anna")) == 1)

        assert set().union(*(_instances(mesh, f"user-{number}") for number in range(30))) == twins


def _instances(mesh: Playground, user: str) -> set[str]:
    return {at(mesh, SHOP, "/twin", {"x-user": user}).service for _ in range(10)}


def test_a_trace_has_a_span_for_the_client_and_one_for_the_service(mesh: Playground) -> None:
    with Collector() as collector:
        backend = {"type": "OpenTelemetry", "openTelemetry": {"endpoint": str(collector.address)}}
        target = {"kind": "Mesh", "proxyTypes": ["Gateway"]}
        spec = {"targetRef": target, "default": {"backends": [backend]}}
        with mesh.having({"type": "MeshTrace", "mesh": "default", "name": "edge", "spec": spec}):
            eventually(lambda: [at(mesh, SHOP) for _ in range(10)] and {2, 3} <= {s.kind for s in collector.spans})

            ids = {span.span_id for span in collector.spans}
            assert any(span.parent_span_id in ids for span in collector.spans)


def test_the_metrics_of_a_gateway_can_be_collected(mesh: Playground) -> None:
    edge = mesh.proxies["edge"]
    backend = {"type": "Prometheus", "prometheus": {"port": edge.port("metrics"), "path": "/metrics"}}
    target = {"kind": "Mesh", "proxyTypes": ["Gateway"]}
    spec = {"targetRef": target, "default": {"backends": [backend]}}
    with mesh.having({"type": "MeshMetric", "mesh": "default", "name": "gateways", "spec": spec}):
        eventually(lambda: "edge_HTTP" in call(edge.outbound("metrics"), "/metrics").body)

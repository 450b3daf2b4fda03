"""What a gateway makes of requests from outside: whom it believes, what it refuses, and where it sends clients."""

import http
import socket
import socketserver
import threading
from typing import Self

import pytest

from tests.support.client import Answer, Conversation, call
from tests.support.edge import Edge, certified, get
from tests.support.loopback import Address, free_port, new_address
from tests.support.mesh import (
    Document,
    bare_dataplane,
    external_service,
    gateway_route,
    listener,
    mesh_gateway,
    mesh_service,
    prefix,
    rule,
    secret,
)
from tests.support.playground import Playground
from tests.support.services import HttpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

SHOP = "shop.example.com"
HSTS = "strict-transport-security"


@pytest.fixture(scope="module")
def edge(empty_mesh: Playground) -> Edge:
    empty_mesh.control_plane.apply(mesh_service("web"))
    empty_mesh.service("web")
    empty_mesh.control_plane.apply(secret("of-shop", certified(SHOP)))
    edge = Edge(empty_mesh, empty_mesh.gateway("edge"))
    empty_mesh.ready()
    edge.serves(
        mesh_gateway(
            "edge",
            listener(edge.address("http").port),
            listener(edge.address("https").port, "HTTPS", SHOP, "of-shop"),
        ),
        gateway_route("web", "edge", rule(prefix("/"), to={"web": 1})),
    )
    eventually(lambda: ask(edge).status == http.HTTPStatus.OK)
    eventually(lambda: get(edge.address("https"), SHOP).status == http.HTTPStatus.OK)
    return edge


def ask(edge: Edge, path: str = "/", host: str = "a.example", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return call(edge.address("http"), path, headers={"Host": host, **named})


def seen(answer: Answer) -> dict[str, str]:
    """The headers that the service read."""
    assert answer.status == http.HTTPStatus.OK
    return {name.lower(): value for name, value in answer.seen["headers"].items()}


# --- whom it believes ---


def test_the_address_of_a_client_is_the_one_from_which_it_calls(edge: Edge) -> None:
    headers = seen(ask(edge, x_forwarded_for="203.0.113.7", x_forwarded_proto="https", x_real_ip="203.0.113.7"))

    claimed, *found = headers["x-forwarded-for"].split(",")
    assert claimed == "203.0.113.7"
    assert len(found) == 1, "the gateway adds from where the client called"
    assert headers["x-forwarded-proto"] == "http"
    assert headers["x-envoy-external-address"] == "127.0.0.1"
    assert seen(get(edge.address("https"), SHOP))["x-forwarded-proto"] == "https"


@pytest.mark.parametrize(
    "header", ["x-kuma-tags", "x-forwarded-client-cert", "x-envoy-original-path", "x-envoy-decorator-operation"]
)
def test_what_only_proxies_say_is_not_believed_of_a_client(edge: Edge, header: str) -> None:
    assert "forged" not in seen(ask(edge, **{header: "forged"})).get(header, "")


def test_a_client_changes_no_timeout_and_asks_for_no_retry(edge: Edge) -> None:
    service = edge.mesh.services["web"]
    service.on("/slow", delay=0.5)
    assert ask(edge, "/slow", x_envoy_upstream_rq_timeout_ms="50").status == http.HTTPStatus.OK

    service.on("/failing", failures=3)
    answer = ask(edge, "/failing", x_envoy_retry_on="5xx", x_envoy_max_retries="3")
    assert answer.status == http.HTTPStatus.SERVICE_UNAVAILABLE
    assert service.hits("/failing") == 1


# --- what it refuses ---


@pytest.mark.parametrize(
    ("path", "status"),
    [("/a//b", 200), ("/a/../b", 200), ("/a%2Fb", 307), ("/a%5cb", 307), ("/a%00b", 400)],
)
def test_paths_are_normalised_before_a_route_is_chosen(edge: Edge, path: str, status: int) -> None:
    answer = ask(edge, path)

    assert answer.status == status
    if status == http.HTTPStatus.OK:
        assert answer.seen["path"] in {"/a/b", "/b"}
    if status == http.HTTPStatus.TEMPORARY_REDIRECT:
        assert answer.headers["location"].endswith("/a/b")


def test_headers_that_others_could_mistake_are_refused(edge: Edge) -> None:
    assert call(edge.address("http"), headers={"Host": "a.example", "x_kuma_tags": "&a=b&"}).status == 400


def test_a_request_that_two_servers_would_read_differently_is_refused(edge: Edge) -> None:
    request = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with socket.create_connection(edge.address("http"), 5) as connection:
        connection.sendall(request.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_who_sends_its_headers_slowly_is_not_waited_for(edge: Edge) -> None:
    with socket.create_connection(edge.address("http"), 20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a.exa")
        assert b" 408 " in connection.recv(100)


# --- what it adds ---


def test_browsers_are_told_to_stay_with_tls_unless_the_service_says_something_of_it(edge: Edge) -> None:
    assert get(edge.address("https"), SHOP).headers[HSTS].startswith("max-age=")
    assert HSTS not in ask(edge).headers

    edge.mesh.services["web"].on("/own", failures=1, headers={HSTS: "max-age=60"})
    assert get(edge.address("https"), SHOP, path="/own").headers[HSTS] == "max-age=60"


def test_a_connection_is_handed_over_to_another_protocol(edge: Edge) -> None:
    with Upgraded() as upgraded:
        sockets = bare_dataplane("sockets", "sockets", upgraded.address)
        to_sockets = gateway_route("sockets", "edge", rule(prefix("/sockets"), to={"sockets": 1}))
        with (
            edge.mesh.having(mesh_service("sockets"), sockets, to_sockets),
            Conversation(edge.address("http")) as client,
        ):
            wish = "Connection: Upgrade\r\nUpgrade: websocket"
            client.say(f"GET /sockets HTTP/1.1\r\nHost: a.example\r\n{wish}\r\n\r\n")

            assert client.hear() == "HTTP/1.1 101 Switching Protocols"
            while client.hear():
                pass
            client.say("echo\n")
            assert client.hear() == "echo"


class Upgraded(socketserver.ThreadingTCPServer):
    """A server that speaks another protocol once it was asked for it, and then says again what it hears."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        self.address = new_address()
        super().__init__(self.address, _Upgrade)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(5)


class _Upgrade(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        for line in self.rfile:
            self.wfile.write(line)


# --- where it sends clients ---


def redirect(to: Document, name: str = "moved", **conditions: str) -> Document:
    filters = [{"type": "RequestRedirect", "requestRedirect": to}]
    names = (conditions["hostname"],) if conditions else ()
    return gateway_route(name, "edge", rule(prefix("/moved"), filters=filters), hostnames=names)


def location(address: Address, host: str, *, over_tls: bool = False) -> str:
    answer = get(address, host, path="/moved") if over_tls else call(address, "/moved", headers={"Host": host})
    return answer.headers["location"]


@pytest.mark.parametrize(
    ("to", "hostname", "expected"),
    [
        pytest.param({"scheme": "https"}, SHOP, f"https://{SHOP}/moved", id="to https"),
        pytest.param({"scheme": "https"}, "*", f"https://{SHOP}:443/moved", id="to https, for every host"),
        pytest.param({"scheme": "https", "port": 8443}, SHOP, f"https://{SHOP}:8443/moved", id="to a port"),
        pytest.param({"scheme": "https", "port": 443}, SHOP, f"https://{SHOP}/moved", id="to the port of https"),
        pytest.param({"hostname": "b.example"}, SHOP, "http://b.example:PORT/moved", id="to another host"),
        pytest.param({"hostname": "b.example", "scheme": "https"}, "*", "https://b.example/moved", id="to both"),
        pytest.param(
            {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/new"}},
            "*",
            f"http://{SHOP}:PORT/new",
            id="to another path",
        ),
    ],
)
def test_a_redirect_names_the_port_of_its_scheme_or_else_that_of_the_listener(
    edge: Edge, to: Document, hostname: str, expected: str
) -> None:
    address = edge.address("http")
    with edge.mesh.having(redirect(to, hostname=hostname)):
        expected = expected.replace("PORT", str(address.port))

        eventually(lambda: location(address, f"{SHOP}:{address.port}") == expected)
        assert location(address, SHOP) == expected


def test_a_redirect_from_https_to_http_leaves_its_port(edge: Edge) -> None:
    with edge.mesh.having(redirect({"scheme": "http"})):
        address = edge.address("https")

        eventually(lambda: location(address, f"{SHOP}:{address.port}", over_tls=True) == f"http://{SHOP}/moved")


def test_a_service_outside_reads_its_own_host(edge: Edge) -> None:
    rewrite = {"type": "URLRewrite", "urlRewrite": {"hostToBackendHostname": True}}
    backend = {"kind": "MeshExternalService", "name": "outside", "port": 80}
    rewritten = {"matches": [prefix("/outside")], "default": {"filters": [rewrite], "backendRefs": [backend]}}
    with HttpService("outside", Address("127.0.0.1", free_port("127.0.0.1"))) as service:
        outside = external_service("outside", {"address": "localhost", "port": service.address.port})
        with edge.mesh.having(outside, gateway_route("outside", "edge", rewritten)):
            answer = eventually(lambda: _taken(ask(edge, "/outside"), "outside"))

            assert seen(answer)["host"] == "localhost"


def _taken(answer: Answer, service: str) -> Answer:
    assert answer.service == service
    return answer


def test_a_busy_client_has_so_many_streams_and_no_more(edge: Edge) -> None:
    """Settings of HTTP/2 as a client reads them: 100 streams, windows of 64 KiB and 1 MiB."""
    settings = _settings(edge.address("http"))

    assert settings[0x3] == 100
    assert settings[0x4] == 65536


def _settings(address: Address) -> dict[int, int]:
    """What the server says first over HTTP/2 (RFC 9113, section 6.5)."""
    with socket.create_connection(address, 5) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
        stream = connection.makefile("rb")
        header = stream.read(9)
        payload = stream.read(int.from_bytes(header[:3]))
    entries = (payload[at : at + 6] for at in range(0, len(payload), 6))
    return {int.from_bytes(entry[:2]): int.from_bytes(entry[2:]) for entry in entries}

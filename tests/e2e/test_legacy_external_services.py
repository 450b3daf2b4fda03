"""ExternalServices under either policy engine: called by their tag, in plain text, over TLS and over HTTP/2.

Under Legacy a TrafficPermission lets everybody call them; who may not call one is in `test_engines`.
"""

import ssl
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import grpc
import pytest
import trustme

from tests.support.client import call
from tests.support.grpc_service import GrpcService, answering_names
from tests.support.loopback import Address, free_port
from tests.support.mesh import (
    MESH,
    Document,
    http_route,
    legacy_external_service,
    mesh_service,
    policy,
    prefix,
    rule,
    secret,
    service_item,
)
from tests.support.playground import Playground, playground
from tests.support.services import HttpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

EAST: Document = {"kuma.io/zone": "east"}
WEST: Document = {"kuma.io/zone": "west"}
CA, OTHER_CA = trustme.CA(), trustme.CA()


EVERYBODY = {"match": {"kuma.io/service": "*"}}
PERMITTED: Document = {
    "type": "TrafficPermission",
    "mesh": "default",
    "name": "everybody",
    "sources": [EVERYBODY],
    "destinations": [EVERYBODY],
}
ENGINES: dict[str, list[Document]] = {"TargetRef": [], "Legacy": [PERMITTED]}


@pytest.fixture(scope="module", params=["Legacy", pytest.param("TargetRef", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def mesh(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    with playground(tmp_path_factory.mktemp(engine)) as mesh:
        mesh.control_plane.apply({**MESH, "policyEngine": engine}, *ENGINES[engine], mesh_service("backend"))
        mesh.control_plane.apply(secret("ca", CA.cert_pem.bytes()), secret("other-ca", OTHER_CA.cert_pem.bytes()))
        mesh.service("backend")
        mesh.client("frontend", "backend", "tag=payments", **EAST)
        mesh.ready()
        yield mesh


@pytest.fixture(scope="module")
def plain(mesh: Playground) -> HttpService:
    return mesh.stack.enter_context(HttpService("plain", Address("127.0.0.1", free_port("127.0.0.1"))))


@pytest.fixture(scope="module")
def secured(mesh: Playground) -> HttpService:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("localhost").configure_cert(context)
    return mesh.stack.enter_context(HttpService("secured", Address("127.0.0.1", free_port("127.0.0.1")), tls=context))


def at(service: HttpService, name: str = "payments", tls: Document | None = None, **tags: Any) -> Document:
    return legacy_external_service(name, "payments", f"localhost:{service.address.port}", tls, **tags)


def payments(mesh: Playground) -> Address:
    return mesh.proxies["frontend"].outbound("tag=payments")


def answers(mesh: Playground, times: int = 20) -> set[str]:
    return {call(payments(mesh)).service for _ in range(times)}


def test_a_call_by_the_tag_goes_to_the_address_and_asks_for_its_name(mesh: Playground, plain: HttpService) -> None:
    with mesh.having(at(plain)):
        eventually(lambda: call(payments(mesh)).service == "plain")

        assert call(payments(mesh)).seen["headers"]["host"] == "localhost"


@pytest.mark.parametrize(
    ("tls", "status"),
    [
        pytest.param({}, 200, id="nobody is verified without a CA"),
        pytest.param({"caCert": {"secret": "ca"}}, 200, id="its own CA"),
        pytest.param({"caCert": {"secret": "other-ca"}}, 503, id="a wrong CA"),
        pytest.param({"caCert": {"secret": "ca"}, "serverName": "other.test"}, 503, id="a wrong name"),
        pytest.param(
            {"caCert": {"secret": "ca"}, "serverName": "other.test", "skipHostnameVerification": True},
            200,
            id="any name",
        ),
        pytest.param({"caCert": {"secret": "missing"}}, 500, id="a Secret that is not there"),
    ],
)
def test_it_is_spoken_to_over_tls(mesh: Playground, secured: HttpService, tls: dict[str, Any], status: int) -> None:
    with mesh.having(at(secured, tls={"enabled": True, **tls})):
        eventually(lambda: call(payments(mesh)).status == status)


def test_a_call_by_the_tag_to_an_address_of_numbers_asks_as_the_workload_asks(mesh: Playground) -> None:
    with HttpService("numbered") as numbered:
        document = legacy_external_service("payments", "payments", str(numbered.address))
        with mesh.having(document):
            eventually(lambda: call(payments(mesh)).service == "numbered")

            seen = call(payments(mesh), headers={"host": "whatever.example"}).seen
    assert seen["headers"]["host"] == "whatever.example"


@pytest.fixture
def greeted(mesh: Playground) -> Iterator[tuple[HttpService, list[str | None]]]:
    """A service that speaks HTTP/1.1 over TLS, and the names for which it was asked in handshakes."""
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("localhost", "other.test").configure_cert(context)
    context.set_alpn_protocols(["http/1.1"])
    context.sni_callback = lambda _, name, __: names.append(name)
    with HttpService("greeted", Address("127.0.0.1", free_port("127.0.0.1")), tls=context) as service:
        yield service, names


@pytest.mark.parametrize(("tls", "name"), [({}, "localhost"), ({"serverName": "other.test"}, "other.test")])
def test_the_handshake_names_the_host_and_the_protocols(
    mesh: Playground, greeted: tuple[HttpService, list[str | None]], tls: Document, name: str
) -> None:
    service, names = greeted
    with mesh.having(at(service, tls={"enabled": True, "caCert": {"secret": "ca"}, **tls})):
        eventually(lambda: call(payments(mesh)).service == "greeted")

        assert call(payments(mesh)).seen["alpn"] == "http/1.1"
    assert set(names) == {name}


def checked(engine: str) -> Document:
    """A check of the ExternalService, as each of the engines starts with its own kind of."""
    conf: Document = {"interval": "1s", "timeout": "1s", "unhealthyThreshold": 1, "healthyThreshold": 1}
    if engine == "TargetRef":
        return policy("MeshHealthCheck", "checks", service_item("payments", {**conf, "http": {"path": "/health"}}))
    selectors = {"sources": [EVERYBODY], "destinations": [{"match": {"kuma.io/service": "payments"}}]}
    http = {"path": "/health"}
    return {"type": "HealthCheck", "mesh": "default", "name": "checks", **selectors, "conf": {**conf, "http": http}}


def test_one_that_fails_its_checks_gets_no_calls(mesh: Playground, engine: str, plain: HttpService) -> None:
    with HttpService("ill", Address("127.0.0.1", free_port("127.0.0.1"))) as ill:
        plain.on("/health")
        ill.on("/health", failures=1000)
        with mesh.having(at(plain), at(ill, "payments-2"), checked(engine)):
            eventually(lambda: ill.hits("/health") > 0 and answers(mesh) == {"plain"})
            assert plain.headers("/health")["host"] == "localhost"

            ill.on("/health")
            eventually(lambda: answers(mesh) == {"plain", "ill"})


def test_those_in_the_zone_of_the_caller_come_first_and_others_for_when_they_are_gone(
    mesh: Playground, engine: str, plain: HttpService
) -> None:
    plain.on("/health")
    with closing(HttpService("near", Address("127.0.0.1", free_port("127.0.0.1")))) as near:
        documents = at(near, "payments-2", **EAST), at(plain, **WEST)
        with mesh.having(*documents, checked(engine)):
            eventually(lambda: answers(mesh) == {"near"})

            near.on("/health", failures=1000)
            eventually(lambda: answers(mesh) == {"plain"})


@pytest.mark.parametrize("protocol", ["http2", "grpc"])
def test_http_2_is_spoken_where_its_tag_says_so(mesh: Playground, protocol: str) -> None:
    """A status of gRPC comes behind the answer, where HTTP/1.1 would lose it."""
    with GrpcService("payments") as service:
        address = f"{service.address.host}:{service.address.port}"
        tags: Document = {"kuma.io/protocol": protocol}
        document = legacy_external_service("payments", "payments", address, **tags)
        with mesh.having(document):
            eventually(lambda: set(answering_names(payments(mesh), 6)) == {"payments"})


def test_http_2_is_asked_for_in_the_handshake(mesh: Playground) -> None:
    """Such a server closes a connection on which nobody asks for it."""
    leaf = CA.issue_cert("localhost")
    chain = b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
    tls: Document = {"enabled": True, "caCert": {"secret": "ca"}, "serverName": "localhost"}
    with GrpcService("payments", grpc.ssl_server_credentials([(leaf.private_key_pem.bytes(), chain)])) as service:
        tags: Document = {"kuma.io/protocol": "grpc"}
        with mesh.having(legacy_external_service("payments", "payments", str(service.address), tls, **tags)):
            eventually(lambda: set(answering_names(payments(mesh), 6)) == {"payments"})


def test_two_with_one_tag_share_the_calls_and_each_has_its_own_tls(
    mesh: Playground, plain: HttpService, secured: HttpService
) -> None:
    tls = {"enabled": True, "caCert": {"secret": "ca"}}
    with mesh.having(at(plain), at(secured, "payments-2", tls)):
        eventually(lambda: answers(mesh) == {"plain", "secured"})

        assert {call(payments(mesh)).status for _ in range(20)} == {200}


def test_a_split_by_tags_chooses_among_them(mesh: Playground, plain: HttpService, secured: HttpService) -> None:
    new = {"kind": "MeshServiceSubset", "name": "payments", "tags": {"version": "new"}}
    route = http_route("new", "payments", rule(prefix("/new"), backendRefs=[new]))
    services = at(plain, version="old"), at(secured, "payments-2", {"enabled": True}, version="new")
    with mesh.having(*services, route):
        eventually(lambda: {call(payments(mesh), "/new").service for _ in range(10)} == {"secured"})

        assert answers(mesh) == {"plain", "secured"}


def test_a_limit_is_kept_by_who_calls_it(mesh: Playground, plain: HttpService) -> None:
    everybody = [{"match": {"kuma.io/service": "*"}}]
    conf = {"http": {"requests": 2, "interval": "60s", "onRateLimit": {"status": 423}}}
    envelope = {"type": "RateLimit", "mesh": "default", "name": "few", "sources": everybody, "conf": conf}
    limit: Document = {**envelope, "destinations": [{"match": {"kuma.io/service": "payments"}}]}
    with mesh.having(at(plain)):
        eventually(lambda: call(payments(mesh)).service == "plain")
        with mesh.having(limit):
            eventually(lambda: call(payments(mesh)).status == 423)

            assert call(mesh.proxies["frontend"].outbound("backend")).status == 200
        eventually(lambda: call(payments(mesh)).status == 200)


def test_calls_come_back_into_the_mesh_with_the_first_dataplane(mesh: Playground, plain: HttpService) -> None:
    with mesh.having(at(plain)):
        eventually(lambda: answers(mesh) == {"plain"})
        with HttpService("inside") as inside:
            networking = {
                "address": inside.address.host,
                "inbound": [
                    {"port": inside.address.port, "tags": {"kuma.io/service": "payments", "kuma.io/protocol": "http"}}
                ],
            }
            dataplane = {"type": "Dataplane", "mesh": "default", "name": "payments-1", "networking": networking}
            with mesh.having(dataplane):
                eventually(lambda: answers(mesh) == {"inside"})
        eventually(lambda: answers(mesh) == {"plain"})

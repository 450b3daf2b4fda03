"""A machine whose traffic is redirected, with the very commands of the guide: what its workload observes."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.authority import Authority, provided
from tests.support.client import TICK, call
from tests.support.loopback import Address
from tests.support.mesh import (
    MESH,
    Document,
    http_route,
    legacy_external_service,
    mesh_service,
    policy,
    prefix,
    request_timeout,
    rule,
    service_item,
)
from tests.support.redirected import Redirected, asked_for, commands, dataplane, redirected, vip
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy


@pytest.fixture(scope="module")
def mesh() -> Iterator[Redirected]:
    with redirected() as mesh:
        yield mesh


def test_a_virtual_address_leads_to_its_service_and_has_what_policies_say(mesh: Redirected) -> None:
    backend = vip(mesh_service("backend"))
    mesh.services["backend"].on("/slow", delay=1.5)
    timeout = policy("MeshTimeout", "of-backend", service_item("backend", request_timeout("500ms")))

    assert mesh.call(backend).service == "backend"
    assert mesh.call(backend, "/slow").status == 200
    with mesh.having(timeout):
        eventually(lambda: mesh.call(backend, "/slow").status == 504)
        assert mesh.call(backend, "/slow").seconds >= 0.5 - TICK


def test_a_new_service_is_called_without_anybody_touching_the_dataplane(mesh: Redirected) -> None:
    new = mesh_service("new")
    new["spec"]["selector"] = {"dataplaneTags": {"kuma.io/service": "backend"}}
    address = vip(mesh_service("backend"), new)

    with pytest.raises(OSError, match=r".+"):
        mesh.call(address)
    with mesh.having(new):
        assert eventually(lambda: mesh.call(address)).service == "backend"


@pytest.mark.parametrize("name", ["backend.svc.mesh.local", "backend.mesh", "web.mesh"])
def test_names_are_asked_of_the_proxy(mesh: Redirected, name: str) -> None:
    """As the workload asks: at the usual port of whomever the machine would ask."""
    address = eventually(lambda: mesh.near.run(asked_for, name, Address("10.99.0.3", 53)))

    assert address.startswith("241." if ".svc." in name else "240.")
    assert mesh.call(Address(address, 80)).service == ("workload" if name == "web.mesh" else "backend")


def test_names_of_a_virtual_outbound_are_asked_of_the_proxy(mesh: Redirected) -> None:
    parameters = [{"name": "service", "tagKey": "kuma.io/service"}]
    conf = {"host": "{{ .service }}.shop.example", "port": "8000", "parameters": parameters}
    outbound: Document = {
        "type": "VirtualOutbound",
        "mesh": "default",
        "name": "shop",
        "selectors": [{"match": {"kuma.io/service": "*"}}],
        "conf": conf,
    }
    with mesh.having(outbound):
        address = eventually(lambda: mesh.near.run(asked_for, "backend.shop.example", Address("10.99.0.3", 53)))

        assert eventually(lambda: mesh.call(Address(address, 8000))).service == "backend"


@pytest.fixture
def paid(mesh: Redirected) -> Iterator[Callable[[], bool]]:
    """An ExternalService for a server outside. Whether a call to its address goes through the proxy's route for it."""
    service = legacy_external_service("paid", "paid", str(mesh.services["other"].address))
    added = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "by", "value": "the-proxy"}]}}
    with mesh.having(service), mesh.having(http_route("of-paid", "paid", rule(prefix("/"), filters=[added]))):
        yield lambda: mesh.call(mesh.services["other"].address).seen["headers"].get("by") == "the-proxy"
    mesh.far.run(mesh.control_plane.in_force)


def test_an_external_service_is_called_by_its_own_address(paid: Callable[[], bool]) -> None:
    eventually(paid)


def test_a_dataplane_that_says_what_it_reaches_is_told_of_nothing_else(
    mesh: Redirected, paid: Callable[[], bool]
) -> None:
    eventually(paid)
    document = dataplane(mesh.near, mesh.services["workload"])
    narrowed = dataplane(mesh.near, mesh.services["workload"])
    narrowed["networking"]["transparentProxying"]["reachableServices"] = ["backend"]
    mesh.apply(narrowed)
    try:
        eventually(lambda: not paid())
    finally:
        mesh.apply(document)
    eventually(paid)


def test_calls_to_others_go_where_they_were_sent_to(mesh: Redirected) -> None:
    before = mesh.near.run(mesh.envoy.stat, PASSED)

    assert mesh.reached() == {"outside", "other", "speaks first"}
    assert mesh.near.run(mesh.envoy.stat, PASSED) == before + 3, "by way of the proxy"


def test_a_mesh_can_keep_them_in(mesh: Redirected) -> None:
    mesh.apply({**MESH, "networking": {"outbound": {"passthrough": False}}})
    try:
        eventually(lambda: not mesh.reached())
        assert mesh.call(vip(mesh_service("backend"))).service == "backend"
        with mesh.passing(passthroughMode="All"):
            eventually(lambda: mesh.reached() == {"outside", "other", "speaks first"})
    finally:
        mesh.apply(MESH)
        eventually(lambda: len(mesh.reached()) == 3)


def test_nothing_passes_where_a_policy_says_none(mesh: Redirected) -> None:
    with mesh.passing(passthroughMode="None"):
        eventually(lambda: not mesh.reached())
        assert mesh.call(vip(mesh_service("backend"))).service == "backend"


OUTSIDE: Final = {"type": "IP", "value": "10.99.0.3"}


@pytest.mark.parametrize(
    ("matches", "expected"),
    [
        pytest.param([], set[str](), id="nothing"),
        pytest.param([OUTSIDE], {"outside", "other", "speaks first"}, id="an address"),
        pytest.param([{"type": "CIDR", "value": "10.99.0.0/24"}], {"outside", "other", "speaks first"}, id="network"),
        pytest.param([{"type": "CIDR", "value": "10.98.0.0/16"}], set[str](), id="another network"),
        pytest.param([{**OUTSIDE, "port": 80}], {"outside"}, id="a port"),
        pytest.param([{**OUTSIDE, "port": 8081, "protocol": "http"}], {"other"}, id="http"),
        pytest.param([{**OUTSIDE, "port": 80, "protocol": "tls"}], set[str](), id="no tls"),
        pytest.param([{**OUTSIDE, "port": 3306, "protocol": "mysql"}], {"speaks first"}, id="mysql"),
        pytest.param([{**OUTSIDE, "protocol": "http"}], {"outside", "other"}, id="http on every port"),
        pytest.param(
            [{**OUTSIDE, "protocol": "http"}, {**OUTSIDE, "port": 3306, "protocol": "mysql"}],
            {"outside", "other", "speaks first"},
            id="all together",
        ),
        pytest.param(
            [
                {"type": "CIDR", "value": "10.99.0.0/24"},
                {"type": "Domain", "value": "a", "port": 80, "protocol": "http"},
            ],
            {"outside", "other", "speaks first"},
            id="a port of one match hides no other",
        ),
    ],
)
def test_only_what_matches_passes(mesh: Redirected, matches: list[Document], expected: set[str]) -> None:
    with mesh.passing(passthroughMode="Matched", appendMatch=matches):
        eventually(lambda: mesh.reached() == expected, within=20)


def test_requests_pass_by_the_host_that_they_name(mesh: Redirected) -> None:
    matches = [
        {"type": "Domain", "value": "here.example", "port": 80, "protocol": "http"},
        {"type": "Domain", "value": "*.there.example", "port": 80, "protocol": "http"},
        {"type": "Domain", "value": "anywhere.example", "protocol": "http"},
    ]
    answers = {
        "here.example": "outside",
        "HERE.example:80": "outside",
        "a.there.example": "outside",
        "anywhere.example": "outside",
        "there.example": "",
        "else.example": "",
    }
    with mesh.passing(passthroughMode="Matched", appendMatch=matches):
        address = mesh.services["outside"].address
        eventually(lambda: mesh.call(address, Host="else.example").status == 503)
        assert {host: mesh.call(address, Host=host).service for host in answers} == answers
        assert mesh.reaches("other", Host="anywhere.example")
        assert not mesh.reaches("other", Host="here.example")


def test_tls_passes_by_the_name_in_it(mesh: Redirected) -> None:
    """Whoever listens speaks no TLS: that it was asked for a handshake at all shows that it was reached."""
    matches = [
        {"type": "Domain", "value": name, "port": 80, "protocol": "tls"} for name in ("a.example", "*.b.example")
    ]

    def answered() -> dict[str, bool]:
        return {name: mesh.near.run(answers_to_tls, mesh.services["outside"].address, name) for name in NAMES}

    with mesh.passing(passthroughMode="Matched", appendMatch=matches):
        eventually(lambda: answered() == NAMES)


NAMES: Final = {"a.example": True, "x.b.example": True, "b.example": False, "c.example": False}


def answers_to_tls(address: Address, name: str) -> bool:
    """Whether anybody answers to the beginning of a TLS connection; what does not pass is closed without a word."""
    context, coming, going = ssl.create_default_context(), ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(coming, going, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    with socket.create_connection(address, 5) as connection:
        connection.sendall(going.read())
        try:
            return bool(connection.recv(1))
        except OSError:
            return False


def test_what_comes_in_goes_through_the_inbound_or_to_where_it_was_sent(mesh: Redirected) -> None:
    through = mesh.near.run(mesh.envoy.stat, CAME_IN)
    inbound = Address(mesh.near.address, mesh.services["workload"].address.port)

    assert mesh.far.run(call, inbound).service == "workload", "its inbound, although it has no socket"
    assert mesh.near.run(mesh.envoy.stat, CAME_IN) == through, "what an inbound takes does not pass by it"
    assert mesh.far.run(call, mesh.services["unknown"].address).service == "unknown"
    assert mesh.near.run(mesh.envoy.stat, CAME_IN) == through + 1


@pytest.mark.parametrize("port", [15001, 15006])
def test_what_is_sent_to_the_port_of_the_proxy_goes_nowhere(mesh: Redirected, port: int) -> None:
    before = mesh.near.run(mesh.envoy.stats, "cx_total$")
    with pytest.raises(OSError, match=r".+"):
        mesh.far.run(call, Address(mesh.near.address, port))
    after = mesh.near.run(mesh.envoy.stats, "cx_total$")

    assert sum(after.values()) - sum(before.values()) < 10, "and not round and round"


PASSED: Final = "cluster.outbound_passthrough_ipv4.upstream_cx_total"
CAME_IN: Final = "cluster.inbound_passthrough_ipv4.upstream_cx_total"


def test_the_commands_of_the_guide_undo_what_they_did(mesh: Redirected) -> None:
    first, second = commands()
    mesh.near.sh(second)
    try:
        with pytest.raises(OSError, match=r".+"):
            mesh.near.run(call, vip(mesh_service("backend")), timeout=1)
        assert mesh.reaches("outside"), "without the proxy"
    finally:
        mesh.near.sh(first)

    assert mesh.call(vip(mesh_service("backend"))).service == "backend"


def test_under_mtls_redirected_calls_need_a_certificate(mesh: Redirected, tmp_path: Path) -> None:
    authority, allowed = Authority(), {"from": [{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]}
    permission = {"type": "MeshTrafficPermission", "mesh": "default", "name": "everybody", "spec": allowed}
    with_mtls = {**MESH, "mtls": {"enabledBackend": "ca-1", "backends": [provided()]}}
    inbound = Address(mesh.near.address, 8080)
    own = Address(eventually(lambda: mesh.near.run(asked_for, "web.mesh", Address("10.99.0.3", 53))), 80)
    leaf = authority.leaf("spiffe://default/tester")

    def over_tls() -> bool:
        connection = http.client.HTTPSConnection(*inbound, context=leaf.client(tmp_path), timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == http.HTTPStatus.OK
        finally:
            connection.close()

    def is_closed() -> bool:
        with pytest.raises((OSError, http.client.HTTPException)):
            call(inbound, timeout=5)
        return True

    mesh.apply(*authority.secrets(), permission, with_mtls)
    try:
        eventually(lambda: mesh.far.run(over_tls))
        assert mesh.far.run(is_closed)
        assert eventually(lambda: mesh.call(own)).service == "workload"
    finally:
        mesh.apply(MESH)
    eventually(lambda: mesh.far.run(call, inbound).status == http.HTTPStatus.OK)

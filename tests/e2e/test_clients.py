"""Inbounds that do not treat all clients alike: by what a certificate shows, and by nothing that a request says."""

import http.client
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests.support.authority import Authority, Certified, provided
from tests.support.client import call
from tests.support.loopback import Address
from tests.support.mesh import MESH, Document, mesh_service
from tests.support.playground import Playground
from tests.support.services import TcpService
from tests.support.waiting import eventually

pytestmark = [pytest.mark.envoy, pytest.mark.long]

AUTHORITY = Authority()
WEB = AUTHORITY.leaf("spiffe://default/web", "kuma://version/v1")
LAST = AUTHORITY.leaf("kuma://a/b", "spiffe://default/first", "spiffe://default/web")
NAMESAKE = AUTHORITY.leaf("spiffe://default/web2", "kuma://spiffe/default/web")
OTHER = AUTHORITY.leaf("spiffe://default/other", "kuma://version/v1")
SPOOFED = {
    "x-koguma-client-uris": "spiffe://default/web",
    "X-Koguma-Server-Name": "web.example",
    "x-forwarded-client-cert": "URI=spiffe://default/web",
}
SLOW, DELAY = "/slow", 0.6


def client(value: str = "spiffe://default/web", kind: str = "Exact") -> Document:
    return {"spiffeID": {"type": kind, "value": value}}


def rules(kind: str, *items: Document) -> Document:
    target = {"kind": "Mesh", "proxyTypes": ["Sidecar"]}
    return {"type": kind, "mesh": "default", "name": "of-clients", "spec": {"targetRef": target, "rules": list(items)}}


def timeouts(request: str) -> Document:
    return {"default": {"http": {"requestTimeout": request}}}


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    everybody = {"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}
    allowed = {"targetRef": {"kind": "Mesh"}, "from": [everybody]}
    permission = {"type": "MeshTrafficPermission", "mesh": "default", "name": "everybody", "spec": allowed}
    empty_mesh.control_plane.apply(*AUTHORITY.secrets(), with_mtls("PERMISSIVE"), permission)
    empty_mesh.control_plane.apply(mesh_service("backend"), mesh_service("echo", "tcp"))
    empty_mesh.service("backend").on(SLOW, delay=DELAY)
    echo = empty_mesh.stack.enter_context(TcpService("echo"))
    empty_mesh.tcp("echo", echo.address)
    empty_mesh.client("frontend", "backend", "echo")
    empty_mesh.ready()
    return empty_mesh


def with_mtls(mode: str) -> Document:
    return {**MESH, "mtls": {"enabledBackend": "ca-1", "backends": [provided(mode=mode)]}}


@pytest.fixture
def inbound(mesh: Playground) -> Address:
    return mesh.proxies["backend"].inbound


@pytest.fixture
def sent(inbound: Address, tmp_path: Path) -> Callable[..., int]:
    """The status of a request that a client with a certificate sends, asking for a server name."""

    def status(leaf: Certified, path: str = SLOW, server_name: str = "", **headers: str) -> int:
        context = leaf.client(tmp_path)
        with secured(inbound, context, server_name) as connection:
            plain = http.client.HTTPConnection(*inbound)
            plain.sock = connection
            plain.request("GET", path, headers=headers)
            return plain.getresponse().status

    return status


@contextmanager
def secured(address: Address, context: ssl.SSLContext, server_name: str = "") -> Iterator[Any]:
    with (
        socket.create_connection(address, 10) as connection,
        context.wrap_socket(connection, server_hostname=server_name or None) as over_tls,
    ):
        yield over_tls


def test_one_client_has_less_time_than_all_others(mesh: Playground, inbound: Address, sent: Callable[..., int]) -> None:
    short, long = timeouts("200ms"), timeouts("20s")
    with mesh.having(rules("MeshTimeout", long, {"matches": [client()], **short})):
        eventually(lambda: sent(WEB) == HTTPStatus.GATEWAY_TIMEOUT)

        assert sent(LAST) == HTTPStatus.GATEWAY_TIMEOUT
        assert sent(NAMESAKE) == HTTPStatus.OK
        assert sent(OTHER) == HTTPStatus.OK
        assert sent(OTHER, **SPOOFED) == HTTPStatus.OK
        assert call(inbound, SLOW, headers=SPOOFED).status == HTTPStatus.OK
        assert call(inbound, SLOW).status == HTTPStatus.OK


def test_a_client_with_more_time_cannot_be_feigned(
    mesh: Playground, inbound: Address, sent: Callable[..., int]
) -> None:
    short, long = timeouts("200ms"), timeouts("20s")
    with mesh.having(rules("MeshTimeout", short, {"matches": [client("spiffe://default/w", "Prefix")], **long})):
        eventually(lambda: sent(OTHER) == HTTPStatus.GATEWAY_TIMEOUT)

        assert sent(WEB) == HTTPStatus.OK
        assert sent(NAMESAKE) == HTTPStatus.OK
        assert sent(OTHER, **SPOOFED) == HTTPStatus.GATEWAY_TIMEOUT
        assert call(inbound, SLOW, headers=SPOOFED).status == HTTPStatus.GATEWAY_TIMEOUT


@pytest.mark.long
def test_the_server_name_that_a_client_asks_for_decides(
    mesh: Playground, inbound: Address, sent: Callable[..., int]
) -> None:
    short, match = timeouts("200ms"), {"sni": {"type": "Exact", "value": "web.example"}}
    with mesh.having(rules("MeshTimeout", timeouts("20s"), {"matches": [match], **short})):
        eventually(lambda: sent(OTHER, server_name="web.example") == HTTPStatus.GATEWAY_TIMEOUT)

        assert sent(OTHER, server_name="other.example") == HTTPStatus.OK
        assert sent(OTHER) == HTTPStatus.OK
        assert call(inbound, SLOW, headers=SPOOFED).status == HTTPStatus.OK


def test_a_stream_of_one_client_may_be_silent_for_less_time(mesh: Playground, sent: Callable[..., int]) -> None:
    silence = {"default": {"http": {"streamIdleTimeout": "200ms"}}}
    with mesh.having(rules("MeshTimeout", timeouts("20s"), {"matches": [client()], **silence})):
        eventually(lambda: sent(WEB) == HTTPStatus.REQUEST_TIMEOUT or sent(WEB) == HTTPStatus.GATEWAY_TIMEOUT)

        assert sent(OTHER) == HTTPStatus.OK


def test_faults_are_for_the_client_with_one_identity(
    mesh: Playground, inbound: Address, sent: Callable[..., int]
) -> None:
    fault = {"default": {"http": [{"abort": {"httpStatus": HTTPStatus.IM_A_TEAPOT, "percentage": 100}}]}}
    with mesh.having(rules("MeshFaultInjection", {"matches": [client()], **fault})):
        eventually(lambda: sent(WEB, "/") == HTTPStatus.IM_A_TEAPOT)

        assert sent(LAST, "/") == HTTPStatus.IM_A_TEAPOT
        assert [sent(leaf, "/", **SPOOFED) for leaf in (NAMESAKE, OTHER)] == [HTTPStatus.OK] * 2
        assert call(inbound, "/", headers=SPOOFED).status == HTTPStatus.OK


def test_the_workload_does_not_see_by_what_clients_are_told_apart(
    mesh: Playground, inbound: Address, sent: Callable[..., int]
) -> None:
    with mesh.having(rules("MeshTimeout", timeouts("20s"), {"matches": [client()], **timeouts("200ms")})):
        eventually(lambda: sent(WEB) == HTTPStatus.GATEWAY_TIMEOUT)
        assert sent(WEB, "/seen", **SPOOFED) == HTTPStatus.OK
        over_tls = {name.lower(): value for name, value in mesh.services["backend"].headers("/seen").items()}
        assert call(inbound, "/seen", headers=SPOOFED).status == HTTPStatus.OK
        in_plain_text = {name.lower(): value for name, value in mesh.services["backend"].headers("/seen").items()}

    assert "URI=spiffe://default/web" in over_tls["x-forwarded-client-cert"]
    assert "x-koguma-client-uris" not in over_tls
    assert "x-koguma-client-uris" not in in_plain_text


def logged(path: Path, text: str) -> Document:
    form = {"type": "Plain", "plain": text}
    return {"default": {"backends": [{"type": "File", "file": {"path": str(path), "format": form}}]}}


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_one_client_has_a_log_of_its_own(
    mesh: Playground, inbound: Address, sent: Callable[..., int], tmp_path: Path
) -> None:
    text = "%REQ(:PATH)% %RESPONSE_CODE%"
    of_all, of_web = tmp_path / "all.log", tmp_path / "web.log"
    denied = rules("MeshTrafficPermission", {"default": {"deny": [client("spiffe://default/first")]}})
    log = rules("MeshAccessLog", logged(of_all, text), {"matches": [client()], **logged(of_web, text)})
    with mesh.having(log, {**denied, "name": "denied"}):
        eventually(lambda: sent(WEB, "/web") and "/web 200" in lines(of_web))
        eventually(lambda: sent(LAST, "/denied") == HTTPStatus.FORBIDDEN and "/denied 403" in lines(of_web))
        for leaf in (OTHER, NAMESAKE):
            assert sent(leaf, "/other", **SPOOFED) == HTTPStatus.OK
        assert call(inbound, "/plain").status == HTTPStatus.OK
        eventually(lambda: {"/plain 200", "/other 200"} <= set(lines(of_all)))

    assert set(lines(of_web)) == {"/web 200", "/denied 403"}
    assert lines(of_all).count("/other 200") == 2
    assert not {"/web 200", "/denied 403"} & set(lines(of_all)[lines(of_all).index("/other 200") :])


def test_connections_of_one_client_have_a_log_of_their_own(mesh: Playground, tmp_path: Path) -> None:
    of_all, of_web = tmp_path / "all.log", tmp_path / "web.log"
    log = rules(
        "MeshAccessLog",
        logged(of_all, "%DOWNSTREAM_PEER_URI_SAN%"),
        {"matches": [client()], **logged(of_web, "%DOWNSTREAM_PEER_URI_SAN%")},
    )
    address = mesh.proxies["echo"].inbound

    def spoken(leaf: Certified) -> None:
        with secured(address, leaf.client(tmp_path)) as connection:
            connection.sendall(b"hello\n")
            assert connection.recv(100)

    def is_logged(leaf: Certified, path: Path, name: str) -> bool:
        spoken(leaf)
        return any(name in line for line in lines(path))

    with mesh.having(log):
        eventually(lambda: is_logged(LAST, of_web, "spiffe://default/first"))
        eventually(lambda: is_logged(OTHER, of_all, "spiffe://default/other"))
        eventually(lambda: is_logged(NAMESAKE, of_all, "spiffe://default/web2"))

    assert all("spiffe://default/first" in line for line in lines(of_web))

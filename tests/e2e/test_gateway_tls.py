"""Gateways that speak TLS with their clients: which certificate, which routes, and who is turned away."""

import http
import socket
import ssl
from base64 import b64encode
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.support.client import Conversation
from tests.support.edge import CA, ECDSA, RSA, Edge, all_to, certified, get, is_closed, shown, trusting
from tests.support.loopback import Address
from tests.support.mesh import Document, backend, listener, mesh_gateway, mesh_service, policy, secret
from tests.support.playground import Playground
from tests.support.services import HttpService, TcpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy


@pytest.fixture(scope="module")
def edge(empty_mesh: Playground) -> Edge:
    for name in ("one", "two", "three"):
        empty_mesh.control_plane.apply(mesh_service(name))
        empty_mesh.service(name)
    proxy = empty_mesh.gateway("edge")
    empty_mesh.ready()
    return Edge(empty_mesh, proxy)


@pytest.fixture(scope="module")
def https(edge: Edge) -> Address:
    """Three hostnames on one port, each with its certificate and its service."""
    address = edge.address("https")
    edge.serves(
        secret("of-shop", certified("shop.example.com")),
        secret("of-all", certified("*.example.com", "*.deep.example.com")),
        secret("of-other", certified("shop.example.org")),
        mesh_gateway(
            "edge",
            listener(address.port, "HTTPS", "shop.example.com", "of-shop", tags={"is": "shop"}),
            listener(address.port, "HTTPS", "*.example.com", "of-all", tags={"is": "all"}),
            listener(address.port, "HTTPS", "shop.example.org", "of-other", tags={"is": "other"}),
        ),
        all_to("one", **{"is": "shop"}),
        all_to("two", **{"is": "all"}),
        all_to("three", **{"is": "other"}),
    )
    eventually(lambda: get(address, "shop.example.com").status == http.HTTPStatus.OK)
    return address


@pytest.mark.parametrize(
    ("host", "service", "name"),
    [
        ("shop.example.com", "one", "shop.example.com"),
        ("blog.example.com", "two", "*.example.com"),
        ("very.deep.example.com", "two", "*.example.com"),
        ("shop.example.org", "three", "shop.example.org"),
    ],
)
def test_hostnames_on_one_port_have_their_certificates_and_their_routes(
    https: Address, host: str, service: str, name: str
) -> None:
    answer = get(https, host)

    assert answer.service == service
    names = shown(https, host).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert name in names.get_values_for_type(x509.DNSName)


@pytest.mark.parametrize("sni", ["shop.example.net", "example.com", None])
def test_who_asks_for_a_name_that_nobody_serves_gets_no_connection(https: Address, sni: str | None) -> None:
    assert is_closed(https, sni)
    assert not is_closed(https, "shop.example.com")


@pytest.mark.parametrize(
    ("sni", "host", "status"),
    [
        ("shop.example.com", "shop.example.com", 200),
        ("shop.example.com", "shop.example.com:8443", 200),
        ("shop.example.com", "shop.example.org", 421),
        ("shop.example.com", "blog.example.com", 421),
        ("blog.example.com", "news.example.com", 200),
        ("blog.example.com", "shop.example.com", 421),
        ("blog.example.com", "example.net", 421),
    ],
)
def test_a_request_has_to_come_on_a_connection_of_its_listener(
    https: Address, sni: str, host: str, status: int
) -> None:
    """On another one it is misdirected (421), so that the client asks again; so is a host of nobody."""
    assert get(https, host, sni).status == status


def test_clients_choose_the_protocol(https: Address) -> None:
    def chosen(*offered: str) -> str | None:
        context = trusting()
        context.set_alpn_protocols(list(offered))
        with (
            socket.create_connection(https, 5) as connection,
            context.wrap_socket(connection, server_hostname="shop.example.com") as over_tls,
        ):
            return over_tls.selected_alpn_protocol()

    assert chosen("http/1.1", "h2") == "h2"
    assert chosen("http/1.1") == "http/1.1"


@pytest.mark.long
def test_who_does_not_end_its_handshake_is_sent_away(https: Address) -> None:
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="a.example.com").do_handshake()
    with socket.create_connection(https, 14) as connection:
        connection.sendall(sent.read())
        while connection.recv(4096):
            pass


def test_a_listener_has_a_certificate_for_each_sort_of_key(edge: Edge) -> None:
    address = edge.address("both")
    edge.serves(
        secret("of-rsa", certified("both.example.com", key_type=RSA)),
        secret("of-ecdsa", certified("both.example.com", key_type=ECDSA)),
        mesh_gateway("edge", listener(address.port, "HTTPS", "both.example.com", "of-rsa", "of-ecdsa")),
    )

    eventually(lambda: not is_closed(address, "both.example.com"))
    of_rsa = shown(address, "both.example.com", ciphers="ECDHE+aRSA").public_key()
    of_ecdsa = shown(address, "both.example.com", ciphers="ECDHE+ECDSA").public_key()
    assert isinstance(of_rsa, rsa.RSAPublicKey)
    assert isinstance(of_ecdsa, ec.EllipticCurvePublicKey)


def test_certificates_stand_in_the_gateway_or_in_a_file_beside_it(edge: Edge, tmp_path: Path) -> None:
    (file := tmp_path / "of-file.pem").write_bytes(certified("file.example.com"))
    sources = {
        "inline": {"inline": b64encode(certified("inline.example.com")).decode()},
        "string": {"inlineString": certified("string.example.com").decode()},
        "file": {"file": str(file)},
    }
    address = edge.address("sources")
    listeners = [
        listener(address.port, "HTTPS", f"{name}.example.com", tls={"mode": "TERMINATE", "certificates": [source]})
        for name, source in sources.items()
    ]
    edge.serves(mesh_gateway("edge", *listeners), all_to("one"))

    for name in sources:
        eventually(lambda name=name: get(address, f"{name}.example.com").service == "one")  # type: ignore[misc]


def test_a_file_that_is_replaced_is_read_again(edge: Edge, tmp_path: Path) -> None:
    (file := tmp_path / "of-file.pem").write_bytes(certified("file.example.com"))
    address = edge.address("file")
    source = {"mode": "TERMINATE", "certificates": [{"file": str(file)}]}
    edge.serves(mesh_gateway("edge", listener(address.port, "HTTPS", "file.example.com", tls=source)))
    eventually(lambda: not is_closed(address, "file.example.com"))
    before = shown(address, "file.example.com").serial_number

    (new := tmp_path / "new.pem").write_bytes(certified("file.example.com"))
    new.rename(file)

    eventually(lambda: shown(address, "file.example.com").serial_number != before)


@pytest.mark.parametrize("fault", ["no text", "the key of another", "a missing Secret", "a missing file"])
def test_a_listener_without_a_certificate_is_left_out_and_the_rest_is_served(
    edge: Edge, tmp_path: Path, fault: str
) -> None:
    address = edge.address(fault)
    mine, other = (CA.issue_cert("broken.example.com") for _ in range(2))
    mixed = mine.cert_chain_pems[0].bytes() + other.private_key_pem.bytes()
    contents = {"no text": b"\xff\xfe", "the key of another": mixed}
    broken = listener(address.port, "HTTPS", "broken.example.com", f"broken-{fault.replace(' ', '-').lower()}")
    if fault in contents:
        edge.serves(secret(broken["tls"]["certificates"][0]["secret"], contents[fault]))
    if fault == "a missing file":
        broken["tls"]["certificates"] = [{"file": str(tmp_path / "nothing.pem")}]
    whole = listener(address.port, "HTTPS", "whole.example.com", "of-whole")

    edge.serves(secret("of-whole", certified("whole.example.com")), mesh_gateway("edge", broken, whole), all_to("one"))

    eventually(lambda: get(address, "whole.example.com").service == "one", within=20)
    assert is_closed(address, "broken.example.com")


def test_tls_is_terminated_in_front_of_tcp_or_passed_on(edge: Edge) -> None:
    """What is passed on is told apart by SNI too, and its server shows a certificate of its own."""
    address, mesh = edge.address("tls"), edge.mesh
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert("through.example.com").configure_cert(context)
    lines = mesh.stack.enter_context(TcpService("lines"))
    through = mesh.stack.enter_context(HttpService("through", tls=context))
    mesh.control_plane.apply(mesh_service("lines", "tcp"), mesh_service("through", "tcp"))
    mesh.tcp("lines", lines.address)
    mesh.tcp("through", through.address)
    mesh.ready()
    passed = {"tls": {"mode": "PASSTHROUGH"}, "tags": {"is": "passed"}}
    edge.serves(
        secret("of-lines", certified("lines.example.com")),
        mesh_gateway(
            "edge",
            listener(address.port, "TLS", "lines.example.com", "of-lines", tags={"is": "terminated"}),
            listener(address.port, "TLS", "through.example.com", **passed),
        ),
        tcp_route("lines", **{"is": "terminated"}),
        tcp_route("through", **{"is": "passed"}),
    )

    assert eventually(lambda: greeting(address, "lines.example.com") or None) == "lines"
    assert get(address, "through.example.com").service == "through"
    assert is_closed(address, "elsewhere.example.com")


def test_who_speaks_no_tls_is_not_passed_on_where_tls_is(edge: Edge) -> None:
    address, mesh = edge.address("any"), edge.mesh
    lines = mesh.stack.enter_context(TcpService("any"))
    mesh.control_plane.apply(mesh_service("any", "tcp"))
    mesh.tcp("any", lines.address)
    mesh.ready()
    edge.serves(
        mesh_gateway("edge", listener(address.port, "TLS", tls={"mode": "PASSTHROUGH"}, tags={"is": "any"})),
        tcp_route("any", **{"is": "any"}),
    )
    eventually(lambda: is_passed_on(address))

    heard = ""
    with suppress(ConnectionResetError), Conversation(address) as conversation:
        conversation.say("hello\n")
        _, heard = conversation.until_closed()
    assert heard == ""


def is_passed_on(address: Address) -> bool:
    """Whether the service has said something, which is no TLS, to a client that began with TLS."""
    try:
        with (
            socket.create_connection(address, 5) as connection,
            trusting().wrap_socket(connection, server_hostname="a.example"),
        ):
            return False
    except ssl.SSLError as error:
        return error.reason == "WRONG_VERSION_NUMBER"


def tcp_route(service: str, **tags: str) -> Document:
    item = {"targetRef": {"kind": "Mesh"}, "rules": [{"default": {"backendRefs": [backend(service)]}}]}
    return policy("MeshTCPRoute", f"to-{service}", item, target={"kind": "MeshGateway", "name": "edge", "tags": tags})


def greeting(address: Address, host: str) -> str:
    with (
        suppress(OSError),
        socket.create_connection(address, 5) as connection,
        trusting().wrap_socket(connection, server_hostname=host) as over_tls,
    ):
        return over_tls.recv(100).decode().strip()
    return ""


def test_a_port_takes_exactly_as_many_connections_as_its_limit_says(edge: Edge) -> None:
    """All listeners of the port share it, and it is changed without a word to the listener."""
    address = edge.address("limited")
    names = ("one.example.com", "two.example.com")
    edge.serves(secret("of-both", certified(*names)))
    statistic = f"listener.{address.host}_{address.port}.downstream_cx_overflow"

    def limited_to(count: int) -> None:
        resources = {"resources": {"connectionLimit": count}} if count else {}
        edge.serves(
            mesh_gateway("edge", *(listener(address.port, "HTTPS", name, "of-both", **resources) for name in names))
        )

    def taken(times: int) -> int:
        opened: list[ssl.SSLSocket] = []
        try:
            for index in range(times):
                with suppress(OSError):
                    opened.append(_opened(address, names[index % 2]))
            return len(opened)
        finally:
            for each in opened:
                each.close()

    def nobody() -> bool:
        return edge.envoy.stat(f"listener.{address.host}_{address.port}.downstream_cx_active") == 0

    for limit, expected in ((3, 3), (5, 5), (0, 8)):
        limited_to(limit)
        eventually(nobody)
        eventually(lambda expected=expected: taken(8) == expected)  # type: ignore[misc]
    assert edge.envoy.stat(statistic) > 0


def _opened(address: Address, host: str) -> ssl.SSLSocket:
    connection = socket.create_connection(address, 5)
    try:
        return trusting().wrap_socket(connection, server_hostname=host)
    except OSError:
        connection.close()
        raise


def test_no_key_is_told_to_anybody_but_the_gateway(edge: Edge) -> None:
    shop, inline = (certified(f"{name}.example.com") for name in ("secret", "inline"))
    port, control_plane = edge.address("shown").port, edge.mesh.control_plane
    within = {"mode": "TERMINATE", "certificates": [{"inlineString": inline.decode()}]}
    edge.serves(
        secret("of-shown", shop),
        mesh_gateway(
            "edge",
            listener(port, "HTTPS", "secret.example.com", "of-shown"),
            listener(port, "HTTPS", "inline.example.com", tls=within),
        ),
    )
    eventually(lambda: not is_closed(edge.address("shown"), "inline.example.com"))

    of_proxy = "/meshes/default/dataplanes/edge"
    places = (f"{of_proxy}/_config", f"{of_proxy}/_overview", "/meshes/default/meshgateways/edge", "/_lint", "/secrets")
    told = [control_plane.request("GET", place).raise_for_status().text for place in places]
    told.append(control_plane.log.read_text())

    assert "-----BEGIN CERTIFICATE-----" in told[0]
    keys = (text.decode().partition("PRIVATE KEY-----")[2].splitlines()[1] for text in (shop, inline))
    for line in keys:
        assert not [place for place, text in zip((*places, "the log"), told, strict=True) if line in text]

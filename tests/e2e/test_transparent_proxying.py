"""A machine whose traffic is redirected, with the very commands of the guide: what its workload observes."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cp.model.source import read_documents
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.translate.view.vips import vips
from tests.support.authority import Authority, provided
from tests.support.client import TICK, Answer, call, greeting
from tests.support.control_plane import ControlPlane
from tests.support.envoy import FLAGS, Envoy
from tests.support.loopback import Address
from tests.support.machines import Machine, two_machines
from tests.support.mesh import MESH, Document, bare_dataplane, mesh_service, policy, request_timeout, service_item
from tests.support.services import HttpService, TcpService
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

GUIDE: Final = Path(__file__).resolve().parents[2] / "docs/guides/transparent-proxying.md"
USER: Final = 5678


def commands() -> tuple[str, str]:
    """How the guide redirects a machine's traffic, and how it stops doing so."""
    first, second = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert f"proxy={USER} " in first
    return first, second


@dataclass(slots=True)
class Redirected:
    """A workload on a machine of its own, and what there is around it."""

    near: Machine
    far: Machine
    control_plane: ControlPlane
    envoy: Envoy
    services: dict[str, HttpService]
    speaks_first: TcpService

    def call(self, address: Address, path: str = "/", **headers: str) -> Answer:
        return self.near.run(call, address, path, headers=headers)

    def reaches(self, name: str, **headers: str) -> bool:
        """Whether a call to where a service really is gets there."""
        try:
            return self.call(self.services[name].address, **headers).service == name
        except OSError:
            return False

    def is_greeted(self) -> bool:
        try:
            return self.near.run(greeting, self.speaks_first.address) == self.speaks_first.name
        except OSError:
            return False

    def reached(self) -> set[str]:
        """Everybody outside of the mesh who is reached."""
        found = {name for name in ("outside", "other") if self.reaches(name)}
        return found | ({"speaks first"} if self.is_greeted() else set())

    def apply(self, *documents: Document) -> None:
        self.far.run(self.control_plane.apply, *documents)

    @contextmanager
    def having(self, document: Document) -> Iterator[None]:
        self.apply(document)
        try:
            yield
        finally:
            self.far.run(self.control_plane.delete, document)

    def passing(self, **conf: Any) -> AbstractContextManager[None]:
        spec = {"default": conf}
        return self.having({"type": "MeshPassthrough", "mesh": "default", "name": "passthrough", "spec": spec})


def vip(*services: Document) -> Address:
    """The address of the last of these services, from nothing but documents."""
    read = read_documents(yaml.safe_dump_all([MESH, *services])).documents
    found = {one.name: address for one, address in vips(World.of(read, kinds(discover())), "default").services}
    return Address(found[services[-1]["name"]], 80)


def dataplane(machine: Machine, workload: HttpService) -> Document:
    """The one of the guide."""
    text = re.findall(r"^```yaml\n(type: Dataplane.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    document: Document = yaml.safe_load(text[0])
    networking: Any = document["networking"]
    assert networking["address"] == machine.address
    assert networking["inbound"][0]["port"] == workload.address.port
    networking["admin"] = {"port": 9901}
    return document


@pytest.fixture(scope="module")
def mesh() -> Iterator[Redirected]:
    with ExitStack() as stack:
        near, far = stack.enter_context(two_machines())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)

        def service(on: Machine, name: str, host: str, port: int) -> HttpService:
            return stack.enter_context(on.run(HttpService, name, Address(host, port)))

        services = {
            name: service(on, name, host, port)
            for on, name, host, port in (
                (far, "backend", far.address, 21080),
                (far, "outside", "10.99.0.3", 80),
                (far, "other", "10.99.0.3", 8081),
                (near, "workload", "127.0.0.1", 8080),
                (near, "unknown", near.address, 9090),
            )
        }
        speaks_first = stack.enter_context(far.run(TcpService, "greets", Address("10.99.0.3", 3306)))
        client = dataplane(near, services["workload"])
        backend = bare_dataplane("backend", "backend", services["backend"].address, kuma_io__protocol="http")
        # What is tried here is another matter than who may come in.
        local = {
            "KUMA_BOOTSTRAP_SERVER_PARAMS_ADMIN_ADDRESS": "127.0.0.1",
            "KOGUMA_DP_SERVER_TLS": "off",
            "KUMA_DP_SERVER_AUTHN_DP_PROXY_TYPE": "none",
            "KUMA_API_SERVER_HTTP_INTERFACE": far.address,
            "KUMA_API_SERVER_AUTHN_TYPE": "none",
        }
        control_plane = far.run(ControlPlane, folder, host=far.address, **local)
        stack.callback(control_plane.close)
        far.run(lambda: control_plane.start().ready())
        far.run(control_plane.apply, MESH, client, backend, mesh_service("backend"))

        near.sh(commands()[0])
        prefix = ("setpriv", "--reuid", str(USER), "--clear-groups")
        envoy = near.run(Envoy, far.run(control_plane.bootstrap, client), folder, FLAGS, prefix)
        stack.callback(envoy.stop)
        near.run(envoy.ready)
        yield Redirected(near, far, control_plane, envoy, services, speaks_first)


def test_a_virtual_address_leads_to_its_service_and_has_what_policies_say(mesh: Redirected) -> None:
    backend = vip(mesh_service("backend"))
    mesh.services["backend"].on("/slow", delay=3)
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


def asked_for(name: str, server: Address) -> str:
    """The address with which a name server answers."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    question = b"\x12\x34" + b"\x01\x00" + b"\x00\x01" + bytes(6) + labels + b"\x00" + b"\x00\x01" * 2
    with socket.socket(type=socket.SOCK_DGRAM) as asking:
        asking.settimeout(2)
        asking.connect(server)
        asking.send(question)
        answer = asking.recv(512)
    assert answer[:2] == question[:2]
    assert answer[6:8] == b"\x00\x01", "one answer"
    return socket.inet_ntoa(answer[-4:])


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
    with mesh.passing(passthroughMode="Matched", appendMatch=matches):
        eventually(lambda: not mesh.reaches("outside"))
        answered = {name: mesh.near.run(answers_to_tls, mesh.services["outside"].address, name) for name in NAMES}

    assert answered == NAMES


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

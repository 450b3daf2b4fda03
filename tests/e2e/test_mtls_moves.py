"""The moves of a running mesh, each under steady traffic through ten Envoys: no request is lost.

Each move is made twice: in peace, and, which takes longer, with the control plane killed in its middle and started
again.
"""

import http
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.authority import Authority, certificate_of, is_signed_by, provided
from tests.support.client import Traffic, call
from tests.support.mesh import MESH, Document, mesh_service
from tests.support.playground import Playground, playground
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

SERVICES: Final = ("one", "two", "three", "four", "five")
LONG: Final = 30.0
BUILT_IN: Final = {"name": "ca-1", "type": "builtin"}
ALLOWED: Final = {
    "type": "MeshTrafficPermission",
    "mesh": "default",
    "name": "everybody",
    "spec": {"from": [{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]},
}

SHORT_CONNECTIONS: Final = {
    "type": "MeshTimeout",
    "mesh": "default",
    "name": "short-connections",
    "spec": {
        "to": [{"targetRef": {"kind": "Mesh"}, "default": {"http": {"maxConnectionDuration": "100ms"}}}],
    },
}
"""Proxies verify each other on new connections alone: there are some at each moment of a move."""


def with_mtls(backend: Document, mode: str = "STRICT") -> Document:
    return {**MESH, "mtls": {"enabledBackend": backend["name"], "backends": [{**backend, "mode": mode}]}}


KILLED: Final = pytest.param("with the control plane killed", marks=pytest.mark.long)


@pytest.fixture(scope="module", params=["in peace", KILLED])
def mesh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    folder: Path = tmp_path_factory.mktemp("moves")
    settings = {"KOGUMA_TRUST_PROPAGATION": "0.5"}
    with playground(folder, f"sqlite:///{folder}/koguma.db", **settings) as mesh:
        mesh.control_plane.apply(ALLOWED, SHORT_CONNECTIONS, *map(mesh_service, SERVICES))
        for index, name in enumerate(SERVICES):
            mesh.service(name)
            mesh.client(f"client-of-{name}", name, f"tag={SERVICES[index - 1]}")
        mesh.ready()
        yield mesh


class Move:
    """Steady traffic while the mesh moves."""

    def __init__(self, mesh: Playground, stack: ExitStack, *, is_killed: bool) -> None:
        self._mesh, self._is_killed = mesh, is_killed
        clients = (proxy for proxy in mesh.proxies.values() if proxy.backends)
        addresses = [proxy.outbound(backend) for proxy in clients for backend in proxy.backends]
        self.traffic = [stack.enter_context(Traffic(address, per_second=20)) for address in addresses]

    def to(self, *documents: Document, is_there: Callable[[], bool]) -> None:
        """Write documents, and wait until the move is over."""
        self._mesh.control_plane.apply(*documents)
        if self._is_killed:
            self._mesh.control_plane.kill()
            self._mesh.control_plane.start().ready()
        eventually(is_there, within=LONG)
        self.goes_on()

    def goes_on(self) -> None:
        """Wait for some more requests."""
        sent = [len(traffic.outcomes) for traffic in self.traffic]
        eventually(lambda: all(len(t.outcomes) > count + 10 for t, count in zip(self.traffic, sent, strict=True)))

    @property
    def lost(self) -> list[Any]:
        return [failure for traffic in self.traffic for failure in traffic.failures]


@pytest.fixture
def move(request: pytest.FixtureRequest, mesh: Playground) -> Iterator[Move]:
    is_killed = "killed" in request.node.callspec.params["mesh"]
    with ExitStack() as stack:
        yield Move(mesh, stack, is_killed=is_killed)


def calls_over_tls(mesh: Playground) -> bool:
    """Whether every service reads in its requests who calls."""
    for proxy in mesh.proxies.values():
        for backend in proxy.backends:
            answer = call(proxy.outbound(backend))
            assert answer.status == http.HTTPStatus.OK
            if "x-forwarded-client-cert" not in {name.lower() for name in answer.seen["headers"]}:
                return False
    return True


def takes_plain_text(mesh: Playground) -> list[bool]:
    answers = []
    for name in SERVICES:
        try:
            answers.append(call(mesh.proxies[name].inbound, timeout=5).status == 200)
        except OSError:
            answers.append(False)
        except Exception:  # noqa: BLE001  # closed without an answer
            answers.append(False)
    return answers


def all_signed_by(mesh: Playground, authority: bytes) -> bool:
    """Whether every proxy answers with a certificate of an authority. After a start all of them are new."""
    return all(is_signed_by(certificate_of(proxy.inbound), authority) for proxy in mesh.proxies.values())


def built_in(mesh: Playground, backend: str) -> bytes:
    """The certificate of an authority that the control plane made."""
    where = f"/meshes/default/secrets/default.ca-builtin-cert-{backend}"
    return b64decode(mesh.control_plane.get(where, reveal="true")["data"])


@pytest.fixture
def strict(mesh: Playground) -> None:
    """Where a test begins for which the mesh has to be strict, whichever tests ran before it."""
    if "mtls" not in (mesh.control_plane.find(MESH) or {}):
        mesh.control_plane.apply(with_mtls(BUILT_IN))
    eventually(lambda: calls_over_tls(mesh), within=LONG)


def test_from_plain_text_over_permissive_to_strict(mesh: Playground, move: Move) -> None:
    move.to(with_mtls(BUILT_IN, "PERMISSIVE"), is_there=lambda: calls_over_tls(mesh))
    assert all(takes_plain_text(mesh))

    move.to(with_mtls(BUILT_IN), is_there=lambda: not any(takes_plain_text(mesh)))

    assert calls_over_tls(mesh)
    assert move.lost == []


@pytest.mark.usefixtures("strict")
def test_to_another_authority(mesh: Playground, move: Move) -> None:
    backend = {"name": "ca-2", "type": "builtin"}

    move.to(with_mtls(backend), is_there=lambda: all_signed_by(mesh, built_in(mesh, "ca-2")))

    assert move.lost == []


@pytest.mark.long
@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize(
    "is_identified", [pytest.param(True, id="identified", marks=pytest.mark.long), pytest.param(False, id="nameless")]
)
def test_another_root_of_a_provided_authority(mesh: Playground, move: Move, *, is_identified: bool) -> None:
    first, second = Authority(is_identified=is_identified), Authority()
    name = "ca-3" if is_identified else "ca-4"
    mesh.control_plane.apply(*first.secrets(name))
    move.to(with_mtls(provided(name)), is_there=lambda: all_signed_by(mesh, first.certificate))

    move.to(*second.secrets(name), is_there=lambda: all_signed_by(mesh, second.certificate))

    assert move.lost == []


IDENTITY: Final = {
    "type": "MeshIdentity",
    "mesh": "default",
    "name": "by-proxy",
    "spec": {
        "selector": {"dataplane": {}},
        "spiffeID": {"path": '/proxy/{{ label "kuma.io/display-name" }}'},
        "provider": {
            "type": "Bundled",
            "bundled": {"insecureAllowSelfSigned": True, "autogenerate": {"enabled": True}},
        },
    },
}


def names_shown(mesh: Playground) -> set[str]:
    """The names in the certificates that Envoys show."""
    chains = [
        certificate
        for envoy in mesh.envoys.values()
        for entry in envoy.get("/certs")["certificates"]
        for certificate in entry.get("cert_chain", ())
    ]
    return {name["uri"] for certificate in chains for name in certificate["subject_alt_names"]}


@pytest.mark.usefixtures("strict")
def test_to_names_of_an_identity_and_then_without_an_authority_of_the_mesh(mesh: Playground, move: Move) -> None:
    names = {f"spiffe://default.default.mesh.local/proxy/{name}" for name in mesh.envoys}

    move.to(IDENTITY, is_there=lambda: names_shown(mesh) == names)
    assert calls_over_tls(mesh)
    mesh.control_plane.apply(MESH)
    move.goes_on()

    assert calls_over_tls(mesh)
    assert not any(takes_plain_text(mesh))
    assert move.lost == []

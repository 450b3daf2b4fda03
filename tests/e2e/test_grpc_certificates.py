"""mTLS between a gRPC client without a proxy, with what `koguma dp certificates` keeps for it, and a real Envoy."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from tests.support.authority import Authority, is_signed_by, provided
from tests.support.control_plane import KOGUMA
from tests.support.grpc_calls import Calls
from tests.support.grpc_service import GrpcService
from tests.support.mesh import MESH, Document, mesh_service
from tests.support.playground import Playground, playground
from tests.support.processes import Running
from tests.support.waiting import eventually

# tests/e2e/test_locked_door.py has a shorter one: a client of gRPC with a certificate.
pytestmark = [pytest.mark.envoy, pytest.mark.long]

OLD, NEW = Authority(), Authority()
ROTATED: Final = {"KOGUMA_TRUST_PROPAGATION": "4s"}
"""Longer than the library takes to look at its files again."""

LIFETIME: Final = "12s"
IDENTITY: Final = {
    "type": "MeshIdentity",
    "mesh": "default",
    "name": "by-name",
    "spec": {
        "selector": {"dataplane": {}},
        "spiffeID": {"trustDomain": "default", "path": '/{{ label "kuma.io/display-name" }}'},
        "provider": {
            "type": "Bundled",
            "bundled": {"insecureAllowSelfSigned": True, "autogenerate": {"enabled": True}},
        },
    },
}


def mode(name: str) -> Document:
    return {
        "type": "MeshTLS",
        "mesh": "default",
        "name": "mode",
        "spec": {"rules": [{"default": {"mode": name}}]},
    }


SHORT_CONNECTIONS: Final = {
    "type": "MeshProxyPatch",
    "mesh": "default",
    "name": "short-connections",
    "spec": {
        "targetRef": {"kind": "Mesh"},
        "default": {
            "appendModifications": [
                {
                    "networkFilter": {
                        "operation": "Patch",
                        "match": {"name": "envoy.filters.network.http_connection_manager", "origin": "inbound"},
                        "jsonPatches": [
                            {
                                "op": "add",
                                "path": "/commonHttpProtocolOptions",
                                "value": {"maxConnectionDuration": "1s"},
                            }
                        ],
                    }
                }
            ]
        },
    },
}
"""With each connection certificates are shown anew."""


def by_mesh(name: str = "ca-1", rotation: Document | None = None) -> Document:
    return {**MESH, "mtls": {"enabledBackend": name, "backends": [{**provided(name), **(rotation or {})}]}}


def permission(*clients: str) -> Document:
    allow = [{"spiffeID": {"type": "Exact", "value": f"spiffe://default/{client}"}} for client in clients]
    return {
        "type": "MeshTrafficPermission",
        "mesh": "default",
        "name": "clients",
        "spec": {"rules": [{"default": {"allow": allow}}]},
    }


def client(name: str) -> Document:
    gateway = {"type": "DELEGATED", "tags": {"kuma.io/service": name}}
    return {
        "type": "Dataplane",
        "mesh": "default",
        "name": name,
        "labels": {"koguma.io/client": "grpc"},
        "networking": {"address": "127.0.0.1", "gateway": gateway},
    }


@dataclass
class Shop:
    """A mesh with a gRPC service behind an Envoy, and clients without one."""

    mesh: Playground
    folder: Path
    stack: ExitStack = field(default_factory=ExitStack)

    def registered(self, name: str) -> None:
        """A client that has left would be expected back, and an authority would wait for it."""
        if self.mesh.control_plane.find(client(name)) is None:
            self.mesh.control_plane.apply(client(name))
            self.stack.callback(self.mesh.control_plane.delete, client(name))

    def certificates(self, name: str) -> Path:
        """The folder with the certificate of a client, kept from here on."""
        self.agent(name)
        folder = self.folder / name
        eventually((folder / "current" / "certificate.pem").is_file, within=30)
        return folder

    def agent(self, name: str) -> Running:
        self.registered(name)
        line = self._command("certificates", name, "--dir", str(self.folder / name))
        return self.stack.enter_context(Running(line, self.folder / f"{name}.agent.log"))

    @contextmanager
    def calls(self, name: str, certificates: Path | None) -> Iterator[Calls]:
        options = () if certificates is None else ("--certificates-dir", str(certificates))
        bootstrap = self.folder / f"{name}.json"
        self.registered(name)
        command = self._command("grpc-bootstrap", name, *options)
        bootstrap.write_bytes(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
        log = self.folder / f"{name}.calls.log"
        with Calls("python with credentials", "xds:///backend:80", bootstrap, log) as calls:
            yield calls

    def _command(self, command: str, name: str, *options: str) -> list[str]:
        return [str(KOGUMA), "dp", command, name, "--cp-address", self.mesh.control_plane.api.url, *options]

    def told(self, name: str, question: str) -> Any:
        return self.mesh.control_plane.get(f"/meshes/default/dataplanes/{name}/{question}")

    def findings(self, code: str) -> list[Any]:
        findings = self.mesh.control_plane.get("/meshes/default/_lint")["findings"]
        return [finding for finding in findings if finding["code"] == code]


@pytest.fixture(scope="module", params=["Mesh", "MeshIdentity"])
def mesh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    with playground(tmp_path_factory.mktemp("mesh"), **ROTATED) as mesh, GrpcService("backend") as service:
        if request.param == "Mesh":
            mesh.control_plane.apply(*OLD.secrets(), *NEW.secrets("ca-2"), by_mesh())
        else:
            mesh.control_plane.apply(IDENTITY, mode("Strict"))
        mesh.control_plane.apply(mesh_service("backend", "grpc"), permission("shop"))
        mesh.speaking("grpc", "backend", service.address)
        mesh.ready()
        yield mesh


@pytest.fixture
def shop(mesh: Playground, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(mesh, tmp_path)
    with shop.stack:
        yield shop
    assert not mesh.control_plane.events("resources.refused")


def test_who_is_permitted_is_let_in_and_nobody_else(shop: Shop) -> None:
    with shop.calls("shop", shop.certificates("shop")) as calls:
        calls.until("backend")
        assert shop.told("shop", "_delivery")["findsCertificates"] is True
        clusters = shop.told("shop", "_config")["xds"]["type.googleapis.com/envoy.config.cluster.v3.Cluster"]
        assert any("transportSocket" in cluster for cluster in clusters.values())
    with shop.calls("stranger", shop.certificates("stranger")) as calls:
        calls.until("PERMISSION_DENIED")


def test_who_has_no_certificates_is_refused_and_lint_says_so(shop: Shop) -> None:
    with shop.calls("plain", None) as calls:
        calls.until("UNAVAILABLE")
        assert shop.told("plain", "_delivery")["findsCertificates"] is False
        (finding,) = eventually(lambda: shop.findings("plain-text-refused"))

    assert finding["resource"] == "Dataplane default/plain"
    assert "koguma dp certificates" in finding["hint"]


def test_who_takes_both_knows_whom_it_lets_in_over_tls(shop: Shop) -> None:
    with shop.mesh.having(mode("Permissive")):
        before = handshakes(shop.mesh)
        with shop.calls("shop", shop.certificates("shop")) as calls:
            calls.until("backend")
        assert handshakes(shop.mesh) > before
        with shop.calls("stranger", shop.certificates("stranger")) as calls:
            calls.until("PERMISSION_DENIED")
        with shop.calls("plain", None) as calls:
            calls.until("backend")


def leaf(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "current" / "certificate.pem").read_bytes())


def modes(folder: Path) -> set[int]:
    return {file.stat().st_mode & 0o777 for file in (folder / "current").iterdir()}


@pytest.fixture
def of_mesh(mesh: Playground) -> Playground:
    if "mtls" not in mesh.control_plane.get("/meshes/default"):
        pytest.skip("an authority of the Mesh is what changes here")
    return mesh


def handshakes(mesh: Playground) -> int:
    """How many connections over TLS the service has taken."""
    return sum(mesh.envoys["backend"].stats(r"^listener\..*\.ssl\.handshake$").values())


def test_the_certificate_is_renewed_and_the_authority_changes_and_no_call_fails(
    shop: Shop, of_mesh: Playground
) -> None:
    folder, rotation = shop.certificates("shop"), {"dpCert": {"rotation": {"expiration": LIFETIME}}}
    with of_mesh.having(SHORT_CONNECTIONS, by_mesh("ca-1", rotation)), shop.calls("shop", folder) as calls:
        calls.until("backend")
        serials = {leaf(folder).serial_number}
        for _ in range(2):
            eventually(lambda: leaf(folder).serial_number not in serials, within=20)
            serials.add(leaf(folder).serial_number)
        of_mesh.control_plane.apply(by_mesh("ca-2", rotation))
        eventually(lambda: is_signed_by(leaf(folder), NEW.certificate), within=30)
        expired, before = leaf(folder).not_valid_after_utc, handshakes(of_mesh)
        eventually(lambda: leaf(folder).not_valid_after_utc > expired, within=20)
        eventually(lambda: handshakes(of_mesh) > before + 5, within=20)
        answers = calls.until("backend", 50)

    assert set(answers) == {"backend"}
    assert modes(folder) == {0o600}
    assert folder.stat().st_mode & 0o077 == 0

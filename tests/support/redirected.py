"""A workload on a machine that redirects its traffic with the very commands of the guide, and what is around it."""

from __future__ import annotations

import re
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from cp.model.source import read_documents
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.translate.view.vips import vips
from tests.support.client import Answer, call, greeting
from tests.support.control_plane import ControlPlane
from tests.support.envoy import FLAGS, Envoy
from tests.support.loopback import Address
from tests.support.machines import Machine, two_machines
from tests.support.mesh import MESH, Document, bare_dataplane, mesh_service
from tests.support.services import HttpService, TcpService

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
    folder: Path

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
        reached = {name for name in ("outside", "other") if self.reaches(name)}
        return reached | ({"speaks first"} if self.is_greeted() else set())

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
    world = World.of(read, kinds(discover()))
    addresses = {service.name: address for service, address in vips(world, "default").services}
    return Address(addresses[services[-1]["name"]], 80)


def dataplane(machine: Machine, workload: HttpService) -> Document:
    """The one of the guide."""
    text = re.findall(r"^```yaml\n(type: Dataplane.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    document: Document = yaml.safe_load(text[0])
    networking: Any = document["networking"]
    assert networking["address"] == machine.address
    assert networking["inbound"][0]["port"] == workload.address.port
    networking["admin"] = {"port": 9901}
    return document


@contextmanager
def redirected(
    flags: Sequence[str] = FLAGS, binary: Path | None = None, orders: Mapping[str, Any] | None = None, **settings: str
) -> Iterator[Redirected]:
    """The machine, with an Envoy of these flags and a control plane of these settings.

    `orders` are those for the Envoy's bootstrap configuration.
    """
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
            **settings,
        }
        control_plane = far.run(ControlPlane, folder, host=far.address, **local)
        stack.callback(control_plane.close)
        far.run(lambda: control_plane.start().ready())
        far.run(control_plane.apply, MESH, client, backend, mesh_service("backend"))

        near.sh(commands()[0])
        prefix = ("setpriv", "--reuid", str(USER), "--clear-groups")
        bootstrap = far.run(control_plane.bootstrap, client, **(orders or {}))
        envoy = near.run(Envoy, bootstrap, folder, flags, prefix, binary)
        stack.callback(envoy.stop)
        near.run(envoy.ready)
        yield Redirected(near, far, control_plane, envoy, services, speaks_first, folder)


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

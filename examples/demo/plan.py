"""What the demo runs, and where: its resources, with other ports in them where the usual ones are taken."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).resolve().parent
RESOURCES: Final = HERE / "resources"
EDGE: Final = HERE / "edge"
SHOP: Final = "shop.localhost"
HOST: Final = "127.0.0.1"
ADS_PORT: Final = 5678
DIAGNOSTICS_PORT: Final = 5680
API_PORT: Final = 5681
SIGN_PORT: Final = 18000
"""Held, and used for nothing else, by the demo that has the usual ports."""

FIRST_FREE: Final = 20000
LAST_FREE: Final = 32000

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sidecar:
    """One instance of a service with its Envoy: the dataplane resource, and the addresses that are in it."""

    document: Document

    @property
    def name(self) -> str:
        return str(self.document["name"])

    @property
    def service(self) -> str:
        """`frontend` or `backend`."""
        return self.name.partition("-")[0]

    @property
    def version(self) -> str:
        return str(self._inbound["tags"].get("version", ""))

    @property
    def url(self) -> str:
        """Where others reach the service, through its Envoy."""
        return f"http://{HOST}:{self._inbound['port']}"

    @property
    def workload(self) -> str:
        """Where the service itself listens, for its Envoy alone."""
        return f"{HOST}:{self._inbound['servicePort']}"

    @property
    def backend(self) -> str:
        """Where the service finds the backend: at its own Envoy."""
        outbounds = self.document["networking"].get("outbound", [])
        return f"{HOST}:{outbounds[0]['port']}" if outbounds else ""

    @property
    def admin(self) -> str:
        return f"http://{HOST}:{self.document['networking']['admin']['port']}"

    @property
    def _inbound(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document["networking"]["inbound"][0]
        return found


@dataclass(frozen=True, slots=True)
class Edge:
    """The gateway: its dataplane resource, and what is written about it."""

    document: Document
    documents: tuple[Document, ...]

    @property
    def name(self) -> str:
        return str(self.document["name"])

    def url(self, scheme: str) -> str:
        """Where clients from outside reach the shop."""
        return f"{scheme}://{SHOP}:{self.port(scheme)}"

    def port(self, scheme: str) -> int:
        (gateway,) = (document for document in self.documents if document["type"] == "MeshGateway")
        listeners = gateway["conf"]["listeners"]
        return next(int(each["port"]) for each in listeners if each["protocol"] == scheme.upper())

    @property
    def admin(self) -> str:
        return f"http://{HOST}:{self.document['networking']['admin']['port']}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is started, and which ports are not the usual ones."""

    sidecars: tuple[Sidecar, ...]
    edge: Edge
    moved: dict[int, int]

    def port(self, usual: int) -> int:
        return self.moved.get(usual, usual)

    @property
    def api(self) -> str:
        return f"http://{HOST}:{self.port(API_PORT)}"

    def sidecar(self, name: str) -> Sidecar:
        return next(sidecar for sidecar in self.sidecars if sidecar.name == name)


def make_plan(*, alone: bool = True) -> Plan:
    """The usual ports where they are free and no other demo runs, others where they are not."""
    files = sorted((RESOURCES / "dataplanes").glob("*.yaml"))
    dataplanes = [document for file in files for document in read(file)]
    (gateway,), about_gateway = read(EDGE / "dataplane.yaml"), read(EDGE / "gateway.yaml")
    wanted = [ADS_PORT, DIAGNOSTICS_PORT, API_PORT]
    wanted += [port for dataplane in (*dataplanes, gateway) for port in _ports(dataplane["networking"])]
    wanted += [listener["port"] for document in about_gateway for listener in _listeners(document)]
    taken = [port for port in wanted if not (alone and _is_free(port))]
    moved = dict(zip(taken, _free_ports(), strict=False))
    edge = Edge(_with_ports(gateway, moved), tuple(_with_ports(about_gateway, moved)))
    return Plan(tuple(Sidecar(_with_ports(dataplane, moved)) for dataplane in dataplanes), edge, moved)


def read(file: Path) -> list[Document]:
    with file.open(encoding="utf-8") as text:
        return list(yaml.safe_load_all(text))


def policies() -> list[Document]:
    """What is written about the mesh, without its dataplanes."""
    return [document for file in sorted(RESOURCES.glob("*.yaml")) for document in read(file)]


def _listeners(document: Document) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = document.get("conf", {}).get("listeners", [])
    return written


def _ports(part: Any) -> Iterator[int]:
    """The ports on which something will listen. That of a `backendRef` is the service's, not a listener's."""
    if isinstance(part, list):
        for item in part:
            yield from _ports(item)
    elif isinstance(part, dict):
        yield from (part[name] for name in ("port", "servicePort") if name in part)
        for name in ("admin", "inbound", "outbound"):
            yield from _ports(part.get(name))


def _with_ports(part: Any, moved: dict[int, int]) -> Any:
    if isinstance(part, list):
        return [_with_ports(item, moved) for item in part]
    if isinstance(part, dict):
        return {name: _with_ports(value, moved) for name, value in part.items()}
    return moved.get(part, part) if isinstance(part, int) else part


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_ports() -> Iterator[int]:
    """Ports that nobody has, below those that the kernel gives to outgoing connections."""
    begin = FIRST_FREE + os.getpid() * 37 % (LAST_FREE - FIRST_FREE)
    return (port for port in (*range(begin, LAST_FREE), *range(FIRST_FREE, begin)) if _is_free(port))


@contextmanager
def sign() -> Iterator[bool]:
    """Whether no other demo is running, which might be about to take the usual ports."""
    with socket.socket() as held:
        try:
            held.bind((HOST, SIGN_PORT))
        except OSError:
            yield False
        else:
            yield True

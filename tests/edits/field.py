"""A mesh of one backend, one caller and one gateway, of which a table of edits changes a part at a time."""

from __future__ import annotations

import copy
import math
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.edits.workloads import (
    HOST,
    Caller,
    Calling,
    EchoingGrpc,
    GrpcStream,
    KeptConnection,
    Lines,
    Unary,
    WebSocket,
    echoing_socket,
    goes_on,
)
from tests.support.client import ClientTls
from tests.support.control_plane import ControlPlane
from tests.support.edge import certified, trusting
from tests.support.envoy import Envoy
from tests.support.loopback import Address, free_port, new_host
from tests.support.mesh import (
    MESH,
    Document,
    gateway_route,
    listener,
    mesh_gateway,
    mesh_service,
    prefix,
    rule,
    secret,
)
from tests.support.services import HttpService
from tests.support.waiting import eventually

PROTOCOLS: Final = {"http": "http", "ws": "http", "http2": "http2", "grpc": "grpc", "tcp": "tcp"}
"""The services, and the protocol of each."""

ALLOW_ALL: Final = {
    "type": "MeshTrafficPermission",
    "mesh": "default",
    "name": "all",
    "spec": {"from": [{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]},
}

_CLIENT: Final = ("Dataplane", "client")
GATEWAY_ROUTES: Final = {"http": "http", "ws": "ws", "grpc": "grpc"}


@dataclass(frozen=True, slots=True)
class Combination:
    """What carries the load: which Envoy, how it drains, and which protocol it speaks with the control plane."""

    envoy: Path
    strategy: str
    is_delta: bool
    drain_seconds: int
    is_known: bool = True
    """Whether the control plane is told the drain time; otherwise it is told that nothing drains."""

    log_level: str = "error"

    @property
    def flags(self) -> tuple[str, ...]:
        return (
            *("--log-level", self.log_level),
            *("--concurrency", "1"),
            "--disable-hot-restart",
            *("--drain-strategy", self.strategy),
            *("--drain-time-s", str(self.drain_seconds)),
        )


@dataclass
class Field:
    """The mesh under load. `documents` is what is stored, by type and name."""

    control_plane: ControlPlane
    folder: Path
    combination: Combination
    stack: ExitStack
    documents: dict[tuple[str, str], Document] = field(default_factory=dict)
    callers: list[Caller] = field(default_factory=list)
    outbounds: dict[str, Address] = field(default_factory=dict)
    """Where the workload calls each service; new connections go there."""

    listeners: dict[str, Address] = field(default_factory=dict)
    """Where the gateway listens, for plain text and for TLS."""

    client_host: str = field(default_factory=new_host)
    backend_host: str = field(default_factory=new_host)
    gateway_host: str = field(default_factory=new_host)
    longest: float = math.inf
    """Seconds after which clients of HTTP end a connection."""

    _state: dict[tuple[str, str], Document] = field(default_factory=dict)

    @property
    def current(self) -> list[Document]:
        """The documents that are stored now. Those of the state come last."""
        left = {key: document for key, document in self.documents.items() if key not in self._state}
        return [*left.values(), *self._state.values()]

    def copy(self, kind: str, name: str) -> Document:
        return copy.deepcopy(self.documents[kind, name])

    def changed(self, kind: str, name: str, change: Callable[[Any], None]) -> Document:
        """A document of the mesh with a change."""
        document = self.copy(kind, name)
        change(document)
        return document

    def enter(self, state: list[Document]) -> None:
        """Write the documents of a state. What only the previous state has is as it was at the start again."""
        previous, self._state = self._state, {key_of(document): document for document in state}
        left = [key for key in previous if key not in self._state]
        self.control_plane.apply(*(self.documents[key] for key in left if key in self.documents))
        self.control_plane.apply(*self._state.values())
        self.control_plane.delete(*(previous[key] for key in reversed(left) if key not in self.documents))
        self.control_plane.in_force("15s")
        eventually(self._has_no_moves, within=60)
        self._follow()

    def _has_no_moves(self) -> bool:
        """No move of mTLS is under way: callers speak as the Mesh says by now."""
        return not self.control_plane.get("/_delivery", resource="Mesh/default", wait="0s")["moves"]

    def _follow(self) -> None:
        """New connections go to the last outbound for each service."""
        client = self._state.get(_CLIENT, self.documents[_CLIENT])
        for outbound in client["networking"]["outbound"]:
            if (name := outbound.get("backendRef", {}).get("name")) in self.outbounds:
                address = Address(outbound["address"], outbound["port"])
                # Envoy listens a moment after the ACK.
                eventually(partial(_accepts, address))
                self.outbounds[name] = address

    @property
    def short(self) -> float:
        """Half of the drain time, in seconds: how long conversations last."""
        return self.combination.drain_seconds / 2

    def renew_connections(self) -> None:
        """None is left to a listener of before."""
        self.longest = 0.0
        self.goes_on(2)
        self.longest = math.inf

    def goes_on(self, steps: int) -> None:
        goes_on(self.callers, steps)

    def take_failures(self) -> dict[str, list[str]]:
        """What failed since the last time, by the kind of call."""
        failures = {caller.name: list(caller.failures) for caller in self.callers if caller.failures}
        for caller in self.callers:
            del caller.failures[: len(failures.get(caller.name, ()))]
        return failures

    @property
    def calls(self) -> int:
        return sum(caller.calls for caller in self.callers)


def _accepts(address: Address) -> bool:
    with socket.create_connection(address, 1):
        return True


def key_of(document: Document) -> tuple[str, str]:
    return document["type"], document["name"]


@contextmanager
def field_under_load(
    folder: Path, combination: Combination, *, store: str = "memory:", pause: float = 0.03
) -> Iterator[Field]:
    with ExitStack() as stack:
        # Certificate authorities move quickly here, so that edits of mTLS are as many as others.
        control_plane = stack.enter_context(ControlPlane(folder, store, KOGUMA_TRUST_PROPAGATION="1"))
        mesh = Field(control_plane, folder, combination, stack)
        addresses = _workloads(stack)
        for document in _documents(mesh, addresses):
            mesh.documents[key_of(document)] = document
        control_plane.apply(*mesh.documents.values())
        for name in ("backend", "client", "edge"):
            _envoy(mesh, name)
        for caller in _callers(mesh, pause):
            mesh.callers.append(stack.enter_context(caller))
        mesh.goes_on(3)
        mesh.take_failures()  # of calls before everything was there
        mesh.goes_on(10)
        assert mesh.take_failures() == {}, "the mesh serves every kind of call before the first edit"
        yield mesh


def _workloads(stack: ExitStack) -> dict[str, Address]:
    enter = stack.enter_context
    return {
        "http": enter(HttpService("http")).address,
        "ws": enter(echoing_socket(upgrades=True)).address,
        "http2": enter(EchoingGrpc()).address,
        "grpc": enter(EchoingGrpc()).address,
        "tcp": enter(echoing_socket(upgrades=False)).address,
    }


def _documents(mesh: Field, workloads: dict[str, Address]) -> Iterator[Document]:
    yield MESH
    yield ALLOW_ALL
    for name, protocol in PROTOCOLS.items():
        for service in (name, f"{name}-alt"):
            document = mesh_service(service, protocol, **{"kuma.io__service": name})
            document["spec"]["ports"][0]["targetPort"] = name
            yield document
    inbounds = [
        {
            "name": name,
            "port": free_port(mesh.backend_host),
            "serviceAddress": address.host,
            "servicePort": address.port,
            "tags": {"kuma.io/service": name, "kuma.io/protocol": PROTOCOLS[name]},
        }
        for name, address in workloads.items()
    ]
    yield _dataplane("backend", mesh.backend_host, inbound=inbounds)
    mesh.outbounds |= {name: Address(mesh.client_host, free_port(mesh.client_host)) for name in PROTOCOLS}
    outbounds = [
        {"address": where.host, "port": where.port, "backendRef": {"kind": "MeshService", "name": name, "port": 80}}
        for name, where in mesh.outbounds.items()
    ]
    inbound = {"name": "main", "port": free_port(mesh.client_host), "tags": {"kuma.io/service": "client"}}
    yield _dataplane("client", mesh.client_host, inbound=[inbound], outbound=outbounds)
    yield from _gateway(mesh)


def _gateway(mesh: Field) -> Iterator[Document]:
    host = mesh.gateway_host
    yield _dataplane("edge", host, gateway={"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}})
    for name in (*GATEWAY_ROUTES, "https"):
        mesh.listeners[name] = Address(host, free_port(host))
    yield secret("edge-cert", certified(HOST))
    yield mesh_gateway("edge", *gateway_listeners(mesh, HOST, "edge-cert"))
    for name, service in GATEWAY_ROUTES.items():
        yield gateway_route_to(name, service)


def gateway_listeners(mesh: Field, hostname: str, certificate: str) -> list[Document]:
    plain = [listener(mesh.listeners[name].port, "HTTP", "*", tags={"to": name}) for name in GATEWAY_ROUTES]
    https = listener(mesh.listeners["https"].port, "HTTPS", hostname, certificate, tags={"to": "http"})
    return [*plain, https]


def gateway_route_to(name: str, service: str) -> Document:
    return gateway_route(f"to-{name}", "edge", rule(prefix("/"), to={service: 1}), to=name)


def _dataplane(name: str, host: str, **networking: Any) -> Document:
    admin = {"port": free_port(host)}
    return {
        "type": "Dataplane",
        "mesh": "default",
        "name": name,
        "networking": {"address": host, "admin": admin, **networking},
    }


def _envoy(mesh: Field, name: str) -> None:
    combination, document = mesh.combination, mesh.documents["Dataplane", name]
    bootstrap = mesh.control_plane.bootstrap(
        document,
        delta=combination.is_delta,
        listener_drain_seconds=combination.drain_seconds if combination.is_known else 0,
    )
    mesh.stack.enter_context(Envoy(bootstrap, mesh.folder, combination.flags, binary=combination.envoy)).ready(60)


def conversations(mesh: Field, lasts: float) -> dict[str, Calling]:
    """Calls of every kind by way of the client's outbounds."""
    at = _at(mesh.outbounds)

    def longest() -> float:
        return mesh.longest

    return {
        "HTTP/1": KeptConnection(at("http"), longest),
        "HTTP/1 (2)": KeptConnection(at("http"), longest),
        "HTTP/2": Unary(at("http2"), longest),
        "gRPC": Unary(at("grpc"), longest),
        "gRPC stream": GrpcStream(at("grpc"), lasts),
        "WebSocket": WebSocket(at("ws"), lasts),
        "TCP": Lines(at("tcp"), lasts),
    }


def _callers(mesh: Field, pause: float) -> Iterator[Caller]:
    edge, lasts = _at(mesh.listeners), mesh.short

    def longest() -> float:
        return mesh.longest

    tls = ClientTls(trusting(), HOST)
    callings: dict[str, Calling] = {
        **conversations(mesh, lasts),
        "gateway HTTP/1": KeptConnection(edge("http"), longest),
        "gateway HTTPS": KeptConnection(edge("https"), longest, tls),
        "gateway gRPC": Unary(edge("grpc"), longest),
        "gateway WebSocket": WebSocket(edge("ws"), lasts),
    }
    return (Caller(name, calling, pause) for name, calling in callings.items())


def _at(addresses: dict[str, Address]) -> Callable[[str], Callable[[], Address]]:
    return lambda name: lambda: addresses[name]

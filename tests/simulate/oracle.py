"""A real Envoy with a listener for each route table and one service behind all, to which calls are sent."""

from __future__ import annotations

import re
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from google.protobuf import json_format

from cp.insight.simulate import Call
from cp.translate.packing import CLUSTER, LISTENER, ROUTES, PackedResource
from cp.translate.snapshot import Snapshot, SnapshotPart
from generators.build.clusters import backend_cluster
from generators.build.listeners import outbound_listener
from generators.proxy import Backend, Outbound, Protocol
from tests.simulate.tables import UPSTREAM
from tests.support.bootstraps import socket_address
from tests.support.envoy import Envoy, envoy_binary
from tests.support.loopback import Address, new_address, new_host

_ROW: Final = "x-row"
_SEEN_PATH: Final = "x-seen-path"
_SEEN_HOST: Final = "x-seen-host"


@dataclass(frozen=True, slots=True)
class ObservedAnswer:
    """The answer to a call, as its client sees it."""

    status: int
    row: int | None = None
    location: str = ""
    body: str = ""
    path: str = ""
    """The path that the service saw; empty if the call did not reach it."""

    host: str = ""


def is_modern() -> bool:
    """Whether this Envoy is 1.39 or later, which are simulated without exceptions."""
    output = subprocess.run([envoy_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"/(\d+)\.(\d+)\.\d+", output)
    assert version is not None, output
    return (int(version[1]), int(version[2])) >= (1, 39)


class Oracle:
    """An Envoy with some route tables. Each has a local address of its own."""

    def __init__(self, tables: Sequence[RouteConfiguration], folder: Path) -> None:
        self._service = _Service()
        self.addresses = [new_address(host) for host in [new_host()] for _ in tables]
        self.snapshot = Snapshot(SnapshotPart(_resources(tables, self.addresses)))
        listeners = [_with_table(self.snapshot, table) for table in map(str, range(len(tables)))]
        self._envoy = Envoy(_bootstrap(listeners, self._service.address), folder)
        self._connections: dict[Address, _Connection] = {}

    def send(self, at: Address, call: Call) -> ObservedAnswer:
        """Send a call to the Envoy."""
        connection = self._connections.get(at)
        if connection is None or connection.is_closed:
            connection = self._connections[at] = _Connection(at)
        return connection.send(call)

    def __enter__(self) -> Self:
        self._envoy.ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()
        self._envoy.stop()
        self._service.close()


class _Connection:
    """A connection that is kept open, on which any bytes can be sent, valid HTTP or not."""

    def __init__(self, at: Address) -> None:
        self._socket = socket.create_connection(at, 10)
        self._file = self._socket.makefile("rb")
        self.is_closed = False

    def send(self, call: Call) -> ObservedAnswer:
        sent_headers = (("host", call.host), *call.headers)
        lines = [f"{call.method} {call.path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent_headers)]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        status = int(self._file.readline().split(b" ")[1])
        headers = dict(_headers(self._file))
        body = self._file.read(int(headers.get("content-length", "0"))).decode()
        if status == 400 or headers.get("connection") == "close":  # and whatever else stands behind it
            self.close()
        return _observed_answer(status, headers, body)

    def close(self) -> None:
        self.is_closed = True
        self._file.close()
        self._socket.close()


def _observed_answer(status: int, headers: dict[str, str], body: str) -> ObservedAnswer:
    index = int(headers[_ROW]) if _ROW in headers else None
    if _SEEN_PATH in headers:
        return ObservedAnswer(status, index, path=headers[_SEEN_PATH], host=headers[_SEEN_HOST])
    return ObservedAnswer(status, index, headers.get("location", ""), body)


def _headers(file: BufferedIOBase | BinaryIO) -> Iterator[tuple[str, str]]:
    while line := file.readline().decode("latin-1").rstrip("\r\n"):
        name, _, value = line.partition(":")
        yield name.lower(), value.strip()


class _Service(socketserver.ThreadingTCPServer):
    """Answers with the path and the host of the request, byte for byte; the standard library's server changes paths."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        self.address = new_address()
        super().__init__(self.address, _Echo)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while line := self.rfile.readline():
            path = line.split(b" ")[1].decode()
            host = dict(_headers(self.rfile)).get("host", "")
            answer = f"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{_SEEN_PATH}: {path}\r\n{_SEEN_HOST}: {host}\r\n\r\n"
            self.wfile.write(answer.encode())


def _resources(tables: Sequence[RouteConfiguration], addresses: Sequence[Address]) -> list[PackedResource]:
    """The resources of an HTTP service, with the given tables in place of its own."""
    cluster = backend_cluster(Backend(UPSTREAM, UPSTREAM, Protocol.HTTP))
    resources = [_packed(CLUSTER, message) for message in cluster.finish()]
    for index, (table, address) in enumerate(zip(tables, addresses, strict=True)):
        draft = outbound_listener(Outbound(str(index), "backend", address.host, address.port, Protocol.HTTP))
        resources += [
            _packed(LISTENER, finished) for finished in draft.finish() if finished[1].DESCRIPTOR.name == "Listener"
        ]
        resources.append(_packed(ROUTES, (str(index), table)))
    return resources


def _packed(type_url: str, finished: tuple[str, Any]) -> PackedResource:
    name, message = finished
    return PackedResource.of(type_url, name, message.SerializeToString(deterministic=True))


def _with_table(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """A listener with its table inside, as a file can have it; each row answers with its index in a header."""
    packed = snapshot.get(ROUTES, name)
    assert packed is not None
    table = RouteConfiguration.FromString(packed.body)
    table.validate_clusters.value = False
    for host in table.virtual_hosts:
        for index, row in enumerate(host.routes):
            row.response_headers_to_add.add().header.key = _ROW
            row.response_headers_to_add[-1].header.value = str(index)
    return _inlined(snapshot, name, table)


def _inlined(snapshot: Snapshot, name: str, table: RouteConfiguration) -> dict[str, Any]:
    for packed in snapshot.of(LISTENER):
        listener = Listener.FromString(packed.body)
        manager = HttpConnectionManager()
        listener.filter_chains[0].filters[-1].typed_config.Unpack(manager)
        if manager.rds.route_config_name == name:
            manager.route_config.CopyFrom(table)
            listener.filter_chains[0].filters[-1].typed_config.Pack(manager)
            return json_format.MessageToDict(listener)
    raise KeyError(name)


def _bootstrap(listeners: list[dict[str, Any]], service: Address) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": socket_address(service)}}
    cluster = {
        "name": UPSTREAM,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": UPSTREAM, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    return {
        "node": {"id": "oracle", "cluster": "oracle"},
        "admin": {"address": socket_address(new_address())},
        "static_resources": {"listeners": listeners, "clusters": [cluster]},
    }

"""One Envoy that is many gateways at once, with a server behind it that says for which cluster it was called.

What each gateway is served is put into one file: listeners as they are, with their tables inside, and certificates and
clusters under names of the gateway's own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import Route, VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext
from google.protobuf import json_format
from google.protobuf.message import Message

from cp.insight.simulate import Call
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET
from cp.translate.snapshot import Snapshot
from tests.support.bootstraps import socket_address
from tests.support.envoy import Envoy
from tests.support.loopback import Address, new_address

REFUSED: Final = -1
CLOSED: Final = 0
BACKEND_HOST: Final = "the.endpoint"
_TIMEOUT: Final = 10.0
_HANDSHAKE: Final = 0x16
_ROW: Final = "x-row"
_NAME: Final = "x-name"


@dataclass(frozen=True)
class Observed:
    """What a client saw."""

    status: int
    """`REFUSED` if nothing listens, `CLOSED` if there was no answer."""

    row: int | None = None
    name: str = ""
    """The name of the row that took the request."""

    location: str = ""
    cluster: str = ""
    path: str = ""
    host: str = ""


class Gateways:
    """An Envoy with the listeners of some snapshots, which are at addresses of their own."""

    def __init__(self, snapshots: Sequence[Snapshot], folder: Path) -> None:
        parts = [_Part(f"g{index}/", snapshot) for index, snapshot in enumerate(snapshots)]
        self._server = _Server({name for part in parts for name in part.clusters()})
        clusters = [
            _cluster(part.prefix + name, self._server.at[name], is_named=part.names_endpoints(name))
            for part in parts
            for name in part.clusters()
        ]
        resources = {
            "listeners": [_data(listener) for part in parts for listener in part.listeners()],
            "secrets": [_data(secret) for part in parts for secret in part.secrets()],
            "clusters": clusters,
        }
        admin = {"address": socket_address(new_address())}
        config = {"node": {"id": "edge", "cluster": "edge"}, "admin": admin, "static_resources": resources}
        self._envoy = Envoy(config, folder)

    def __enter__(self) -> Self:
        self._envoy.ready(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._envoy.stop()
        self._server.close()


class _Part:
    """One gateway of several in a file."""

    def __init__(self, prefix: str, snapshot: Snapshot) -> None:
        self.prefix = prefix
        self._snapshot = snapshot

    def clusters(self) -> list[str]:
        return [packed.name for packed in self._snapshot.of(CLUSTER)]

    def names_endpoints(self, cluster: str) -> bool:
        """Whether the endpoints of a cluster are served with host names."""
        packed, of_endpoints = (self._snapshot.get(type_url, cluster) for type_url in (CLUSTER, ENDPOINTS))
        assert packed is not None, cluster
        assignments = [Cluster.FromString(packed.body).load_assignment]
        if of_endpoints is not None:
            assignments.append(ClusterLoadAssignment.FromString(of_endpoints.body))
        return any(
            each.endpoint.hostname for of in assignments for group in of.endpoints for each in group.lb_endpoints
        )

    def secrets(self) -> Iterator[Message]:
        for packed in self._snapshot.of(SECRET):
            secret = Secret.FromString(packed.body)
            if secret.HasField("tls_certificate"):
                secret.name = self.prefix + secret.name
                yield secret

    def listeners(self) -> Iterator[Message]:
        for packed in self._snapshot.of(LISTENER):
            listener = Listener.FromString(packed.body)
            listener.name = self.prefix + listener.name
            for chain in listener.filter_chains:
                self._end(chain)
                self._certify(chain)
            yield listener

    def _certify(self, chain: FilterChain) -> None:
        if chain.HasField("transport_socket"):
            context = DownstreamTlsContext()
            chain.transport_socket.typed_config.Unpack(context)
            for reference in context.common_tls_context.tls_certificate_sds_secret_configs:
                reference.name = self.prefix + reference.name
                reference.ClearField("sds_config")
            chain.transport_socket.typed_config.Pack(context)

    def _end(self, chain: FilterChain) -> None:
        """The last filter, with its table inside and clusters by their names in the file."""
        last, manager, proxy = chain.filters[-1].typed_config, HttpConnectionManager(), TcpProxy()
        if last.Unpack(proxy):
            if proxy.cluster:
                proxy.cluster = self.prefix + proxy.cluster
            for weighted in proxy.weighted_clusters.clusters:
                weighted.name = self.prefix + weighted.name
            last.Pack(proxy)
        elif last.Unpack(manager):
            manager.route_config.CopyFrom(self._table(manager.rds.route_config_name))
            last.Pack(manager)

    def _table(self, name: str) -> RouteConfiguration:
        packed = self._snapshot.get(ROUTES, name)
        assert packed is not None, name
        table = RouteConfiguration.FromString(packed.body)
        table.validate_clusters.value = False
        for host in table.virtual_hosts:
            self._mark(host)
        return table

    def _mark(self, host: VirtualHost) -> None:
        """Each row answers with its index and its name."""
        for index, row in enumerate(host.routes):
            for name, value in ((_ROW, str(index)), (_NAME, row.name)):
                added = row.response_headers_to_add.add().header
                added.key, added.value = name, value
            self._lead(row)

    def _lead(self, row: Route) -> None:
        if row.route.cluster:
            row.route.cluster = self.prefix + row.route.cluster
        for weighted in row.route.weighted_clusters.clusters:
            weighted.name = self.prefix + weighted.name
        for mirror in row.route.request_mirror_policies:
            mirror.cluster = self.prefix + mirror.cluster


def _data(message: Message) -> Mapping[str, Any]:
    return json_format.MessageToDict(message)


def _cluster(name: str, at: Address, *, is_named: bool) -> Mapping[str, Any]:
    endpoint = {"address": socket_address(at), **({"hostname": BACKEND_HOST} if is_named else {})}
    assignment = {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]}
    return {"name": name, "type": "STATIC", "connect_timeout": "5s", "load_assignment": assignment}


class _Server:
    """A service at an address for each cluster, which answers with the cluster, and the host and path it was asked for.

    TLS is answered with a line of text, so that a client sees where its handshake came to.
    """

    def __init__(self, names: set[str]) -> None:
        self.at = {name: new_address() for name in sorted(names)}
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._listen())
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _listen(self) -> None:
        self._servers = [await asyncio.start_server(self._answering(name), *at) for name, at in self.at.items()]

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _answering(self, name: str) -> Any:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while line := await reader.readline():
                    if line[0] == _HANDSHAKE:
                        writer.write(f"passed on to {name}\n".encode())
                        break
                    headers = [header async for header in _lines(reader)]
                    writer.write(_echo(name, line.decode("latin-1"), headers))
                    await writer.drain()
            except OSError:
                pass
            finally:
                writer.close()

        return answer


async def _lines(reader: asyncio.StreamReader) -> Any:
    while (line := (await reader.readline()).decode("latin-1").rstrip("\r\n")) != "":
        yield line


def _echo(cluster: str, request: str, headers: list[str]) -> bytes:
    host = dict(_headers(headers)).get("host", "")
    lines = (f"x-cluster: {cluster}", f"x-seen-path: {request.split(' ')[1]}", f"x-seen-host: {host}")
    return "\r\n".join(["HTTP/1.1 200 OK", "content-length: 0", *lines, "", ""]).encode("latin-1")


def _headers(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, value = line.partition(":")
        yield name.lower(), value.strip()


def send(call: Call) -> Observed:
    """Send a call on a connection of its own."""
    try:
        with socket.create_connection((call.address, call.port), _TIMEOUT) as plain:
            if call.server_name is None:
                return _asked(plain, call)
            plain.sendall(_client_hello(call.server_name))
            answered = plain.recv(4096)
    except ConnectionRefusedError:
        return Observed(REFUSED)
    except ConnectionError:
        return Observed(CLOSED)
    if answered[:1] == bytes([_HANDSHAKE]):
        return _over_tls(call)
    words = answered.decode("latin-1").split()
    return Observed(200, cluster=words[-1]) if words[:1] == ["passed"] else Observed(CLOSED)


def _over_tls(call: Call) -> Observed:
    """TLS ends at the gateway, so it is spoken."""
    try:
        with socket.create_connection((call.address, call.port), _TIMEOUT) as plain:
            # The request follows the end of the handshake at once, instead of when that is acknowledged: 40 ms later.
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with _context().wrap_socket(plain, server_hostname=call.server_name or None) as spoken:
                return _asked(spoken, call)
    except (ConnectionError, ssl.SSLError):
        return Observed(CLOSED)


@cache
def _context() -> ssl.SSLContext:
    """It trusts everybody, and knows no authorities: to read those takes longer than a request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _client_hello(server_name: str) -> bytes:
    sent = ssl.MemoryBIO()
    try:
        _context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname=server_name or None).do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()
    raise AssertionError("a handshake needs an answer")


def _asked(connection: socket.socket, call: Call) -> Observed:
    lines = [f"{call.method} {call.path} HTTP/1.1", f"host: {call.host}", *(f"{n}: {v}" for n, v in call.headers)]
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    with connection.makefile("rb") as file:
        status = file.readline().split(b" ")
        if len(status) < 2:
            return Observed(CLOSED)
        head = []
        while line := file.readline().decode("latin-1").rstrip("\r\n"):
            head.append(line)
    headers = dict(_headers(head))
    row = int(headers[_ROW]) if _ROW in headers else None
    return Observed(
        int(status[1]),
        row,
        headers.get(_NAME, ""),
        headers.get("location", ""),
        headers.get("x-cluster", ""),
        headers.get("x-seen-path", ""),
        headers.get("x-seen-host", ""),
    )

"""Which connections a plan says to end, and which a real Envoy ends."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from cp.api.envoy_json import decoded
from cp.insight.comparison import ChangedResource
from cp.insight.plan.drains import drain
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, PackedResource
from generators.bootstrap import ControlPlane, EnvoyIdentity, ListenAddress, bootstrap
from generators.envoy.every_message import message_type
from tests.ads.serving import Serving
from tests.support.envoy import Envoy
from tests.support.loopback import Address, new_address
from tests.support.waiting import eventually

_MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
_TCP = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
_NAMES = {
    LISTENER: "envoy.config.listener.v3.Listener",
    ROUTES: "envoy.config.route.v3.RouteConfiguration",
    ENDPOINTS: "envoy.config.endpoint.v3.ClusterLoadAssignment",
    CLUSTER: "envoy.config.cluster.v3.Cluster",
}
WHOLE = "all connections to the listener, which is replaced as a whole"


def packed(type_url: str, name: str, data: dict[str, Any]) -> PackedResource:
    for known in (_MANAGER, _ROUTER, _TCP):
        message_type(known.rpartition("/")[2])
    message = json_format.ParseDict(data, message_type(_NAMES[type_url])())
    return PackedResource.of(type_url, name, message.SerializeToString())


def chain(client: str, prefix: str = "in") -> dict[str, Any]:
    """A chain for connections from one address of loopback."""
    routes = {"routeConfigName": "r", "configSource": {"ads": {}, "resourceApiVersion": "V3"}}
    router = {"name": "envoy.filters.http.router", "typedConfig": {"@type": _ROUTER}}
    manager = {"@type": _MANAGER, "statPrefix": prefix, "rds": routes, "httpFilters": [router]}
    match = {"sourcePrefixRanges": [{"addressPrefix": client, "prefixLen": 32}]}
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typedConfig": manager}]
    return {"name": client, "filterChainMatch": match, "filters": filters}


def unnamed(*clients: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in chain(client).items() if name != "name"} for client in clients]


def listener(address: Address, *chains: dict[str, Any], **fields: Any) -> PackedResource:
    socket = {"address": address.host, "portValue": address.port}
    return packed(
        LISTENER, "in", {"name": "in", "address": {"socketAddress": socket}, "filterChains": chains, **fields}
    )


def table(body: str) -> PackedResource:
    answer = {"match": {"prefix": "/"}, "directResponse": {"status": 200, "body": {"inlineString": body}}}
    return packed(ROUTES, "r", {"name": "r", "virtualHosts": [{"name": "h", "domains": ["*"], "routes": [answer]}]})


FIRST, SECOND = "127.0.0.1", "127.0.0.2"
Change = Callable[[Address], tuple[PackedResource, PackedResource]]
"""The listener and the table after a change."""

CHANGES: list[tuple[str, Change, bool, bool]] = [
    ("", lambda a: (listener(a, chain(FIRST), chain(SECOND)), table("other")), False, False),
    (
        f"connections to the listener that came by its filter chain {FIRST}",
        lambda a: (listener(a, chain(FIRST, "other"), chain(SECOND)), table("one")),
        True,
        False,
    ),
    (
        WHOLE,
        lambda a: (listener(a, chain(FIRST), chain(SECOND), perConnectionBufferLimitBytes=65536), table("one")),
        True,
        True,
    ),
]


@pytest.mark.parametrize(("text", "change", "ends_first", "ends_second"), CHANGES)
def test_an_envoy_ends_the_connections_that_a_plan_says_to_end(
    text: str, change: Change, ends_first: bool, ends_second: bool, tmp_path: Path
) -> None:
    address = new_address()
    before, after = (listener(address, chain(FIRST), chain(SECOND)), table("one")), change(address)
    with serving_envoy(tmp_path) as (serving, envoy):
        serving.publish("default.web", *before)
        envoy.ready()
        connections = [Kept(address, client) for client in (FIRST, SECOND)]
        serving.publish("default.web", *after)
        serving.in_sync("default.web")
        drained = "^listener_manager.(total_listeners|total_filter_chains)_draining$"
        eventually(lambda: not any(envoy.stats(drained).values()), 15)
        ended = tuple(connection.ended() for connection in connections)

    assert drain(ChangedResource(LISTENER, "in", before[0], after[0]), decoded) == text
    assert ended == (ends_first, ends_second)


class Kept:
    """A connection that has been used once, and is kept open."""

    def __init__(self, address: Address, client: str) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=10, source_address=(client, 0))
        self._ask()

    def ended(self) -> bool:
        """Whether the other end has closed it. It is closed in any case."""
        try:
            self._ask()
        except (http.client.RemoteDisconnected, ConnectionError):
            return True
        finally:
            self._connection.close()
        return False

    def _ask(self) -> None:
        if self._connection.sock is None:
            self._connection.connect()
        self._connection.request("GET", "/")
        self._connection.getresponse().read()
        self._connection.auto_open = 0


def test_an_envoy_keeps_the_connections_of_chains_without_a_name_that_move(tmp_path: Path) -> None:
    """One that comes first gives all others another place in the list."""
    address = new_address()
    before = listener(address, *unnamed(FIRST, SECOND))
    after = listener(address, *unnamed("127.0.0.3", SECOND))
    with serving_envoy(tmp_path) as (serving, envoy):
        serving.publish("default.web", before, table("one"))
        envoy.ready()
        connections = [Kept(address, client) for client in (FIRST, SECOND)]
        serving.publish("default.web", after, table("one"))
        serving.in_sync("default.web")
        drained = "^listener_manager.(total_listeners|total_filter_chains)_draining$"
        eventually(lambda: not any(envoy.stats(drained).values()), 15)
        ended = tuple(connection.ended() for connection in connections)

    moved = listener(address, *unnamed("127.0.0.3", FIRST, SECOND))
    assert ended == (True, False)
    assert drain(ChangedResource(LISTENER, "in", before, after), decoded).endswith("its filter chain 0")
    assert not drain(ChangedResource(LISTENER, "in", before, moved), decoded)


@contextmanager
def serving_envoy(folder: Path) -> Iterator[tuple[Serving, Envoy]]:
    ads, admin = new_address(), new_address()
    identity = EnvoyIdentity("default", "web", "web", ListenAddress(admin.host, admin.port))
    config = bootstrap(identity, ControlPlane(ListenAddress(ads.host, ads.port)))
    with Serving(ads) as serving, Envoy(config, folder) as envoy:
        yield serving, envoy


class Host:
    """A host of a cluster, that answers requests over HTTP, those for `/slow` late, and sends back all else."""

    def __init__(self, address: Address) -> None:
        self._server = socket.create_server(address)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.answers_slow = threading.Event()
        self.opened = self.closed = 0

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self.opened += 1
                self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while received := connection.recv(4096):
                if received.startswith(b"GET /slow"):
                    assert self.answers_slow.wait(20)
                is_http = received.startswith(b"GET")
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok" if is_http else received)
        self.closed += 1


def cluster(timeout: str = "1s") -> PackedResource:
    source = {"edsConfig": {"ads": {}, "resourceApiVersion": "V3"}}
    return packed(CLUSTER, "c", {"name": "c", "type": "EDS", "connectTimeout": timeout, "edsClusterConfig": source})


def endpoints(*addresses: Address) -> PackedResource:
    sockets = ({"socketAddress": {"address": host, "portValue": port}} for host, port in addresses)
    hosts = [{"endpoint": {"address": address}} for address in sockets]
    return packed(ENDPOINTS, "c", {"clusterName": "c", "endpoints": [{"lbEndpoints": hosts}]})


def to_cluster(address: Address) -> tuple[PackedResource, PackedResource, PackedResource]:
    """A listener for HTTP at an address, one for TCP at the port above, and the routes of the first."""
    tcp = {"@type": _TCP, "statPrefix": "tcp", "cluster": "c"}
    there = {"socketAddress": {"address": address.host, "portValue": address.port + 1}}
    chains = [{"filters": [{"name": "envoy.filters.network.tcp_proxy", "typedConfig": tcp}]}]
    route = {"match": {"prefix": "/"}, "route": {"cluster": "c", "timeout": "60s"}}
    routes = {"name": "r", "virtualHosts": [{"name": "h", "domains": ["*"], "routes": [route]}]}
    return (
        listener(address, chain(FIRST)),
        packed(LISTENER, "tcp", {"name": "tcp", "address": there, "filterChains": chains}),
        packed(ROUTES, "r", routes),
    )


AtHost = Callable[[Address, Address], list[PackedResource]]
"""The cluster and its endpoints after a change: the first address was its host."""

AT_HOSTS: list[tuple[AtHost, bool]] = [
    (lambda host, _: [cluster("2s"), endpoints(host)], True),
    (lambda host, _: [], True),
    (lambda host, other: [cluster(), endpoints(other)], True),
    (lambda host, other: [cluster(), endpoints(host, other)], False),
    (lambda host, _: [cluster()], False),
]


@pytest.mark.parametrize(("change", "ends"), AT_HOSTS, ids=["changed", "removed", "moved", "more", "silent"])
def test_an_envoy_ends_the_connections_to_hosts_that_a_plan_says_to_end(
    change: AtHost, ends: bool, tmp_path: Path
) -> None:
    """HTTP connections that wait at once, others after the request under way; no TCP connection, and none is opened."""
    address, own, other = new_address(), new_address(), new_address()
    before, after = [cluster(), endpoints(own)], change(own, other)
    with closing(Host(own)) as host, serving_envoy(tmp_path) as (serving, envoy), ExitStack() as stack:
        serving.publish("default.web", *before, *to_cluster(address))
        envoy.ready()
        slow = stack.enter_context(closing(http.client.HTTPConnection(*address, timeout=20)))
        slow.request("GET", "/slow")
        eventually(lambda: host.opened == 1)
        waiting = stack.enter_context(closing(http.client.HTTPConnection(*address, timeout=20)))
        waiting.request("GET", "/")
        assert waiting.getresponse().read() == b"ok"
        tcp = stack.enter_context(socket.create_connection((address.host, address.port + 1), 20))
        assert echoed(tcp)
        serving.publish("default.web", *after, *to_cluster(address))
        eventually(lambda: host.closed == int(ends))
        if after:
            serving.in_sync("default.web")
        host.answers_slow.set()
        assert slow.getresponse().status == 200
        eventually(lambda: host.closed == 2 * int(ends))
        assert (host.opened, echoed(tcp)) == (3, True)

    drains = [drain(each, decoded) for each in changes(before, after)]
    assert [each.startswith("HTTP connections to ") for each in drains if each] == [True] * len(
        list(filter(None, drains))
    )
    assert any(drains) == ends


def echoed(connection: socket.socket) -> bool:
    connection.sendall(b"hello")
    return connection.recv(5) == b"hello"


def changes(before: Sequence[PackedResource], after: Sequence[PackedResource]) -> Iterator[ChangedResource]:
    old, new = ({packed.type_url: packed for packed in side} for side in (before, after))
    for type_url in (CLUSTER, ENDPOINTS):
        if old.get(type_url) != new.get(type_url):
            yield ChangedResource(type_url, "c", old.get(type_url), new.get(type_url))


def test_what_a_plan_says_of_other_resources() -> None:
    hosts = [
        {"endpoint": {"address": {"socketAddress": {"address": f"10.0.0.{number}", "portValue": 80}}}}
        for number in (1, 2)
    ]
    two, one = (
        packed(ENDPOINTS, "c", {"clusterName": "c", "endpoints": [{"lbEndpoints": few}]}) for few in (hosts, hosts[:1])
    )
    udp = {"protocol": "UDP", "address": "127.0.0.1", "portValue": 53}
    dns = packed(LISTENER, "dns", {"name": "dns", "address": {"socketAddress": udp}})
    secret = PackedResource.of(SECRET, "s", b"")

    gone = "HTTP connections to 10.0.0.2:80, each after its requests under way"
    assert drain(ChangedResource(ENDPOINTS, "c", two, one), decoded) == gone
    assert not drain(ChangedResource(ENDPOINTS, "c", two, None), decoded)
    assert not drain(ChangedResource(ENDPOINTS, "c", one, two), decoded)
    assert drain(ChangedResource(CLUSTER, "c", cluster(), None), decoded).startswith("HTTP connections to its hosts")
    assert not drain(ChangedResource(CLUSTER, "c", None, cluster()), decoded)
    assert not drain(ChangedResource(SECRET, "s", secret, None), decoded)
    assert not drain(ChangedResource(ROUTES, "r", table("a"), table("b")), decoded)
    assert not drain(ChangedResource(LISTENER, "dns", dns, None), decoded)
    removed = ChangedResource(LISTENER, "in", listener(Address("127.0.0.1", 1), chain(FIRST)), None)
    assert drain(removed, decoded) == "all connections to the listener"

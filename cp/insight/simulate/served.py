"""The resources of a snapshot, decoded one by one when a simulation needs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from google.protobuf.message import Message

from cp.insight.simulate.conditions import UnsimulatedFeature
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, PackedResource
from cp.translate.snapshot import Snapshot

M = TypeVar("M", bound=Message)


class NoListener(Exception):
    """The proxy has no listener at an address."""


class ServedResources:
    """The resources that a proxy is served."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def listener(self, address: str, port: int) -> Listener:
        for packed in self._snapshot.of(LISTENER):
            listener = _decoded(packed, Listener())
            at = listener.address.socket_address
            if (at.address, at.port_value) == (address, port):
                return listener
        raise NoListener(f"no listener of the proxy is at {address}:{port}")

    def table(self, manager: HttpConnectionManager) -> RouteConfiguration:
        if manager.HasField("route_config"):
            return manager.route_config
        return self.named_table(manager.rds.route_config_name)

    def named_table(self, name: str) -> RouteConfiguration:
        packed = self._snapshot.get(ROUTES, name)
        return RouteConfiguration(name=name) if packed is None else _decoded(packed, RouteConfiguration())

    def cluster(self, name: str) -> Cluster | None:
        packed = self._snapshot.get(CLUSTER, name)
        return None if packed is None else _decoded(packed, Cluster())

    def endpoints(self, cluster: Cluster) -> tuple[str, ...]:
        """The addresses of a cluster's endpoints, in the order in which they are served."""
        return tuple(_addresses(self._assignment(cluster)))

    def names_endpoints(self, cluster: Cluster) -> bool:
        """Whether some of a cluster's endpoints have a host name, by which they can be asked."""
        localities = self._assignment(cluster).endpoints
        return any(endpoint.endpoint.hostname for locality in localities for endpoint in locality.lb_endpoints)

    def _assignment(self, cluster: Cluster) -> ClusterLoadAssignment:
        if cluster.type != Cluster.EDS:
            return cluster.load_assignment
        packed = self._snapshot.get(ENDPOINTS, cluster.eds_cluster_config.service_name or cluster.name)
        return ClusterLoadAssignment() if packed is None else _decoded(packed, ClusterLoadAssignment())


def terminal_filter(chain: FilterChain) -> HttpConnectionManager | TcpProxy:
    """The last network filter of a chain, which forwards the connection or its requests."""
    last = chain.filters[-1].typed_config
    for message in (HttpConnectionManager(), TcpProxy()):
        if last.Is(message.DESCRIPTOR):
            last.Unpack(message)
            return message
    raise UnsimulatedFeature(f"the filter chain {chain.name}, which ends in {last.type_url}")


def _addresses(assignment: ClusterLoadAssignment) -> Iterator[str]:
    for locality in assignment.endpoints:
        for endpoint in locality.lb_endpoints:
            address: Any = endpoint.endpoint.address
            socket_address = address.socket_address
            yield (
                address.pipe.path
                if address.HasField("pipe")
                else f"{socket_address.address}:{socket_address.port_value}"
            )


def _decoded(packed: PackedResource, message: M) -> M:
    message.ParseFromString(packed.body)
    return message

"""Clusters of a gRPC client: addresses, load balancing, and ejection of failing endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from envoy.config.cluster.v3.circuit_breaker_pb2 import CircuitBreakers
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.cluster.v3.outlier_detection_pb2 import OutlierDetection
from envoy.config.core.v3.base_pb2 import RoutingPriority

from generators.grpc.tls import mesh_socket

_BY_HASH: Final = frozenset({Cluster.RING_HASH, Cluster.MAGLEV})
_OUTLIERS: Final = (
    "interval",
    "base_ejection_time",
    "max_ejection_time",
    "max_ejection_percent",
    "enforcing_success_rate",
    "success_rate_minimum_hosts",
    "success_rate_request_volume",
    "success_rate_stdev_factor",
    "enforcing_failure_percentage",
    "failure_percentage_threshold",
    "failure_percentage_minimum_hosts",
    "failure_percentage_request_volume",
)
"""The fields that gRPC knows: it ejects by the rate of failures only."""


def grpc_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster; nothing if it uses TLS that the client does not speak, since it must not send in the clear."""
    reduced = Cluster(name=cluster.name)
    if not _speaks_tls(reduced, cluster) or not _finds_addresses(reduced, cluster):
        return
    _balance(reduced, cluster)
    for threshold in cluster.circuit_breakers.thresholds:
        if threshold.priority == RoutingPriority.DEFAULT and threshold.HasField("max_requests"):
            carried = CircuitBreakers.Thresholds(max_requests=threshold.max_requests)
            reduced.circuit_breakers.thresholds.append(carried)
    if _ejects(cluster.outlier_detection):
        _outliers(reduced.outlier_detection, cluster.outlier_detection)
    yield reduced


def _speaks_tls(reduced: Cluster, cluster: Cluster) -> bool:
    """Copy how the cluster speaks TLS, if it does; false if gRPC cannot."""
    if not cluster.HasField("transport_socket"):
        return True
    socket = mesh_socket(cluster.transport_socket)
    if socket is not None:
        reduced.transport_socket.CopyFrom(socket)
    return socket is not None


def _balance(reduced: Cluster, cluster: Cluster) -> None:
    if cluster.lb_policy in _BY_HASH:
        reduced.lb_policy = Cluster.RING_HASH
        for name in ("minimum_ring_size", "maximum_ring_size"):
            if cluster.ring_hash_lb_config.HasField(name):
                getattr(reduced.ring_hash_lb_config, name).CopyFrom(getattr(cluster.ring_hash_lb_config, name))


def _finds_addresses(reduced: Cluster, cluster: Cluster) -> bool:
    """Copy how the cluster gets its addresses; false if gRPC cannot. Of names to resolve gRPC accepts exactly one."""
    if cluster.type == Cluster.EDS:
        reduced.type = Cluster.EDS
        reduced.eds_cluster_config.CopyFrom(cluster.eds_cluster_config)
        return True
    addresses = [
        endpoint.endpoint.address for group in cluster.load_assignment.endpoints for endpoint in group.lb_endpoints
    ]
    if len(addresses) != 1 or not addresses[0].HasField("socket_address"):
        return False
    reduced.type = Cluster.LOGICAL_DNS
    reduced.load_assignment.cluster_name = cluster.name
    reduced.load_assignment.endpoints.add().lb_endpoints.add().endpoint.address.CopyFrom(addresses[0])
    return True


def _ejects(detection: OutlierDetection) -> bool:
    """Whether Envoy would eject: by success rate unless that is turned off, by failure percentage only if turned on."""
    if detection == OutlierDetection():
        return False
    by_rate = not detection.HasField("enforcing_success_rate") or detection.enforcing_success_rate.value > 0
    return by_rate or detection.enforcing_failure_percentage.value > 0


def _outliers(reduced: OutlierDetection, detection: OutlierDetection) -> None:
    for name in _OUTLIERS:
        if detection.HasField(name):
            getattr(reduced, name).CopyFrom(getattr(detection, name))

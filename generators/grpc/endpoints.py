"""Endpoints of a gRPC client: it distributes calls by locality first, and ignores a locality without a weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from generators.envoy.addresses import is_ip

if TYPE_CHECKING:
    from envoy.config.endpoint.v3.endpoint_components_pb2 import LbEndpoint, LocalityLbEndpoints


def grpc_endpoints(assignment: ClusterLoadAssignment) -> ClusterLoadAssignment:
    """The endpoints, each address once, and priorities without gaps: gRPC rejects anything else."""
    reduced = ClusterLoadAssignment(cluster_name=assignment.cluster_name)
    seen: set[tuple[str, int]] = set()
    priorities: dict[int, int] = {}
    for group in sorted(assignment.endpoints, key=lambda group: group.priority):
        endpoints = [endpoint for endpoint in group.lb_endpoints if _is_new(endpoint, seen)]
        weight = _weight(group, endpoints)
        if endpoints and weight:
            priority = priorities.setdefault(group.priority, len(priorities))
            locality = reduced.endpoints.add(locality=group.locality, priority=priority)
            locality.load_balancing_weight.value = weight
            for endpoint in endpoints:
                _add(locality, endpoint)
    return reduced


def _is_new(endpoint: LbEndpoint, seen: set[tuple[str, int]]) -> bool:
    socket_address = endpoint.endpoint.address.socket_address
    address_and_port = (socket_address.address, socket_address.port_value)
    if address_and_port in seen or not is_ip(socket_address.address):
        return False
    seen.add(address_and_port)
    return True


def _weight(group: LocalityLbEndpoints, endpoints: list[LbEndpoint]) -> int:
    """The weight of a locality. By default it is the sum of its endpoints, so that each gets its share as in Envoy."""
    if group.HasField("load_balancing_weight"):
        return group.load_balancing_weight.value
    return sum(
        endpoint.load_balancing_weight.value if endpoint.HasField("load_balancing_weight") else 1
        for endpoint in endpoints
    )


def _add(locality: LocalityLbEndpoints, endpoint: LbEndpoint) -> None:
    grpc_endpoint = locality.lb_endpoints.add(health_status=endpoint.health_status)
    grpc_endpoint.endpoint.address.CopyFrom(endpoint.endpoint.address)
    if endpoint.HasField("load_balancing_weight"):
        grpc_endpoint.load_balancing_weight.CopyFrom(endpoint.load_balancing_weight)

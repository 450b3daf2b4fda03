"""Endpoints of a gRPC client, which shares calls out by locality first, and takes a locality only with a weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from generators.envoy.hosts import is_ip

if TYPE_CHECKING:
    from envoy.config.endpoint.v3.endpoint_components_pb2 import LbEndpoint, LocalityLbEndpoints


def taken_endpoints(assignment: ClusterLoadAssignment) -> ClusterLoadAssignment:
    """Every address once, in priorities without gaps."""
    taken = ClusterLoadAssignment(cluster_name=assignment.cluster_name)
    seen: set[tuple[str, int]] = set()
    priorities: dict[int, int] = {}
    for group in sorted(assignment.endpoints, key=lambda one: one.priority):
        endpoints = [one for one in group.lb_endpoints if _is_new(one, seen)]
        weight = _weight(group, endpoints)
        if endpoints and weight:
            priority = priorities.setdefault(group.priority, len(priorities))
            locality = taken.endpoints.add(locality=group.locality, priority=priority)
            locality.load_balancing_weight.value = weight
            for one in endpoints:
                _add(locality, one)
    return taken


def _is_new(one: LbEndpoint, seen: set[tuple[str, int]]) -> bool:
    at = one.endpoint.address.socket_address
    place = (at.address, at.port_value)
    if place in seen or not is_ip(at.address):
        return False
    seen.add(place)
    return True


def _weight(group: LocalityLbEndpoints, endpoints: list[LbEndpoint]) -> int:
    """As much as its endpoints have together, where nobody says otherwise: so each gets what Envoy would give it."""
    if group.HasField("load_balancing_weight"):
        return group.load_balancing_weight.value
    return sum(one.load_balancing_weight.value if one.HasField("load_balancing_weight") else 1 for one in endpoints)


def _add(locality: LocalityLbEndpoints, one: LbEndpoint) -> None:
    taken = locality.lb_endpoints.add(health_status=one.health_status)
    taken.endpoint.address.CopyFrom(one.endpoint.address)
    if one.HasField("load_balancing_weight"):
        taken.load_balancing_weight.CopyFrom(one.load_balancing_weight)

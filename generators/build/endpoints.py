"""The endpoints of a backend, by locality."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envoy.config.core.v3.health_check_pb2 import HealthStatus
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from generators.drafts import EndpointsDraft
from generators.envoy.edit import set_address
from generators.proxy import Endpoint, Endpoints, Locality

if TYPE_CHECKING:
    from envoy.config.endpoint.v3.endpoint_components_pb2 import LocalityLbEndpoints

_LB_METADATA = "envoy.lb"


def assignment(site: Endpoints) -> EndpointsDraft:
    """The endpoints of a backend, sorted by priority. An empty assignment is served too: it removes all endpoints."""
    message = ClusterLoadAssignment(cluster_name=site.cluster)
    groups: dict[Locality, list[Endpoint]] = {}
    for endpoint in sorted(site.endpoints, key=_sort_key):
        groups.setdefault(endpoint.locality, []).append(endpoint)
    for locality, endpoints in groups.items():
        group = message.endpoints.add(priority=locality.priority)
        write_locality(group, locality)
        for endpoint in endpoints:
            add_endpoint(group.lb_endpoints, endpoint)
    return EndpointsDraft(site, message)


def _sort_key(endpoint: Endpoint) -> tuple[int, str, str, str, int]:
    locality = endpoint.locality
    return locality.priority, locality.zone, locality.sub_zone, endpoint.address, endpoint.port


def write_locality(group: LocalityLbEndpoints, locality: Locality) -> None:
    """Envoy takes a group's weight for 0 unless its `locality` is set, so it is set even if it is empty."""
    if locality.zone:
        group.locality.zone = locality.zone
    if locality.sub_zone:
        group.locality.sub_zone = locality.sub_zone
    if locality.weight is not None:
        group.locality.SetInParent()
        group.load_balancing_weight.value = locality.weight


def add_endpoint(lb_endpoints: object, endpoint: Endpoint) -> None:
    """Add an endpoint, with its tags as metadata for load balancing."""
    lb = lb_endpoints.add()  # type: ignore[attr-defined]
    set_address(lb.endpoint.address, endpoint.address, endpoint.port)
    lb.health_status = HealthStatus.HEALTHY if endpoint.healthy else HealthStatus.UNHEALTHY
    if endpoint.weight != 1:
        lb.load_balancing_weight.value = endpoint.weight
    if endpoint.tags:
        fields = lb.metadata.filter_metadata[_LB_METADATA].fields
        for name, value in endpoint.tags:
            fields[name].string_value = value

"""The endpoints of a backend, by zone."""

from __future__ import annotations

from envoy.config.core.v3.health_check_pb2 import HealthStatus
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from generators.drafts import EndpointsDraft
from generators.envoy.edit import set_address
from generators.proxy import Endpoint, Endpoints

_LB_METADATA = "envoy.lb"


def assignment(site: Endpoints) -> EndpointsDraft:
    """One locality for each zone, in the order of their names. No endpoints is an answer too: it takes them away."""
    message = ClusterLoadAssignment(cluster_name=site.cluster)
    zones: dict[str, list[Endpoint]] = {}
    for endpoint in sorted(site.endpoints, key=lambda one: (one.zone, one.address, one.port)):
        zones.setdefault(endpoint.zone, []).append(endpoint)
    for zone, endpoints in zones.items():
        locality = message.endpoints.add()
        if zone:
            locality.locality.zone = zone
        for endpoint in endpoints:
            add_endpoint(locality.lb_endpoints, endpoint)
    return EndpointsDraft(site, message)


def add_endpoint(lb_endpoints: object, endpoint: Endpoint) -> None:
    """One address, with its tags as the metadata that load balancing can see."""
    lb = lb_endpoints.add()  # type: ignore[attr-defined]
    set_address(lb.endpoint.address, endpoint.address, endpoint.port)
    lb.health_status = HealthStatus.HEALTHY if endpoint.healthy else HealthStatus.UNHEALTHY
    if endpoint.weight != 1:
        lb.load_balancing_weight.value = endpoint.weight
    if endpoint.tags:
        fields = lb.metadata.filter_metadata[_LB_METADATA].fields
        for name, value in endpoint.tags:
            fields[name].string_value = value

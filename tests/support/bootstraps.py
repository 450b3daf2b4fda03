"""Bootstrap configurations for Envoys that no control plane has to serve."""

from typing import Any

from tests.support.loopback import Address

HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


def socket_address(address: Address) -> dict[str, Any]:
    return {"socket_address": {"address": address.host, "port_value": address.port}}


def static(admin: Address, listen: Address, upstream: Address, timeout: str = "1s") -> dict[str, Any]:
    """One HTTP listener in front of one upstream."""
    route = {"match": {"prefix": "/"}, "route": {"cluster": "upstream", "timeout": timeout}}
    manager = {
        "@type": HCM,
        "stat_prefix": "static",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    endpoint = {"endpoint": {"address": socket_address(upstream)}}
    cluster = {
        "name": "upstream",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "upstream", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    return {
        "node": {"id": "static", "cluster": "static"},
        "admin": {"address": socket_address(admin)},
        "static_resources": {
            "listeners": [{"name": "static", "address": socket_address(listen), "filter_chains": [chain]}],
            "clusters": [cluster],
        },
    }

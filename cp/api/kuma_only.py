"""Types of resources that Kuma has and Koguma has not.

Kuma's tools list all of them. There are none here, so each of these lists is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KUMA_ONLY: Final[Mapping[str, str]] = {
    "circuit-breakers": "CircuitBreaker",
    "fault-injections": "FaultInjection",
    "health-checks": "HealthCheck",
    "meshgatewayroutes": "MeshGatewayRoute",
    "meshzoneaddresses": "MeshZoneAddress",
    "proxytemplates": "ProxyTemplate",
    "rate-limits": "RateLimit",
    "retries": "Retry",
    "timeouts": "Timeout",
    "traffic-logs": "TrafficLog",
    "traffic-permissions": "TrafficPermission",
    "traffic-routes": "TrafficRoute",
    "traffic-traces": "TrafficTrace",
    "virtual-outbounds": "VirtualOutbound",
    "workloads": "Workload",
    "zoneegresses": "ZoneEgress",
    "zoneegressoverviews": "ZoneEgress",
    "zoneingresses": "ZoneIngress",
    "zoneingresses+insights": "ZoneIngress",
    "zones": "Zone",
    "zones+insights": "Zone",
}
"""By the name in the path, the name of the type. The last ones are older names of the lists with insights."""

OVERVIEW: Final = "_overview"
"""What stands in the place of a name where a list with insights is asked for."""

"""The kinds of policies of Kuma's first versions, which select by tags in place of a targetRef (record 0072).

Most have `sources` and `destinations`; TrafficTrace, VirtualOutbound and MeshGatewayRoute have `selectors`. What of
another kind of document each of them comes to stands at the top of its module (record 0073); a VirtualOutbound comes
to names. ProxyTemplate is not here but beside MeshProxyPatch, as both know Envoy's resources.
"""

from __future__ import annotations

from typing import Final

from cp.resources.kinds import Kind
from cp.resources.legacy.circuit_breaker import CIRCUIT_BREAKER
from cp.resources.legacy.fault_injection import FAULT_INJECTION
from cp.resources.legacy.gateway_route import MESH_GATEWAY_ROUTE
from cp.resources.legacy.health_check import HEALTH_CHECK
from cp.resources.legacy.rate_limit import RATE_LIMIT
from cp.resources.legacy.retry import RETRY
from cp.resources.legacy.timeout import TIMEOUT
from cp.resources.legacy.traffic_log import TRAFFIC_LOG
from cp.resources.legacy.traffic_permission import TRAFFIC_PERMISSION
from cp.resources.legacy.traffic_route import TRAFFIC_ROUTE
from cp.resources.legacy.traffic_trace import TRAFFIC_TRACE
from cp.resources.legacy.virtual_outbound import VIRTUAL_OUTBOUND

LEGACY_KINDS: Final[tuple[Kind, ...]] = (
    TIMEOUT,
    RETRY,
    CIRCUIT_BREAKER,
    HEALTH_CHECK,
    TRAFFIC_LOG,
    TRAFFIC_ROUTE,
    TRAFFIC_PERMISSION,
    RATE_LIMIT,
    FAULT_INJECTION,
    TRAFFIC_TRACE,
    VIRTUAL_OUTBOUND,
    MESH_GATEWAY_ROUTE,
)

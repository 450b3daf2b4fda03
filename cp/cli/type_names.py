"""The names of every type of resource, for commands that need no more of a type.

Its schema comes with all policies, for which nobody waits who lists some resources. `tests/cli/test_types.py` compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TypeNames:
    """A type of resource: its name, its plural, and the short name that people type."""

    name: str
    plural: str
    short: str
    is_global: bool = False


TYPES: Final = (
    TypeNames("Mesh", "meshes", "m", is_global=True),
    TypeNames("Dataplane", "dataplanes", "dp"),
    TypeNames("MeshService", "meshservices", "msvc"),
    TypeNames("MeshMultiZoneService", "meshmultizoneservices", "mzsvc"),
    TypeNames("MeshExternalService", "meshexternalservices", "extsvc"),
    TypeNames("ExternalService", "external-services", "es"),
    TypeNames("MeshGateway", "meshgateways", "mgw"),
    TypeNames("HostnameGenerator", "hostnamegenerators", "hg", is_global=True),
    TypeNames("MeshOpenTelemetryBackend", "meshopentelemetrybackends", "motb"),
    TypeNames("MeshIdentity", "meshidentities", "mid"),
    TypeNames("MeshTrust", "meshtrusts", "mtrust"),
    TypeNames("Secret", "secrets", "sec"),
    TypeNames("GlobalSecret", "globalsecrets", "gsec", is_global=True),
    TypeNames("Rollout", "rollouts", "roll"),
    TypeNames("Timeout", "timeouts", "timeout"),
    TypeNames("Retry", "retries", "retry"),
    TypeNames("CircuitBreaker", "circuit-breakers", "circuitbreaker"),
    TypeNames("HealthCheck", "health-checks", "healthcheck"),
    TypeNames("TrafficLog", "traffic-logs", "trafficlog"),
    TypeNames("TrafficRoute", "traffic-routes", "trafficroute"),
    TypeNames("TrafficPermission", "traffic-permissions", "trafficpermission"),
    TypeNames("RateLimit", "rate-limits", "ratelimit"),
    TypeNames("FaultInjection", "fault-injections", "faultinjection"),
    TypeNames("TrafficTrace", "traffic-traces", "traffictrace"),
    TypeNames("VirtualOutbound", "virtual-outbounds", "virtual-outbound"),
    TypeNames("MeshGatewayRoute", "meshgatewayroutes", "meshgatewayroute"),
    TypeNames("MeshHTTPRoute", "meshhttproutes", "mhttpr"),
    TypeNames("MeshTCPRoute", "meshtcproutes", "mtcpr"),
    TypeNames("MeshTLS", "meshtlses", "mtls"),
    TypeNames("MeshLoadBalancingStrategy", "meshloadbalancingstrategies", "mlbs"),
    TypeNames("MeshPassthrough", "meshpassthroughs", "mp"),
    TypeNames("MeshAccessLog", "meshaccesslogs", "mal"),
    TypeNames("MeshTrace", "meshtraces", "mtr"),
    TypeNames("MeshFaultInjection", "meshfaultinjections", "mfi"),
    TypeNames("MeshRateLimit", "meshratelimits", "mrl"),
    TypeNames("MeshTimeout", "meshtimeouts", "mt"),
    TypeNames("MeshTrafficPermission", "meshtrafficpermissions", "mtp"),
    TypeNames("MeshHealthCheck", "meshhealthchecks", "mhc"),
    TypeNames("MeshCircuitBreaker", "meshcircuitbreakers", "mcb"),
    TypeNames("MeshRetry", "meshretries", "mr"),
    TypeNames("MeshMetric", "meshmetrics", "mm"),
    TypeNames("MeshProxyPatch", "meshproxypatches", "mpp"),
    TypeNames("ProxyTemplate", "proxytemplates", "proxytemplate"),
)

"""The names of all Envoy resources and extensions that are generated."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from generators.proxy import Tags

ROUTER = "envoy.filters.http.router"
CONNECTION_MANAGER = "envoy.filters.network.http_connection_manager"
TCP_PROXY = "envoy.filters.network.tcp_proxy"
ORIGINAL_DST = "envoy.filters.listener.original_dst"
DNS_FILTER = "envoy.filters.udp.dns_filter"
DNS = "dns"
TLS_INSPECTOR = "envoy.filters.listener.tls_inspector"
HTTP_INSPECTOR = "envoy.filters.listener.http_inspector"
TLS_SOCKET = "envoy.transport_sockets.tls"
HTTP_RBAC = "envoy.filters.http.rbac"
NETWORK_RBAC = "envoy.filters.network.rbac"
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

LOOPBACK = "127.0.0.1"

ADMIN = "koguma:admin"
"""The cluster of Envoy's admin interface. The bootstrap defines it, since only that knows the address."""

SYSTEM_CA = "koguma:system-ca"
"""The secret with the CAs that the machine trusts. The bootstrap defines it, since only that knows the file."""

RUNTIME = "koguma:limits"
"""The layer of a gateway's runtime that has the limits of its ports. The bootstrap asks for it."""

MISSING_CLUSTER = "koguma:refused"
"""A cluster that never exists: requests for it are answered with 500, connections are closed."""


def outbound_listener(address: str, port: int) -> str:
    return f"outbound:{address}:{port}"


def inbound_listener(address: str, port: int) -> str:
    return f"inbound:{address}:{port}"


def passthrough(side: str, family: str) -> str:
    """A catch-all listener, and the cluster to which it passes connections on."""
    return f"{side}:passthrough:{family}"


def inbound_routes(address: str, port: int) -> str:
    return f"inbound:{address}:{port}"


def gateway_listener(gateway: str, protocol: str, port: int) -> str:
    return f"{gateway}:{protocol}:{port}"


def gateway_table(listener: str, hostname: str) -> str:
    """The route table of a gateway's port, for clients that ask for some server name or, with `*`, for all."""
    return f"{listener}:{hostname}"


def gateway_chain(server_names: tuple[str, ...]) -> str:
    """The filter chain of a gateway's port for clients that ask for some server names or, without any, for all."""
    return ",".join(server_names) or "*"


def gateway_mark(hostname: str, port: int) -> str:
    """What the names of clusters end with that are for calls by some listeners of a gateway alone."""
    return f"@{statistic(hostname)}_{port}"


def gateway_certificate(gateway: str, secret: str) -> str:
    """The secret with a certificate of a gateway, and its key."""
    return f"{gateway}:certificate:{secret}"


def metrics_listener(address: str, port: int) -> str:
    return f"metrics:{address}:{port}"


def application_cluster(address: str, port: int) -> str:
    """The cluster of an application that serves metrics."""
    return f"metrics:{address}:{port}"


def mesh_identity(mesh: str) -> str:
    """The secret with the certificate that a proxy shows to others of its mesh: each proxy gets one of its own."""
    return f"identity_cert:secret:{mesh}"


def mesh_authority(mesh: str, domain: str = "") -> str:
    """The secret with the roots that the proxies of a mesh trust: all of them, or those of one trust domain."""
    return f"mesh_ca:secret:{mesh}:{domain}" if domain else f"mesh_ca:secret:{mesh}"


def of_socket(cluster: str, place: int) -> str:
    """What a cluster is called by its secrets, and by each socket after its first, as endpoints may need several."""
    return f"{cluster}:{place}" if place else cluster


def authority_secret(cluster: str) -> str:
    """The secret with the CA of a cluster's servers."""
    return f"{cluster}:ca"


def identity_secret(cluster: str) -> str:
    """The secret with the client certificate for a cluster's servers."""
    return f"{cluster}:identity"


def local_cluster(address: str, port: int) -> str:
    """The cluster of the proxy's own workload, which usually listens on loopback."""
    return f"{'localhost' if address == LOOPBACK else address}:{port}"


def local_cluster_of(cluster: str, address: str, port: int) -> str:
    """That of one inbound, where several lead to one port of the workload."""
    return f"{cluster}@{address}:{port}"


def subset_cluster(service: str, subset: Tags) -> str:
    """The cluster of a service, or of its endpoints with certain tags."""
    if not subset:
        return service
    tags_text = "".join(f"{name}={value}\0" for name, value in sorted(subset))
    return f"{service}-{hashlib.sha256(tags_text.encode()).hexdigest()[:16]}"


def plain_text(service: str) -> str:
    """The statistics of those who call an inbound in plain text, where it takes TLS as well."""
    return f"{statistic(service)}_plain_text"


def statistic(name: str) -> str:
    """A name as Envoy's statistics can contain it: there dots and colons are separators."""
    return name.replace(".", "_").replace(":", "_")

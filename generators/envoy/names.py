"""Every Envoy name that we emit, built in one place."""

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
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

LOOPBACK = "127.0.0.1"

ADMIN = "koguma:admin"
"""Envoy's own admin interface, a cluster of the bootstrap configuration: nothing else knows where it is."""

SYSTEM_CA = "koguma:system-ca"
"""Whom the proxy's machine trusts, a secret of the bootstrap configuration: nothing else knows in which file it is."""

MISSING_CLUSTER = "koguma:refused"
"""A cluster that never exists: what is sent there is answered with 500."""


def outbound_listener(address: str, port: int) -> str:
    return f"outbound:{address}:{port}"


def inbound_listener(address: str, port: int) -> str:
    return f"inbound:{address}:{port}"


def passthrough(side: str, family: str) -> str:
    """What takes all that is redirected and has no listener of its own: a listener, and the cluster behind it."""
    return f"{side}:passthrough:{family}"


def inbound_routes(address: str, port: int) -> str:
    return f"inbound:{address}:{port}"


def metrics_listener(address: str, port: int) -> str:
    return f"metrics:{address}:{port}"


def application_cluster(address: str, port: int) -> str:
    """A workload that is asked for its metrics."""
    return f"metrics:{address}:{port}"


def authority_secret(cluster: str) -> str:
    """By whom the servers of a cluster have to be certified."""
    return f"{cluster}:ca"


def identity_secret(cluster: str) -> str:
    """With what a client shows the servers of a cluster who it is."""
    return f"{cluster}:identity"


def local_cluster(address: str, port: int) -> str:
    """The workload beside the proxy; as a rule it listens on loopback."""
    return f"{'localhost' if address == LOOPBACK else address}:{port}"


def subset_cluster(service: str, subset: Tags) -> str:
    """A service, or the part of it that carries some tags."""
    if not subset:
        return service
    tags_text = "".join(f"{name}={value}\0" for name, value in sorted(subset))
    return f"{service}-{hashlib.sha256(tags_text.encode()).hexdigest()[:16]}"

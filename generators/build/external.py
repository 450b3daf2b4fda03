"""Clusters of services outside the mesh: Envoy resolves their names, and may speak TLS with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.clusters.common.dns.v3.dns_pb2 import V4_PREFERRED
from envoy.extensions.clusters.dns.v3.dns_cluster_pb2 import DnsCluster
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from generators.drafts import ClusterDraft
from generators.envoy.addresses import is_ip
from generators.envoy.edit import pack, set_address
from generators.envoy.tls import SOCKET, client_context, client_secrets
from generators.proxy import Backend, Endpoint, Protocol

if TYPE_CHECKING:
    from envoy.config.endpoint.v3.endpoint_components_pb2 import Endpoint as EndpointMessage
    from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

SOCKET_ADDRESS = "unix://"
"""The prefix of the address of a socket in the file system."""

_DNS = "envoy.clusters.dns"
_FIRST_RETRY_SECONDS = 1
_LAST_RETRY_SECONDS = 10


def external_cluster(backend: Backend) -> ClusterDraft:
    """A service outside the mesh."""
    cluster = Cluster(name=backend.cluster)
    if all(_is_fixed(endpoint) for endpoint in backend.external):
        cluster.type = Cluster.STATIC
    else:
        cluster.cluster_type.name = _DNS
        cluster.cluster_type.typed_config.CopyFrom(pack(_resolution()))
    cluster.load_assignment.cluster_name = cluster.name
    _write_endpoints(cluster.load_assignment, backend)
    draft = ClusterDraft(backend, cluster, _http_options(backend))
    if backend.tls is not None:
        cluster.transport_socket.name = SOCKET
        cluster.transport_socket.typed_config.CopyFrom(pack(client_context(backend.tls, cluster.name)))
        draft.secrets.extend(client_secrets(backend.tls, cluster.name))
    return draft


def _is_fixed(endpoint: Endpoint) -> bool:
    """Whether the address is no name that has to be resolved."""
    return endpoint.address.startswith(SOCKET_ADDRESS) or is_ip(endpoint.address)


def _resolution() -> DnsCluster:
    """Every address of a name is an endpoint, for as long as the DNS records are valid."""
    dns = DnsCluster(respect_dns_ttl=True, dns_lookup_family=V4_PREFERRED)
    dns.dns_failure_refresh_rate.base_interval.seconds = _FIRST_RETRY_SECONDS
    dns.dns_failure_refresh_rate.max_interval.seconds = _LAST_RETRY_SECONDS
    return dns


def _write_endpoints(assignment: ClusterLoadAssignment, backend: Backend) -> None:
    """Write endpoints by priority. Envoy rejects gaps between priorities, so they are numbered anew."""
    for rank, priority in enumerate(sorted({endpoint.locality.priority for endpoint in backend.external})):
        group = assignment.endpoints.add(priority=rank)
        for external in backend.external:
            if external.locality.priority == priority:
                _write_endpoint(group.lb_endpoints.add().endpoint, external)


def _write_endpoint(message: EndpointMessage, external: Endpoint) -> None:
    if external.address.startswith(SOCKET_ADDRESS):
        message.address.pipe.path = external.address.removeprefix(SOCKET_ADDRESS)
    else:
        set_address(message.address, external.address, external.port)
    if external.host:
        message.hostname = message.health_check_config.hostname = external.host


def _http_options(backend: Backend) -> HttpProtocolOptions | None:
    """The HTTP version: over TLS the server chooses (ALPN); without TLS it is that of the service's protocol."""
    if not backend.protocol.is_http:
        return None
    options = HttpProtocolOptions()
    if backend.protocol is not Protocol.HTTP:
        options.explicit_http_config.http2_protocol_options.SetInParent()
    elif backend.tls is None:
        options.explicit_http_config.http_protocol_options.SetInParent()
    else:
        options.auto_config.http_protocol_options.SetInParent()
        options.auto_config.http2_protocol_options.SetInParent()
    return options

"""Clusters of services outside the mesh: Envoy resolves their names, and may speak TLS with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.clusters.common.dns.v3.dns_pb2 import V4_PREFERRED
from envoy.extensions.clusters.dns.v3.dns_cluster_pb2 import DnsCluster
from envoy.extensions.transport_sockets.raw_buffer.v3.raw_buffer_pb2 import RawBuffer
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from generators.build.endpoints import write_locality
from generators.drafts import ClusterDraft
from generators.envoy import names
from generators.envoy.addresses import is_ip
from generators.envoy.edit import pack, set_address
from generators.envoy.tls import SOCKET as TLS
from generators.envoy.tls import client_context, client_secrets
from generators.proxy import Backend, Endpoint, Protocol, Tls

if TYPE_CHECKING:
    from envoy.config.core.v3.base_pb2 import TransportSocket
    from envoy.config.endpoint.v3.endpoint_components_pb2 import Endpoint as EndpointMessage
    from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

SOCKET_ADDRESS = "unix://"
"""The prefix of the address of a socket in the file system."""

_DNS = "envoy.clusters.dns"
_PLAIN = "envoy.transport_sockets.raw_buffer"
_MATCH = "envoy.transport_socket_match"
_SOCKET = "socket"
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
    sockets = tuple(dict.fromkeys(endpoint.tls for endpoint in backend.external))
    _write_endpoints(cluster.load_assignment, backend, sockets)
    draft = ClusterDraft(backend, cluster, _http_options(backend))
    for place, tls in enumerate(sockets):
        name = names.of_socket(cluster.name, place)
        if place:
            match = cluster.transport_socket_matches.add(name=name)
            match.match.fields[_SOCKET].string_value = str(place)
            _write_socket(match.transport_socket, tls, name)
        elif tls is not None:
            _write_socket(cluster.transport_socket, tls, name)
        draft.secrets.extend(() if tls is None else client_secrets(tls, name))
    return draft


def _write_socket(socket: TransportSocket, tls: Tls | None, name: str) -> None:
    socket.name = _PLAIN if tls is None else TLS
    socket.typed_config.CopyFrom(pack(RawBuffer() if tls is None else client_context(tls, name)))


def _is_fixed(endpoint: Endpoint) -> bool:
    """Whether the address is no name that has to be resolved."""
    return endpoint.address.startswith(SOCKET_ADDRESS) or is_ip(endpoint.address)


def _resolution() -> DnsCluster:
    """Every address of a name is an endpoint, for as long as the DNS records are valid."""
    dns = DnsCluster(respect_dns_ttl=True, dns_lookup_family=V4_PREFERRED)
    dns.dns_failure_refresh_rate.base_interval.seconds = _FIRST_RETRY_SECONDS
    dns.dns_failure_refresh_rate.max_interval.seconds = _LAST_RETRY_SECONDS
    return dns


def _write_endpoints(assignment: ClusterLoadAssignment, backend: Backend, sockets: Sequence[Tls | None]) -> None:
    """Write endpoints by locality. Envoy rejects gaps between priorities, so they are numbered anew.

    An endpoint that needs another socket than the first says so in its metadata.
    """
    localities = {endpoint.locality for endpoint in backend.external}
    ranks = {priority: rank for rank, priority in enumerate(sorted({locality.priority for locality in localities}))}
    for locality in sorted(localities, key=lambda locality: (locality.priority, locality.zone, locality.sub_zone)):
        group = assignment.endpoints.add(priority=ranks[locality.priority])
        write_locality(group, locality)
        for external in backend.external:
            if external.locality == locality:
                endpoint = group.lb_endpoints.add()
                _write_endpoint(endpoint.endpoint, external)
                if place := sockets.index(external.tls):
                    endpoint.metadata.filter_metadata[_MATCH].fields[_SOCKET].string_value = str(place)


def _write_endpoint(message: EndpointMessage, external: Endpoint) -> None:
    if external.address.startswith(SOCKET_ADDRESS):
        message.address.pipe.path = external.address.removeprefix(SOCKET_ADDRESS)
    else:
        set_address(message.address, external.address, external.port)
    if external.host:
        message.hostname = message.health_check_config.hostname = external.host


def _http_options(backend: Backend) -> HttpProtocolOptions | None:
    """The HTTP version: over TLS the server chooses (ALPN); without TLS it is that of the service's protocol.

    Envoy does not let servers choose unless it speaks TLS with each of them.
    """
    if not backend.protocol.is_http:
        return None
    options = HttpProtocolOptions()
    if backend.protocol is not Protocol.HTTP:
        options.explicit_http_config.http2_protocol_options.SetInParent()
    elif any(endpoint.tls is None for endpoint in backend.external):
        options.explicit_http_config.http_protocol_options.SetInParent()
    else:
        options.auto_config.http_protocol_options.SetInParent()
        options.auto_config.http2_protocol_options.SetInParent()
    return options

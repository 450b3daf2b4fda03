"""Clusters of the mesh: a backend, or the proxy's own workload. `generators.build.external` builds all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from generators.build.external import external_cluster
from generators.drafts import ClusterDraft
from generators.envoy import names
from generators.envoy.edit import over_ads, set_address
from generators.envoy.mesh_tls import client_socket
from generators.proxy import Inbound, Protocol

if TYPE_CHECKING:
    from generators.proxy import Backend


def backend_cluster(backend: Backend) -> ClusterDraft:
    """The cluster of a backend. Its endpoints come over EDS or, outside the mesh, from DNS."""
    if backend.external:
        return external_cluster(backend)
    cluster = Cluster(name=backend.cluster, type=Cluster.EDS)
    over_ads(cluster.eds_cluster_config.eds_config)
    if backend.mesh_tls is not None:
        cluster.transport_socket.CopyFrom(client_socket(backend.mesh_tls))
    return ClusterDraft(backend, cluster, _options_of_backend(backend))


def _options_of_backend(backend: Backend) -> HttpProtocolOptions | None:
    """The HTTP version towards a backend. Clients of a gateway choose theirs with the gateway, and not with a service.

    A browser speaks HTTP/2 wherever it may, so what it speaks says nothing of what the service understands.
    """
    options = http_options(backend.protocol)
    if options is not None and backend.is_of_gateway and backend.protocol is Protocol.HTTP:
        options.explicit_http_config.http_protocol_options.SetInParent()
    return options


def local_cluster(inbound: Inbound) -> ClusterDraft:
    """The cluster of the proxy's own workload."""
    name = local_cluster_name(inbound)
    cluster = Cluster(name=name, type=Cluster.STATIC, alt_stat_name=names.statistic(name))
    cluster.load_assignment.cluster_name = cluster.name
    endpoint = cluster.load_assignment.endpoints.add().lb_endpoints.add().endpoint
    set_address(endpoint.address, inbound.service_address, inbound.service_port)
    return ClusterDraft(inbound, cluster, http_options(inbound.protocol))


def local_cluster_name(inbound: Inbound) -> str:
    name = names.local_cluster(inbound.service_address, inbound.service_port)
    return names.local_cluster_of(name, inbound.address, inbound.port) if inbound.shares_workload else name


def http_options(protocol: Protocol) -> HttpProtocolOptions | None:
    """The HTTP version towards a service: HTTP/2 if its protocol says so, otherwise the version of the caller."""
    if not protocol.is_http:
        return None
    options = HttpProtocolOptions()
    if protocol is Protocol.HTTP:
        options.use_downstream_protocol_config.http2_protocol_options.SetInParent()
    else:
        options.explicit_http_config.http2_protocol_options.SetInParent()
    return options

"""Clusters: a backend of the mesh, something outside of it, or the workload beside the proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from generators.drafts import ClusterDraft
from generators.envoy import names
from generators.envoy.edit import over_ads, pack, set_address
from generators.proxy import Backend, Inbound, Protocol

if TYPE_CHECKING:
    from generators.proxy import Tls


def backend_cluster(backend: Backend) -> ClusterDraft:
    """A cluster whose endpoints are served beside it, or, outside the mesh, resolved by Envoy."""
    cluster = Cluster(name=backend.cluster)
    if backend.external:
        _external(cluster, backend)
    else:
        cluster.type = Cluster.EDS
        over_ads(cluster.eds_cluster_config.eds_config)
    if backend.tls is not None:
        _tls(cluster, backend.tls)
    return ClusterDraft(backend, cluster, http_options(backend.protocol))


def local_cluster(inbound: Inbound) -> ClusterDraft:
    """The workload itself."""
    name = names.local_cluster(inbound.service_address, inbound.service_port)
    cluster = Cluster(name=name, type=Cluster.STATIC, alt_stat_name=name.replace(":", "_").replace(".", "_"))
    cluster.load_assignment.cluster_name = cluster.name
    endpoint = cluster.load_assignment.endpoints.add().lb_endpoints.add().endpoint
    set_address(endpoint.address, inbound.service_address, inbound.service_port)
    return ClusterDraft(inbound, cluster, http_options(inbound.protocol))


def http_options(protocol: Protocol) -> HttpProtocolOptions | None:
    """Which version of HTTP is spoken upstream: what is certain is said, otherwise what the caller spoke."""
    if not protocol.is_http:
        return None
    options = HttpProtocolOptions()
    if protocol is Protocol.HTTP:
        options.use_downstream_protocol_config.http2_protocol_options.SetInParent()
    else:
        options.explicit_http_config.http2_protocol_options.SetInParent()
    return options


def _external(cluster: Cluster, backend: Backend) -> None:
    cluster.type = Cluster.STRICT_DNS
    cluster.load_assignment.cluster_name = cluster.name
    locality = cluster.load_assignment.endpoints.add()
    for external in backend.external:
        endpoint = locality.lb_endpoints.add().endpoint
        if external.address.startswith("unix://"):
            endpoint.address.pipe.path = external.address.removeprefix("unix://")
            cluster.type = Cluster.STATIC
        else:
            set_address(endpoint.address, external.address, external.port)


def _tls(cluster: Cluster, tls: Tls) -> None:
    context = UpstreamTlsContext(sni=tls.sni)
    common = context.common_tls_context
    common.alpn_protocols.extend(tls.alpn)
    if tls.identity_secret:
        secret = common.tls_certificate_sds_secret_configs.add(name=tls.identity_secret)
        over_ads(secret.sds_config)
    validation = common.validation_context
    if tls.trust_secret:
        combined = common.combined_validation_context
        combined.validation_context_sds_secret_config.name = tls.trust_secret
        over_ads(combined.validation_context_sds_secret_config.sds_config)
        validation = combined.default_validation_context
    elif tls.ca:
        validation.trusted_ca.inline_string = tls.ca
    for name in tls.subject_alt_names:
        matcher = validation.match_typed_subject_alt_names.add(san_type=3 if "://" in name else 2)  # URI, DNS
        matcher.matcher.exact = name
    cluster.transport_socket.name = "envoy.transport_sockets.tls"
    cluster.transport_socket.typed_config.CopyFrom(pack(context))

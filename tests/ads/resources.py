"""Envoy resources for tests: real ones, built from Envoy's own messages."""

from __future__ import annotations

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.address_pb2 import Address as AddressMessage
from envoy.config.core.v3.address_pb2 import SocketAddress
from envoy.config.core.v3.config_source_pb2 import AggregatedConfigSource, ApiVersion, ConfigSource
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext, UpstreamTlsContext
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, PackedResource
from tests.support.authority import Certified
from tests.support.loopback import Address


def _packed(type_url: str, name: str, message: Message) -> PackedResource:
    return PackedResource.of(type_url, name, message.SerializeToString(deterministic=True))


def cluster(
    name: str, connect_timeout: int = 1, *, broken: bool = False, ca: str = "", patience: int = 5
) -> PackedResource:
    """A cluster with its endpoints over ADS. A broken one has a field that Envoy's constraints refuse.

    With `ca`, it verifies its endpoints by the secret of this name, for which it waits `patience` seconds.
    """
    message = Cluster(name=name, type=Cluster.EDS, connect_timeout=Duration(seconds=0 if broken else connect_timeout))
    message.eds_cluster_config.eds_config.CopyFrom(_over_ads())
    if ca:
        tls = UpstreamTlsContext(sni=name)
        source = tls.common_tls_context.validation_context_sds_secret_config
        source.name = ca
        source.sds_config.CopyFrom(_over_ads(patience))
        message.transport_socket.name = "envoy.transport_sockets.tls"
        message.transport_socket.typed_config.CopyFrom(_any(tls))
    return _packed(CLUSTER, name, message)


def stuck_cluster(name: str) -> PackedResource:
    """One whose load balancer fails so late that Envoy answers neither way while it waits for endpoints of others."""
    message = Cluster(name=name, type=Cluster.EDS, lb_policy=Cluster.RING_HASH, connect_timeout=Duration(seconds=1))
    message.eds_cluster_config.eds_config.CopyFrom(_over_ads())
    message.ring_hash_lb_config.minimum_ring_size.value = 2048
    message.ring_hash_lb_config.maximum_ring_size.value = 1024
    return _packed(CLUSTER, name, message)


def endpoints(name: str, *addresses: Address) -> PackedResource:
    message = ClusterLoadAssignment(cluster_name=name)
    if addresses:
        locality = message.endpoints.add()
        for address in addresses:
            locality.lb_endpoints.add().endpoint.address.CopyFrom(_address(address))
    return _packed(ENDPOINTS, name, message)


def listener(name: str, address: Address, routes: str, *, secret: str = "", patience: int = 5) -> PackedResource:
    """A listener that has its routes over ADS, and its certificate if `secret` names one.

    It waits `patience` seconds for them.
    """
    manager = HttpConnectionManager(stat_prefix=name)
    manager.rds.route_config_name = routes
    manager.rds.config_source.CopyFrom(_over_ads(patience))
    manager.http_filters.add(name="envoy.filters.http.router").typed_config.CopyFrom(_any(Router()))
    message = Listener(name=name, address=_address(address))
    chain = message.filter_chains.add()
    chain.filters.add(name="envoy.filters.network.http_connection_manager").typed_config.CopyFrom(_any(manager))
    if secret:
        tls = DownstreamTlsContext()
        source = tls.common_tls_context.tls_certificate_sds_secret_configs.add(name=secret)
        source.sds_config.CopyFrom(_over_ads(patience))
        chain.transport_socket.name = "envoy.transport_sockets.tls"
        chain.transport_socket.typed_config.CopyFrom(_any(tls))
    return _packed(LISTENER, name, message)


def routes(name: str, to: str, prefix: str = "/", *, broken: bool = False) -> PackedResource:
    """A table with one route, to a cluster. A broken one claims a domain twice."""
    message = RouteConfiguration(name=name)
    for host in ("all", "again")[: 2 if broken else 1]:
        virtual = message.virtual_hosts.add(name=host, domains=["*"])
        virtual.routes.add(match={"prefix": prefix}, route={"cluster": to})
    return _packed(ROUTES, name, message)


def ca(name: str, certificate: bytes) -> PackedResource:
    """A secret with an authority's certificate."""
    message = Secret(name=name)
    message.validation_context.trusted_ca.inline_bytes = certificate
    return _packed(SECRET, name, message)


def certificate(name: str, certified: Certified) -> PackedResource:
    message = Secret(name=name)
    message.tls_certificate.certificate_chain.inline_bytes = certified.certificate
    message.tls_certificate.private_key.inline_bytes = certified.key
    return _packed(SECRET, name, message)


def wrong_regex(name: str) -> PackedResource:
    """A table that Envoy refuses without saying which it is."""
    message = RouteConfiguration(name=name)
    route = message.virtual_hosts.add(name="all", domains=["*"]).routes.add(route={"cluster": "backend"})
    route.match.safe_regex.regex = "["
    return _packed(ROUTES, name, message)


def _any(message: Message) -> Any:
    wrapped = Any()
    wrapped.Pack(message, deterministic=True)
    return wrapped


def _address(address: Address) -> AddressMessage:
    return AddressMessage(socket_address=SocketAddress(address=address.host, port_value=address.port))


def _over_ads(patience: int = 5) -> ConfigSource:
    return ConfigSource(
        ads=AggregatedConfigSource(),
        resource_api_version=ApiVersion.V3,
        initial_fetch_timeout=Duration(seconds=patience),
    )

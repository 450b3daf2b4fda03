"""An Envoy's bootstrap configuration: its identity, the control plane, and its admin interface.

Built from envoy-data-plane's typed messages and written as JSON: Envoy's YAML reader takes a bare `n` or `y` for a
truth value.

See record 0008.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from generators.envoy.addresses import is_ip

with warnings.catch_warnings():
    # Importing envoy_data_plane 2.2 raises it in its own classes; pydantic keeps the feature until version 3.
    warnings.filterwarnings("ignore", "Using `@model_validator`", DeprecationWarning)
    from envoy_data_plane.envoy.config.accesslog import v3 as accesslog
    from envoy_data_plane.envoy.config.bootstrap import v3 as envoy
    from envoy_data_plane.envoy.config.cluster import v3 as clusters
    from envoy_data_plane.envoy.config.core import v3 as core
    from envoy_data_plane.envoy.config.endpoint import v3 as endpoints
    from envoy_data_plane.envoy.config.overload import v3 as overload
    from envoy_data_plane.envoy.extensions.access_loggers.file import v3 as access_loggers
    from envoy_data_plane.envoy.extensions.filters.http.credential_injector import v3 as injection
    from envoy_data_plane.envoy.extensions.filters.http.upstream_codec import v3 as codec
    from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager import v3 as hcm
    from envoy_data_plane.envoy.extensions.http.injected_credentials.generic import v3 as generic
    from envoy_data_plane.envoy.extensions.resource_monitors.downstream_connections import v3 as connections
    from envoy_data_plane.envoy.extensions.transport_sockets.tls import v3 as tls
    from envoy_data_plane.envoy.extensions.upstreams.http import v3 as upstreams
    from envoy_data_plane.envoy.type.matcher import v3 as matcher
    from envoy_data_plane.google import protobuf


ADS_CLUSTER: Final = "ads_cluster"
ADMIN_CLUSTER: Final = "koguma:admin"
SYSTEM_CA: Final = "koguma:system-ca"
RUNTIME: Final = "koguma:limits"
TOKEN: Final = "koguma:dataplane-token"  # noqa: S105  # the name of a secret
USUAL_SYSTEM_CA: Final = "/etc/ssl/certs/ca-certificates.crt"
"""The file with trusted CA certificates on most machines. Envoy starts without it, too."""

_CONNECT_TIMEOUT: Final = timedelta(seconds=1)
_KEEPALIVE: Final = timedelta(seconds=30)
_KEEPALIVE_TIMEOUT: Final = timedelta(seconds=5)
_BACK_OFF: Final = timedelta(seconds=0.1)
_BACK_OFF_FROM_SEVERAL: Final = timedelta(seconds=0.5)
"""Envoy waits for a random part of it. All that lose one control plane come to the others within this time, and what
they have stays in force meanwhile."""

_LONGEST_BACK_OFF: Final = timedelta(seconds=5)
_WAIT_FOR_EVER: Final = timedelta(0)
_WAIT_FOR_LIMITS: Final = timedelta(seconds=15)
_HTTP_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_LARGEST: Final = 2**32 - 1
_MOST_CONNECTIONS: Final = 2**31 - 1
_SOCKET_MATCH: Final = "envoy.transport_socket_match"
_HOST: Final = "host"
_CONNECTIONS_MONITOR: Final = "envoy.resource_monitors.global_downstream_max_connections"
_OWNERS_ALONE: Final = 0o600
_LONGEST_SOCKET: Final = 107
"""Characters that the kernel allows in the path of a socket."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on: a host and a port, or a socket in the file system."""

    host: str = ""
    port: int = 0
    socket: str = ""

    def __post_init__(self) -> None:
        if len(self.socket.encode()) > _LONGEST_SOCKET:
            raise ValueError(f"the path of a socket has at most {_LONGEST_SOCKET} characters: {self.socket}")


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Where an Envoy finds the control plane, and how it knows that it is the right one."""

    address: ListenAddress
    over_tls: bool = False
    authority: str = ""
    """PEM of the authorities that it trusts for that; empty: those that its machine trusts."""

    fallbacks: tuple[ListenAddress, ...] = ()
    """Where it finds further ones, which serve the same: it goes to the next when one is gone."""

    @property
    def addresses(self) -> tuple[ListenAddress, ...]:
        return (self.address, *self.fallbacks)


@dataclass(frozen=True, slots=True)
class EnvoyIdentity:
    """The identity of an Envoy, as it tells the control plane."""

    mesh: str
    name: str
    service: str
    admin: ListenAddress
    zone: str = ""
    token: str = field(default="", repr=False)
    """The token of the proxy, to be shown as it is now; `token_file` keeps it out of the configuration."""

    token_file: str = ""
    """A file with a generic secret called `TOKEN`. Envoy reads it again when another file takes its place."""

    delta: bool = False
    system_ca: str = USUAL_SYSTEM_CA
    """The file on its machine with the trusted CA certificates."""

    has_limits: bool = False
    """Whether it asks the control plane how many connections its ports take, as builtin gateways do (record 0067)."""

    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.mesh}.{self.name}"


def bootstrap(proxy: EnvoyIdentity, control_plane: ControlPlane) -> dict[str, Any]:
    """The bootstrap configuration of an Envoy, as JSON data."""
    return envoy.Bootstrap(
        node=_node(proxy),
        admin=_admin(proxy.admin),
        dynamic_resources=_dynamic_resources(proxy, control_plane),
        static_resources=envoy.BootstrapStaticResources(
            clusters=[_ads_cluster(control_plane, proxy), _admin_cluster(proxy.admin)],
            secrets=[_system_ca(proxy.system_ca)],
        ),
        layered_runtime=_runtime(has_limits=proxy.has_limits),
        overload_manager=_overload_manager(),
    ).to_dict()


def _node(proxy: EnvoyIdentity) -> core.Node:
    return core.Node(
        id=proxy.id,
        cluster=proxy.service,
        locality=core.Locality(zone=proxy.zone) if proxy.zone else None,
        metadata=protobuf.Struct.from_dict(dict(proxy.metadata)) if proxy.metadata else None,
    )


def _admin(address: ListenAddress) -> envoy.Admin:
    nowhere = access_loggers.FileAccessLog(path="/dev/null")
    log = accesslog.AccessLog(name="envoy.access_loggers.file", typed_config=protobuf.Any.pack(nowhere))
    return envoy.Admin(address=_address(address, _OWNERS_ALONE), access_log=[log])


def _address(address: ListenAddress, mode: int = 0) -> core.Address:
    """The mode is that of a socket that Envoy makes."""
    if address.socket:
        return core.Address(pipe=core.Pipe(path=address.socket, mode=mode))
    return core.Address(socket_address=core.SocketAddress(address=address.host, port_value=address.port))


def _dynamic_resources(proxy: EnvoyIdentity, control_plane: ControlPlane) -> envoy.BootstrapDynamicResources:
    retry_policy = _retry_policy(_BACK_OFF_FROM_SEVERAL if _may_be_several(control_plane) else _BACK_OFF)
    service = core.GrpcService(
        envoy_grpc=core.GrpcServiceEnvoyGrpc(cluster_name=ADS_CLUSTER, retry_policy=retry_policy),
        initial_metadata=[core.HeaderValue(key="authorization", value=proxy.token)] if proxy.token else [],
    )
    ads = core.ApiConfigSource(
        api_type=core.ApiConfigSourceApiType.DELTA_GRPC if proxy.delta else core.ApiConfigSourceApiType.GRPC,
        transport_api_version=core.ApiVersion.V3,
        grpc_services=[service],
        set_node_on_first_message_only=True,  # a node lists 500 extensions; else every ACK would carry 61 KB
    )
    return envoy.BootstrapDynamicResources(ads_config=ads, cds_config=_over_ads(), lds_config=_over_ads())


def _may_be_several(control_plane: ControlPlane) -> bool:
    """Whether there may be others, to which all come that lose one: a name can have several addresses."""
    first = control_plane.address
    is_name = not first.socket and not is_ip(first.host) and first.host != "localhost"
    return is_name or bool(control_plane.fallbacks)


def _retry_policy(interval: timedelta) -> core.RetryPolicy:
    back_off = core.BackoffStrategy(base_interval=interval, max_interval=_LONGEST_BACK_OFF)
    return core.RetryPolicy(retry_back_off=back_off)


def _over_ads(timeout: timedelta = _WAIT_FOR_EVER) -> core.ConfigSource:
    """A proxy stays unready until its first configuration, however long the control plane is unreachable."""
    return core.ConfigSource(
        ads=core.AggregatedConfigSource(),
        resource_api_version=core.ApiVersion.V3,
        initial_fetch_timeout=timeout,
    )


def _ads_cluster(control_plane: ControlPlane, proxy: EnvoyIdentity) -> clusters.Cluster:
    """Envoy begins with any of the control planes, and takes the next when it connects again."""
    is_verified = control_plane.over_tls and bool(control_plane.fallbacks)
    hosts = [_ads_endpoint(address, is_matched=is_verified) for address in control_plane.addresses]
    locality = endpoints.LocalityLbEndpoints(lb_endpoints=hosts)
    first = control_plane.address.host
    return clusters.Cluster(
        name=ADS_CLUSTER,
        type=_discovery(control_plane.addresses),
        transport_socket=_tls(control_plane, first, proxy.system_ca) if control_plane.over_tls else None,
        transport_socket_matches=_matches(control_plane, proxy.system_ca) if is_verified else [],
        dns_lookup_family=clusters.ClusterDnsLookupFamily.V4_PREFERRED,
        connect_timeout=_CONNECT_TIMEOUT,
        typed_extension_protocol_options={_HTTP_OPTIONS: protobuf.Any.pack(_http2(proxy.token_file))},
        load_assignment=endpoints.ClusterLoadAssignment(cluster_name=ADS_CLUSTER, endpoints=[locality]),
    )


def _ads_endpoint(address: ListenAddress, *, is_matched: bool) -> endpoints.LbEndpoint:
    match = protobuf.Struct.from_dict({_HOST: address.host})
    return endpoints.LbEndpoint(
        endpoint=endpoints.Endpoint(address=_address(address)),
        metadata=core.Metadata(filter_metadata={_SOCKET_MATCH: match}) if is_matched else None,
    )


def _matches(control_plane: ControlPlane, system_ca: str) -> list[clusters.ClusterTransportSocketMatch]:
    """For each host its own name in the certificate: one control plane does not pass for another."""
    return [
        clusters.ClusterTransportSocketMatch(
            name=host,
            match=protobuf.Struct.from_dict({_HOST: host}),
            transport_socket=_tls(control_plane, host, system_ca),
        )
        for host in dict.fromkeys(address.host for address in control_plane.addresses)
    ]


def _admin_cluster(admin: ListenAddress) -> clusters.Cluster:
    """A cluster for the admin interface, for listeners that serve metrics."""
    host = endpoints.Endpoint(address=_address(admin))
    locality = endpoints.LocalityLbEndpoints(lb_endpoints=[endpoints.LbEndpoint(endpoint=host)])
    return clusters.Cluster(
        name=ADMIN_CLUSTER,
        type=clusters.ClusterDiscoveryType.STATIC,
        connect_timeout=_CONNECT_TIMEOUT,
        load_assignment=endpoints.ClusterLoadAssignment(cluster_name=ADMIN_CLUSTER, endpoints=[locality]),
    )


def _system_ca(file: str) -> tls.Secret:
    """A secret with the CA certificates that the machine trusts, for clusters outside the mesh."""
    trusted = tls.CertificateValidationContext(trusted_ca=core.DataSource(filename=file))
    return tls.Secret(name=SYSTEM_CA, validation_context=trusted)


def _discovery(addresses: Iterable[ListenAddress]) -> clusters.ClusterDiscoveryType:
    if all(address.socket or is_ip(address.host) for address in addresses):
        return clusters.ClusterDiscoveryType.STATIC
    return clusters.ClusterDiscoveryType.STRICT_DNS


def _tls(control_plane: ControlPlane, host: str, system_ca: str) -> core.TransportSocket:
    """TLS that takes a certificate for the host that is called, and no other."""
    kind = tls.SubjectAltNameMatcherSanType.IP_ADDRESS if is_ip(host) else tls.SubjectAltNameMatcherSanType.DNS
    name = tls.SubjectAltNameMatcher(san_type=kind, matcher=matcher.StringMatcher(exact=host))
    trusted = core.DataSource(inline_string=control_plane.authority) if control_plane.authority else None
    context = tls.CertificateValidationContext(
        trusted_ca=trusted or core.DataSource(filename=system_ca), match_typed_subject_alt_names=[name]
    )
    upstream = tls.UpstreamTlsContext(
        sni="" if is_ip(host) else host,  # which is a name, never an address (RFC 6066, section 3)
        common_tls_context=tls.CommonTlsContext(
            tls_params=tls.TlsParameters(tls_minimum_protocol_version=tls.TlsParametersTlsProtocol.TLSv1_2),
            alpn_protocols=["h2"],
            validation_context=context,
        ),
    )
    return core.TransportSocket(name="envoy.transport_sockets.tls", typed_config=protobuf.Any.pack(upstream))


def _http2(token_file: str) -> upstreams.HttpProtocolOptions:
    """HTTP/2 with pings: without them a proxy could not tell a control plane that hangs from one without changes."""
    keepalive = core.KeepaliveSettings(interval=_KEEPALIVE, timeout=_KEEPALIVE_TIMEOUT)
    http2 = core.Http2ProtocolOptions(connection_keepalive=keepalive)
    return upstreams.HttpProtocolOptions(
        explicit_http_config=upstreams.HttpProtocolOptionsExplicitHttpConfig(http2_protocol_options=http2),
        http_filters=[_token_filter(token_file), _codec_filter()] if token_file else [],
    )


def _token_filter(file: str) -> hcm.HttpFilter:
    """Each stream that is opened shows the token of its time. Without one it fails here, and is tried again."""
    source = core.ConfigSource(
        path_config_source=core.PathConfigSource(path=file), resource_api_version=core.ApiVersion.V3
    )
    credential = generic.Generic(credential=tls.SdsSecretConfig(name=TOKEN, sds_config=source), header="authorization")
    named = core.TypedExtensionConfig(
        name="envoy.http.injected_credentials.generic", typed_config=protobuf.Any.pack(credential)
    )
    injector = injection.CredentialInjector(overwrite=True, credential=named)
    return hcm.HttpFilter(name="envoy.filters.http.credential_injector", typed_config=protobuf.Any.pack(injector))


def _codec_filter() -> hcm.HttpFilter:
    """The last filter of every upstream chain."""
    return hcm.HttpFilter(
        name="envoy.filters.http.upstream_codec", typed_config=protobuf.Any.pack(codec.UpstreamCodec())
    )


def _overload_manager() -> overload.OverloadManager:
    """Without a limit of connections Envoy warns at every start. This limit is higher than any process can reach."""
    limit = connections.DownstreamConnectionsConfig(max_active_downstream_connections=_MOST_CONNECTIONS)
    monitor = overload.ResourceMonitor(name=_CONNECTIONS_MONITOR, typed_config=protobuf.Any.pack(limit))
    return overload.OverloadManager(resource_monitors=[monitor])


def _runtime(*, has_limits: bool) -> envoy.LayeredRuntime:
    """Without the first layer Envoy rejects a route whose regular expression compiles to over 100 instructions."""
    layer = protobuf.Struct.from_dict(
        {"re2.max_program_size.error_level": _LARGEST, "re2.max_program_size.warn_level": 1000}
    )
    layers = [envoy.RuntimeLayer(name="koguma", static_layer=layer)]
    if has_limits:
        served = envoy.RuntimeLayerRtdsLayer(name=RUNTIME, rtds_config=_over_ads(_WAIT_FOR_LIMITS))
        layers.append(envoy.RuntimeLayer(name=RUNTIME, rtds_layer=served))
    return envoy.LayeredRuntime(layers=layers)

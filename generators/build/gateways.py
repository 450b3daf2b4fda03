"""Builtin gateways: their listeners, chain by chain, and their route tables, host by host.

See record 0066. Clients come from anywhere, so what they can do to the gateway is limited as Envoy recommends for the
edge: https://www.envoyproxy.io/docs/envoy/latest/configuration/best_practices/edge
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import HeaderValueOption, TrafficDirection, TransportSocket
from envoy.config.core.v3.protocol_pb2 import HttpProtocolOptions
from envoy.config.listener.v3.listener_components_pb2 import ListenerFilter
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import RedirectAction
from envoy.config.route.v3.route_components_pb2 import Route as RouteMessage
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.listener.tls_inspector.v3.tls_inspector_pb2 import TlsInspector
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
    HttpFilter,
)
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext
from envoy.service.runtime.v3.rtds_pb2 import Runtime
from google.protobuf.message import Message

from generators.build.listeners import tcp_proxy
from generators.build.routes import row
from generators.drafts import ListenerDraft, RouteDraft
from generators.envoy import names
from generators.envoy.clients import TAGS_HEADER, tags_header_value
from generators.envoy.edit import add_header, literal, over_ads, pack, set_address
from generators.envoy.tls import write_material
from generators.proxy import (
    GatewayCertificate,
    GatewayChain,
    GatewayHost,
    GatewayLimits,
    GatewayPort,
    GatewayTable,
    Route,
    ServerTls,
)

_HANDSHAKE: Final = 10
"""Seconds. By itself Envoy waits for the end of a handshake as long as for a connection that is idle."""

_BUFFER_BYTES: Final = 32 * 1024
_STREAMS: Final = 100
_STREAM_WINDOW: Final = 64 * 1024
_CONNECTION_WINDOW: Final = 1024 * 1024
_MISDIRECTED: Final = "misdirected"
_USUAL_PORTS: Final = {"http": 80, "https": 443}
_HSTS: Final = ("strict-transport-security", "max-age=31536000; includeSubDomains")


def chain_listener(chain: GatewayChain) -> ListenerDraft:
    """A listener with this chain alone; the routes of its table are built apart."""
    draft = ListenerDraft(chain, Listener(name=chain.listener, traffic_direction=TrafficDirection.INBOUND))
    listener = draft.listener
    set_address(listener.address, chain.address, chain.port)
    listener.per_connection_buffer_limit_bytes.value = _BUFFER_BYTES
    filter_chain = listener.filter_chains.add(name=names.gateway_chain(chain.server_names))
    if chain.is_over_tls:
        listener.listener_filters.append(ListenerFilter(name=names.TLS_INSPECTOR, typed_config=pack(TlsInspector())))
        filter_chain.filter_chain_match.transport_protocol = "tls"
        filter_chain.filter_chain_match.server_names.extend(chain.server_names)
    if chain.tls is not None:
        filter_chain.transport_socket.CopyFrom(_socket(chain.tls))
        filter_chain.transport_socket_connect_timeout.seconds = _HANDSHAKE
    if chain.protocol.is_http:
        _manager(draft, chain)
    else:
        tcp_proxy(draft, chain.service, chain.routes[0].splits if chain.routes else ())
    return draft


def host_table(host: GatewayHost) -> ListenerDraft:
    """The route table with this host alone. The listener of the draft is not served."""
    draft = ListenerDraft(host, Listener(name=host.table), is_table=True)
    table = draft.table = RouteConfiguration(name=host.table, ignore_port_in_host_matching=True)
    table.virtual_hosts.add(name=host.hostname, domains=[host.hostname])
    if host.sidecar.tags:
        add_header(table.request_headers_to_add, TAGS_HEADER, literal(tags_header_value(host.sidecar.tags)))
    else:
        table.request_headers_to_remove.append(TAGS_HEADER)  # nobody outside the mesh says who calls
    if host.is_https:
        table.response_headers_to_add.append(_only_tls())
    draft.routes = [
        RouteDraft(route, _row(host, route), route.protocol or host.protocol, is_gateway=True) for route in host.routes
    ]
    return draft


def _only_tls() -> HeaderValueOption:
    """A browser comes over TLS from now on, unless the service says something else (RFC 6797)."""
    option = HeaderValueOption(append_action=HeaderValueOption.ADD_IF_ABSENT)
    option.header.key, option.header.value = _HSTS
    return option


def _row(host: GatewayHost, route: Route) -> RouteMessage:
    message = row(route)
    if message.HasField("redirect"):
        _set_port(message.redirect, host)
    return message


def _set_port(redirect: RedirectAction, host: GatewayHost) -> None:
    """Without a port of its own a redirect has that of its scheme or, without one, that of the listener.

    https://gateway-api.sigs.k8s.io/reference/spec/#httprequestredirectfilter
    """
    own_scheme = "https" if host.is_https else "http"
    scheme = redirect.scheme_redirect or own_scheme
    usual_port = _USUAL_PORTS.get(scheme)
    port = redirect.port_redirect or (redirect.scheme_redirect and usual_port) or host.port
    is_same = (scheme, port) == (own_scheme, host.port)
    redirect.port_redirect = port
    # The usual port is not written. Envoy writes it all the same where only the request knows the host.
    if port == usual_port and not redirect.host_redirect and "*" not in host.hostname:
        redirect.host_redirect = host.hostname
    if port == usual_port and (redirect.host_redirect or is_same):
        redirect.port_redirect = 0


def port_listener(port: GatewayPort) -> Iterator[Message]:
    """The listener of a port with all of its chains, and the clusters that they need."""
    parts = [Listener.FromString(chain) for chain in port.chains]
    listener = parts[0]
    for part in parts[1:]:
        listener.filter_chains.extend(part.filter_chains)
    if not listener.listener_filters:
        listener.listener_filters.extend(next((p.listener_filters for p in parts if p.listener_filters), ()))
    yield from map(Cluster.FromString, port.clusters)
    yield listener


def joined_table(table: GatewayTable) -> Iterator[Message]:
    """A route table with all of its hosts. Messages one after the other are a message with all that they repeat.

    https://protobuf.dev/programming-guides/encoding/#last-one-wins
    """
    joined = RouteConfiguration.FromString(table.hosts[0])
    for host in table.hosts[1:]:
        joined.virtual_hosts.extend(RouteConfiguration.FromString(host).virtual_hosts)
    if table.elsewhere:
        elsewhere = joined.virtual_hosts.add(name=_MISDIRECTED, domains=table.elsewhere)
        elsewhere.routes.append(row(Route(_MISDIRECTED, status=HTTPStatus.MISDIRECTED_REQUEST)))
    yield joined


def runtime_of_limits(limits: GatewayLimits) -> Iterator[Message]:
    """The limits, which Envoy knows by the names of listeners (record 0067)."""
    runtime = Runtime(name=names.RUNTIME)
    for listener, most in limits.connections:
        runtime.layer[f"envoy.resource_limits.listener.{listener}.connection_limit"] = most
    runtime.layer.SetInParent()
    yield runtime


def certificate_secret(certificate: GatewayCertificate) -> Iterator[Message]:
    secret = Secret(name=certificate.name)
    write_material(secret.tls_certificate.certificate_chain, certificate.certificate)
    write_material(secret.tls_certificate.private_key, certificate.key)
    yield secret


def _socket(tls: ServerTls) -> TransportSocket:
    context = DownstreamTlsContext()
    common = context.common_tls_context
    common.alpn_protocols.extend(tls.protocols)
    for name in tls.certificates:
        over_ads(common.tls_certificate_sds_secret_configs.add(name=name).sds_config)
    return TransportSocket(name=names.TLS_SOCKET, typed_config=pack(context))


def _manager(draft: ListenerDraft, chain: GatewayChain) -> None:
    manager = draft.manager = HttpConnectionManager(stat_prefix=names.statistic(chain.table))
    manager.rds.route_config_name = chain.table
    over_ads(manager.rds.config_source)
    manager.use_remote_address.value = True
    manager.normalize_path.value = True
    manager.merge_slashes = True
    manager.path_with_escaped_slashes_action = HttpConnectionManager.UNESCAPE_AND_REDIRECT
    manager.upgrade_configs.add(upgrade_type="websocket")
    manager.common_http_protocol_options.headers_with_underscores_action = HttpProtocolOptions.REJECT_REQUEST
    http2 = manager.http2_protocol_options
    http2.max_concurrent_streams.value = _STREAMS
    http2.initial_stream_window_size.value = _STREAM_WINDOW
    http2.initial_connection_window_size.value = _CONNECTION_WINDOW
    draft.http_filters.extend(map(HttpFilter.FromString, chain.filters))
    draft.routes = [
        RouteDraft(route, RouteMessage(name=route.name), draft.protocol, is_gateway=True) for route in chain.routes
    ]

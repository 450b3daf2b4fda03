"""Listeners for the outbounds and inbounds of a proxy.

See record 0019.
"""

from __future__ import annotations

from envoy.config.core.v3.base_pb2 import TrafficDirection
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.listener.tls_inspector.v3.tls_inspector_pb2 import TlsInspector
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from generators.build.clusters import local_cluster_name
from generators.build.routes import row
from generators.drafts import ListenerDraft, RouteDraft
from generators.envoy import names
from generators.envoy.clients import TAGS_HEADER, tags_header_value
from generators.envoy.edit import add_header, literal, over_ads, pack, set_address
from generators.envoy.mesh_tls import ALPN, HTTP2, server_socket
from generators.proxy import Inbound, MeshTls, Outbound, Route, Split


def outbound_listener(outbound: Outbound) -> ListenerDraft:
    """The listener at the local address of a destination."""
    name = names.outbound_listener(outbound.address, outbound.port)
    draft = ListenerDraft(outbound, Listener(name=name, traffic_direction=TrafficDirection.OUTBOUND))
    _set_address(draft.listener, outbound)
    if outbound.protocol.is_http:
        table = _http(draft, outbound.name, outbound.service, outbound.routes)
        if outbound.sidecar.tags:
            add_header(table.request_headers_to_add, TAGS_HEADER, literal(tags_header_value(outbound.sidecar.tags)))
    else:
        tcp_proxy(draft, outbound.service, outbound.routes[0].splits if outbound.routes else ())
    return draft


def inbound_listener(inbound: Inbound) -> ListenerDraft:
    """The listener at which callers reach the workload."""
    name = names.inbound_listener(inbound.address, inbound.port)
    draft = ListenerDraft(inbound, Listener(name=name, traffic_direction=TrafficDirection.INBOUND))
    _set_address(draft.listener, inbound)
    to_workload = _to_workload(inbound)
    if inbound.protocol.is_http:
        table = names.inbound_routes(inbound.address, inbound.port)
        _http(draft, table, inbound.service, (Route(name=table, splits=to_workload),))
    else:
        tcp_proxy(draft, inbound.service, to_workload)
    if inbound.tls is not None:
        _over_tls(draft, inbound.tls)
    return draft


def _set_address(listener: Listener, site: Inbound | Outbound) -> None:
    """Set the address of a listener, and whether it binds to it.

    Envoy gives a listener the sockets of its predecessor if both have the same socket options, even where the
    predecessor has no socket: the new one then does not listen, or Envoy crashes. So the options differ if the binding
    does.
    """
    set_address(listener.address, site.address, site.port)
    if not site.is_bound:
        listener.bind_to_port.value = False
        listener.freebind.value = True


def beside_tls(inbound: Inbound) -> ListenerDraft:
    """The listener for callers in plain text where there are callers with TLS too: it counts them on their own."""
    draft = inbound_listener(inbound)
    for terminal in (draft.manager, draft.tcp):
        if terminal is not None:
            terminal.stat_prefix = names.plain_text(inbound.service)
    return draft


def permissive(inbound: Inbound, over_tls: Listener, in_plain_text: Listener) -> Listener:
    """A listener for callers that speak TLS and for those that do not, each as its own listener would take them.

    A connection with TLS that is not the mesh's own is the workload's, to which it is passed on as it is. At an
    inbound for HTTP, HTTP/2 over TLS is the mesh's too: gRPC clients without a proxy name no other protocol, and a
    workload with TLS of its own could not have such an inbound without mTLS either.
    """
    listener = Listener()
    listener.CopyFrom(over_tls)
    of_mesh = listener.filter_chains[0]
    of_mesh.name = "mesh"
    of_mesh.filter_chain_match.transport_protocol = "tls"
    of_mesh.filter_chain_match.application_protocols.extend((ALPN, HTTP2) if inbound.protocol.is_http else (ALPN,))
    plain = listener.filter_chains.add()
    plain.CopyFrom(in_plain_text.filter_chains[0])
    plain.name = "plain"
    plain.filter_chain_match.transport_protocol = "raw_buffer"
    of_workload = listener.filter_chains.add(name="workload")
    of_workload.filter_chain_match.transport_protocol = "tls"
    draft = ListenerDraft(inbound, Listener())
    tcp_proxy(draft, inbound.service, _to_workload(inbound))
    of_workload.filters.extend(draft.terminal())
    return listener


def _to_workload(inbound: Inbound) -> tuple[Split, ...]:
    return (Split(local_cluster_name(inbound)),)


def _over_tls(draft: ListenerDraft, tls: MeshTls) -> None:
    """The socket with TLS. Only the inspector tells filters for which server name the caller asked."""
    draft.listener.listener_filters.add(name=names.TLS_INSPECTOR, typed_config=pack(TlsInspector()))
    draft.listener.filter_chains.add().transport_socket.CopyFrom(server_socket(tls))
    if draft.manager is not None:
        # Whatever the caller wrote into the header, the workload reads who the caller is.
        draft.manager.forward_client_cert_details = HttpConnectionManager.SANITIZE_SET
        draft.manager.set_current_client_cert_details.uri = True


def _http(draft: ListenerDraft, table: str, service: str, routes: tuple[Route, ...]) -> RouteConfiguration:
    manager = draft.manager = HttpConnectionManager(stat_prefix=names.statistic(service))
    manager.rds.route_config_name = table
    over_ads(manager.rds.config_source)
    manager.normalize_path.value = True
    manager.upgrade_configs.add(upgrade_type="websocket")
    draft.table = RouteConfiguration(name=table)
    draft.table.virtual_hosts.add(name=service, domains=["*"])
    draft.routes = [RouteDraft(route, row(route), draft.protocol, draft.is_inbound) for route in routes]
    return draft.table


def tcp_proxy(draft: ListenerDraft, service: str, splits: tuple[Split, ...]) -> None:
    """Pass connections on, to one cluster or by weight to several.

    TCP has no status to answer with, so connections for the share of a missing cluster are closed.
    """
    tcp = draft.tcp = TcpProxy(stat_prefix=names.statistic(service))
    shares = [(names.MISSING_CLUSTER if split.missing else split.cluster, split.weight) for split in splits]
    if len(shares) == 1:
        tcp.cluster = shares[0][0]
    elif shares:
        for cluster, weight in shares:
            tcp.weighted_clusters.clusters.add(name=cluster, weight=weight)
    else:
        tcp.cluster = names.MISSING_CLUSTER

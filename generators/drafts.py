"""Envoy's messages while they are being written, before they are serialised once and for all.

A builder makes a draft, policies write into it, and `pack` turns it into finished messages. What Envoy wraps into other
messages (the connection manager in a filter, protocol options in a cluster) stays open until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import Route as RouteMessage
from envoy.config.route.v3.route_components_pb2 import RouteAction
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
    HttpFilter,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from generators.envoy import names
from generators.envoy.edit import pack
from generators.proxy import Backend, Capture, Endpoints, Hosts, Inbound, Outbound, Protocol, Route, Sidecar, Tags

if TYPE_CHECKING:
    from google.protobuf.message import Message

Finished: TypeAlias = "tuple[str, Message]"
"""A finished resource: its name and its message."""


@dataclass(slots=True)
class ClusterDraft:
    """An upstream cluster: a backend's, or (for an inbound) the workload's own."""

    site: Backend | Inbound
    cluster: Cluster
    http: HttpProtocolOptions | None
    secrets: list[Secret] = field(default_factory=list)
    """Certificates and keys of its own, which it refers to by their names."""

    @property
    def is_local(self) -> bool:
        return isinstance(self.site, Inbound)

    @property
    def is_external(self) -> bool:
        """Whether its addresses are outside of the mesh; nobody arranges those by zone."""
        return isinstance(self.site, Backend) and bool(self.site.external)

    @property
    def protocol(self) -> Protocol:
        return self.site.protocol

    def finish(self) -> Iterator[Finished]:
        if self.http is not None:
            self.cluster.typed_extension_protocol_options[names.HTTP_OPTIONS].CopyFrom(pack(self.http))
        yield self.cluster.name, self.cluster
        yield from ((secret.name, secret) for secret in self.secrets)


@dataclass(slots=True)
class EndpointsDraft:
    """The endpoints of a backend."""

    site: Endpoints
    assignment: ClusterLoadAssignment

    def finish(self) -> Iterator[Finished]:
        yield self.assignment.cluster_name, self.assignment


@dataclass(slots=True)
class RouteDraft:
    """One row of a route table."""

    site: Route
    message: RouteMessage
    protocol: Protocol
    is_inbound: bool = False

    @property
    def action(self) -> RouteAction | None:
        """How requests are forwarded; None for a route that answers by itself (a redirect, a refusal)."""
        return self.message.route if self.message.HasField("route") else None


@dataclass(slots=True)
class ListenerDraft:
    """A listener with its one filter chain: HTTP with a route table, or TCP."""

    site: Outbound | Inbound
    listener: Listener
    manager: HttpConnectionManager | None = None
    tcp: TcpProxy | None = None
    table: RouteConfiguration | None = None
    routes: list[RouteDraft] = field(default_factory=list)
    http_filters: list[HttpFilter] = field(default_factory=list)
    """Those before the router, in order."""

    network_filters: list[Filter] = field(default_factory=list)
    """Those before the connection manager or the TCP proxy, in order."""

    clusters: list[Cluster] = field(default_factory=list)
    """Clusters that only this listener needs, such as that of a log collector."""

    @property
    def is_inbound(self) -> bool:
        return isinstance(self.site, Inbound)

    @property
    def over_tls(self) -> bool:
        """Whether clients prove who they are."""
        return isinstance(self.site, Inbound) and self.site.tls is not None

    @property
    def protocol(self) -> Protocol:
        return self.site.protocol

    def finish(self) -> Iterator[Finished]:
        for cluster in self.clusters:
            yield cluster.name, cluster
        chain = self.listener.filter_chains[0] if self.listener.filter_chains else self.listener.filter_chains.add()
        chain.filters.extend([*self.network_filters, *self._terminal()])
        yield self.listener.name, self.listener
        if self.table is not None:
            self.table.virtual_hosts[0].routes.extend(route.message for route in self.routes)
            yield self.table.name, self.table

    def _terminal(self) -> Iterator[Filter]:
        if self.manager is not None:
            router = HttpFilter(name=names.ROUTER, typed_config=pack(Router()))
            self.manager.http_filters.extend([*self.http_filters, router])
            yield Filter(name=names.CONNECTION_MANAGER, typed_config=pack(self.manager))
        elif self.tcp is not None:
            yield Filter(name=names.TCP_PROXY, typed_config=pack(self.tcp))


@dataclass(slots=True)
class SidecarDraft:
    """What a proxy has beside inbounds and outbounds, such as a listener for those that collect its metrics."""

    site: Sidecar
    resources: list[Message] = field(default_factory=list)
    """Clusters, listeners and route tables, whole ones."""

    problems: list[tuple[str, str]] = field(default_factory=list)
    """What could not be had: the path in a conf that asked for it, and why."""

    def finish(self) -> Iterator[Finished]:
        return map(finished, self.resources)


@dataclass(slots=True)
class Built:
    """All that one site came to, once every policy has written."""

    site: Backend | Endpoints | Outbound | Inbound | Sidecar | Capture | Hosts
    resources: list[Message]
    problems: list[tuple[str, str]] = field(default_factory=list)
    """What could not be done to it: the path in a conf that asked for it, and why."""

    used: list[str] = field(default_factory=list)
    """The paths in a conf that found something here which they are about."""

    @property
    def is_of_proxy(self) -> bool:
        """Whether it is what a proxy has beside its inbounds and outbounds."""
        return isinstance(self.site, Sidecar)

    @property
    def origin(self) -> str:
        if self.is_of_proxy:
            return ""
        if isinstance(self.site, Capture | Hosts):
            return "transparent"
        return "inbound" if isinstance(self.site, Inbound) else "outbound"

    @property
    def service(self) -> str:
        return "" if isinstance(self.site, Endpoints | Capture | Hosts) else self.site.service

    @property
    def tags(self) -> Tags:
        return self.site.tags if isinstance(self.site, Inbound) else ()

    def finish(self) -> Iterator[Finished]:
        return map(finished, self.resources)


def finished(message: Message) -> Finished:
    """A resource under its name; that of endpoints is the name of their cluster."""
    return str(getattr(message, "cluster_name" if isinstance(message, ClusterLoadAssignment) else "name")), message


Draft: TypeAlias = ClusterDraft | EndpointsDraft | ListenerDraft | SidecarDraft

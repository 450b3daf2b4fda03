"""Drafts: Envoy's messages while builders and policies write them.

A builder makes a draft, policies write into it, and `finish` yields the finished messages. Messages that Envoy wraps
into others (the connection manager in a filter, protocol options in a cluster) stay separate until then.
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
from generators.proxy import (
    Backend,
    Capture,
    Endpoints,
    GatewayCertificate,
    GatewayChain,
    GatewayHost,
    GatewayLimits,
    GatewayPort,
    GatewayTable,
    Hosts,
    Inbound,
    Outbound,
    Protocol,
    Route,
    Sidecar,
    Tags,
    Trust,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message

Site: TypeAlias = (
    Backend
    | Endpoints
    | Outbound
    | Inbound
    | Sidecar
    | Capture
    | Hosts
    | Trust
    | GatewayCertificate
    | GatewayChain
    | GatewayHost
    | GatewayLimits
    | GatewayPort
    | GatewayTable
)
"""What resources are built for."""

Finished: TypeAlias = "tuple[str, Message]"
"""A finished resource: its name and its message."""


@dataclass(slots=True)
class ClusterDraft:
    """An upstream cluster: a backend's, or (for an inbound) the workload's own."""

    site: Backend | Inbound
    cluster: Cluster
    http: HttpProtocolOptions | None
    secrets: list[Secret] = field(default_factory=list)
    """The certificates and keys to which the cluster refers by name."""

    @property
    def is_local(self) -> bool:
        return isinstance(self.site, Inbound)

    @property
    def is_external(self) -> bool:
        """Whether the addresses are outside the mesh; policies do not arrange those by zone."""
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
    is_gateway: bool = False

    @property
    def action(self) -> RouteAction | None:
        """How requests are forwarded; None for a route that answers them itself (a redirect, an unavailable route)."""
        return self.message.route if self.message.HasField("route") else None


@dataclass(slots=True)
class ListenerDraft:
    """A listener with a single filter chain: HTTP with a route table, or TCP."""

    site: Outbound | Inbound | GatewayChain | GatewayHost
    listener: Listener
    manager: HttpConnectionManager | None = None
    tcp: TcpProxy | None = None
    table: RouteConfiguration | None = None
    routes: list[RouteDraft] = field(default_factory=list)
    http_filters: list[HttpFilter] = field(default_factory=list)
    """The HTTP filters before the router, in order."""

    network_filters: list[Filter] = field(default_factory=list)
    """The network filters before the connection manager or the TCP proxy, in order."""

    http_observers: list[HttpFilter] = field(default_factory=list)
    """HTTP filters that only find something out, before all that may answer a request."""

    network_observers: list[Filter] = field(default_factory=list)
    """The same of network filters."""

    clusters: list[Cluster] = field(default_factory=list)
    """Clusters that only this listener needs, such as the cluster of a log collector."""

    is_table: bool = False
    """Whether it is there for its route table alone: the listener of a gateway is built apart from its hosts."""

    @property
    def is_inbound(self) -> bool:
        return isinstance(self.site, Inbound)

    @property
    def is_gateway(self) -> bool:
        """Whether clients from outside the mesh call here, and their calls go on into it."""
        return isinstance(self.site, GatewayChain | GatewayHost)

    @property
    def over_tls(self) -> bool:
        """Whether callers speak TLS, so that filters can match their certificate and server name."""
        return isinstance(self.site, Inbound) and self.site.tls is not None

    @property
    def protocol(self) -> Protocol:
        return self.site.protocol

    def finish(self) -> Iterator[Finished]:
        if not self.is_table:
            yield from self._finished_listener()
        if self.table is not None:
            self.table.virtual_hosts[0].routes.extend(route.message for route in self.routes)
            yield self.table.name, self.table

    def _finished_listener(self) -> Iterator[Finished]:
        for cluster in self.clusters:
            yield cluster.name, cluster
        chain = self.listener.filter_chains[0] if self.listener.filter_chains else self.listener.filter_chains.add()
        chain.filters.extend([*self.network_observers, *self.network_filters, *self.terminal()])
        yield self.listener.name, self.listener

    def terminal(self) -> Iterator[Filter]:
        """The filter that passes calls on: the connection manager, or the TCP proxy."""
        if self.manager is not None:
            router = HttpFilter(name=names.ROUTER, typed_config=pack(Router()))
            self.manager.http_filters.extend([*self.http_observers, *self.http_filters, router])
            yield Filter(name=names.CONNECTION_MANAGER, typed_config=pack(self.manager))
        elif self.tcp is not None:
            yield Filter(name=names.TCP_PROXY, typed_config=pack(self.tcp))


@dataclass(slots=True)
class SidecarDraft:
    """Resources of a proxy that belong to no inbound or outbound, such as a listener for its metrics."""

    site: Sidecar
    resources: list[Message] = field(default_factory=list)
    """Finished clusters, listeners and route tables."""

    problems: list[tuple[str, str]] = field(default_factory=list)
    """Fields of confs that could not be applied: the path, and why."""

    def finish(self) -> Iterator[Finished]:
        return map(finished, self.resources)


@dataclass(slots=True)
class Built:
    """The finished resources of one input of a build, once every policy has written into its drafts."""

    site: Site
    resources: list[Message]
    problems: list[tuple[str, str]] = field(default_factory=list)
    """Fields of confs that could not be applied: the path, and why."""

    used: list[str] = field(default_factory=list)
    """The paths of conf fields that applied to a resource here."""

    @property
    def is_of_proxy(self) -> bool:
        """Whether the resources belong to the proxy, and to no inbound or outbound."""
        return isinstance(self.site, Sidecar)

    @property
    def origin(self) -> str:
        if self.is_of_proxy:
            return ""
        if isinstance(self.site, Capture | Hosts):
            return "transparent"
        if isinstance(self.site, Trust):
            return "mtls"
        if isinstance(self.site, GatewayChain | GatewayHost | GatewayPort | GatewayTable | GatewayCertificate):
            return "gateway"
        if isinstance(self.site, Backend) and self.site.is_of_gateway:
            return "gateway"
        return "inbound" if isinstance(self.site, Inbound) else "outbound"

    @property
    def service(self) -> str:
        return getattr(self.site, "service", "")

    def tags(self, chain: str | None = None) -> tuple[Tags, ...]:
        """The tags of what its listener, or one chain of it, is for: at a gateway that can be many listeners."""
        if isinstance(self.site, GatewayPort):
            return tuple(
                listener_tags for name, tags in self.site.tags if chain in {None, name} for listener_tags in tags
            )
        return (self.site.tags if isinstance(self.site, Inbound) else (),)

    def finish(self) -> Iterator[Finished]:
        return map(finished, self.resources)


def finished(message: Message) -> Finished:
    """A resource with its name; endpoints have the name of their cluster."""
    return str(getattr(message, "cluster_name" if isinstance(message, ClusterLoadAssignment) else "name")), message


Draft: TypeAlias = ClusterDraft | EndpointsDraft | ListenerDraft | SidecarDraft

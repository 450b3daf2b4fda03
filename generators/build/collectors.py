"""Collectors of logs and spans, and the clusters over which a proxy sends to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from generators.envoy import names
from generators.envoy.addresses import is_ip
from generators.envoy.edit import pack, set_address

if TYPE_CHECKING:
    from envoy.config.core.v3.grpc_service_pb2 import GrpcService

    from generators.drafts import ListenerDraft

_OTLP_PORT: Final = 4317
"""The default port of OpenTelemetry collectors."""

_HTTP: Final = "http://"
_LAST_PORT: Final = 65535
_CONNECT_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class Collector:
    """The address of a collector."""

    host: str
    port: int

    @classmethod
    def parse(cls, address: str, port: int) -> Collector | None:
        """Parse `host:port` or `host`; None if the port is invalid."""
        host, _, written = address.rpartition(":")
        if not host or not written.isascii() or not written.isdigit():
            host, written = address, str(port)
        number = int(written) if len(written) <= len(str(_LAST_PORT)) else 0
        return cls(host.strip("[]"), number) if host and 0 < number <= _LAST_PORT else None

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Otlp:
    """An OpenTelemetry collector: over gRPC, or over HTTP below a path."""

    collector: Collector
    is_http: bool = False
    path: str = ""

    @classmethod
    def parse(cls, endpoint: str) -> Otlp | None:
        """Parse `host:port` or `host` for gRPC, `http://host:port/path` for HTTP; None if the port is invalid."""
        address, slash, path = endpoint.removeprefix(_HTTP).partition("/")
        collector = Collector.parse(address, _OTLP_PORT)
        if collector is None:
            return None
        return cls(collector, endpoint.startswith(_HTTP), f"{slash}{path}".rstrip("/"))


def cluster_of(collector: Collector, draft: ListenerDraft, *, grpc: bool, tls: bool = False) -> str:
    """Add the cluster of a collector to a draft unless it has it, and return its name. Inbound and outbound differ."""
    side, protocol = "inbound" if draft.is_inbound else "outbound", "grpc" if grpc else "http"
    name = f"collector:{side}:{protocol}{'s' if tls else ''}:{collector.authority}"
    if all(cluster.name != name for cluster in draft.clusters):
        cluster = _cluster(name, collector, grpc=grpc)
        if tls:
            cluster.transport_socket.name = "envoy.transport_sockets.tls"
            cluster.transport_socket.typed_config.CopyFrom(pack(UpstreamTlsContext(sni=collector.host)))
        draft.clusters.append(cluster)
    return name


def write_grpc(service: GrpcService, collector: Collector, draft: ListenerDraft) -> None:
    service.envoy_grpc.cluster_name = cluster_of(collector, draft, grpc=True)


def _cluster(name: str, collector: Collector, *, grpc: bool) -> Cluster:
    kind = Cluster.STATIC if is_ip(collector.host) else Cluster.STRICT_DNS
    cluster = Cluster(name=name, type=kind, alt_stat_name=names.statistic(name))
    cluster.connect_timeout.seconds = _CONNECT_SECONDS
    cluster.load_assignment.cluster_name = name
    endpoint = cluster.load_assignment.endpoints.add().lb_endpoints.add().endpoint
    set_address(endpoint.address, collector.host, collector.port)
    if grpc:
        options = HttpProtocolOptions()
        options.explicit_http_config.http2_protocol_options.SetInParent()
        cluster.typed_extension_protocol_options[names.HTTP_OPTIONS].CopyFrom(pack(options))
    return cluster

"""The timeouts and retries that Envoy is served, decoded from the bytes and named by the fields of policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import Route
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from cp.model.duration import Duration
from cp.translate.packing import CLUSTER, LISTENER, ROUTES
from cp.translate.snapshot import Snapshot
from tests.oracle.clients import takes
from tests.oracle.door import Client

Fields = dict[tuple[str, str], Any]

HTTP_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
CONDITIONS: Final = {
    "gateway-error": "GatewayError",
    "reset": "Reset",
    "connect-failure": "ConnectFailure",
    "refused-stream": "RefusedStream",
    "retriable-4xx": "Retriable4xx",
    "cancelled": "Canceled",
    "deadline-exceeded": "DeadlineExceeded",
    "internal": "Internal",
    "resource-exhausted": "ResourceExhausted",
    "unavailable": "Unavailable",
}


class DecodedSnapshot:
    """A snapshot, decoded."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def listener(self, address: str, port: int) -> HttpConnectionManager | TcpProxy:
        for packed in self._snapshot.of(LISTENER):
            listener = Listener.FromString(packed.body)
            at = listener.address.socket_address
            if (at.address, at.port_value) == (address, port):
                return terminal_filter_of(listener.filter_chains[0])
        raise KeyError(port)

    def table(self, manager: HttpConnectionManager) -> RouteConfiguration:
        packed = self._snapshot.get(ROUTES, manager.rds.route_config_name)
        assert packed is not None
        return RouteConfiguration.FromString(packed.body)

    def row(self, manager: HttpConnectionManager, index: int) -> Route:
        (host,) = self.table(manager).virtual_hosts
        return host.routes[index]

    def row_for(self, manager: HttpConnectionManager, client: Client | None) -> Route:
        """The first row of an inbound that takes a client's requests."""
        (host,) = self.table(manager).virtual_hosts
        return next(row for row in host.routes if takes(row, client))

    def shown_to(self, cluster: str) -> str | None:
        """The server name that is asked for there over TLS; None in plain text."""
        packed = self._snapshot.get(CLUSTER, cluster)
        assert packed is not None
        context = UpstreamTlsContext()
        return context.sni if Cluster.FromString(packed.body).transport_socket.typed_config.Unpack(context) else None

    def cluster(self, name: str) -> Fields:
        """The timeouts of a cluster."""
        packed = self._snapshot.get(CLUSTER, name)
        assert packed is not None
        return dict(_cluster_fields(Cluster.FromString(packed.body)))


def manager_fields(manager: HttpConnectionManager) -> Fields:
    return dict(_timeout_field("http.requestHeadersTimeout", manager, "request_headers_timeout"))


def tcp_fields(proxy: TcpProxy) -> Fields:
    fields: Fields = dict(_timeout_field("idleTimeout", proxy, "idle_timeout"))
    if proxy.HasField("max_connect_attempts"):
        fields["MeshRetry", "tcp.maxConnectAttempt"] = proxy.max_connect_attempts.value
    return fields


def row_fields(row: Route, section: str) -> Fields:
    """The timeouts and retries of a row that forwards requests; any other row has none."""
    if not row.HasField("route"):
        return {}
    fields: Fields = dict(_timeout_field("http.requestTimeout", row.route, "timeout"))
    fields |= _timeout_field("http.streamIdleTimeout", row.route, "idle_timeout")
    if row.route.HasField("retry_policy"):
        fields |= {("MeshRetry", f"{section}.{name}"): value for name, value in _retry_fields(row.route.retry_policy)}
    return fields


def client_fields(last_filter: HttpConnectionManager | TcpProxy) -> Fields:
    """What holds for the clients of a gateway."""
    if isinstance(last_filter, TcpProxy):
        return _timeout_field("idleTimeout", last_filter, "idle_timeout")
    common = last_filter.common_http_protocol_options
    fields = manager_fields(last_filter) | _timeout_field("idleTimeout", common, "idle_timeout")
    fields |= _timeout_field("http.requestTimeout", last_filter, "request_timeout")
    fields |= _timeout_field("http.streamIdleTimeout", last_filter, "stream_idle_timeout")
    fields |= _timeout_field("http.maxStreamDuration", common, "max_stream_duration")
    return fields | _timeout_field("http.maxConnectionDuration", common, "max_connection_duration")


def terminal_filter_of(chain: FilterChain) -> HttpConnectionManager | TcpProxy:
    any_message = chain.filters[-1].typed_config
    message: HttpConnectionManager | TcpProxy = HttpConnectionManager()
    if not any_message.Is(message.DESCRIPTOR):
        message = TcpProxy()
    any_message.Unpack(message)
    return message


def _cluster_fields(cluster: Cluster) -> Iterator[tuple[tuple[str, str], str]]:
    yield from _timeout_field("connectionTimeout", cluster, "connect_timeout").items()
    if HTTP_OPTIONS in cluster.typed_extension_protocol_options:
        options = HttpProtocolOptions.FromString(cluster.typed_extension_protocol_options[HTTP_OPTIONS].value)
        common = options.common_http_protocol_options
        yield from _timeout_field("idleTimeout", common, "idle_timeout").items()
        yield from _timeout_field("http.maxStreamDuration", common, "max_stream_duration").items()
        yield from _timeout_field("http.maxConnectionDuration", common, "max_connection_duration").items()


def _timeout_field(path: str, message: Any, field: str) -> dict[tuple[str, str], str]:
    return {("MeshTimeout", path): duration_text(getattr(message, field))} if message.HasField(field) else {}


def duration_text(message: Any) -> str:
    return str(Duration(message.seconds * 1_000_000_000 + message.nanos))


def _retry_fields(policy: Any) -> Iterator[tuple[str, Any]]:
    """Every field of Envoy's retry policy, by the name of MeshRetry's field."""
    yield from (("numRetries", policy.num_retries.value) for _ in "1" if policy.HasField("num_retries"))
    yield from (
        ("perTryTimeout", duration_text(policy.per_try_timeout)) for _ in "1" if policy.HasField("per_try_timeout")
    )
    conditions = sorted(_conditions(policy))
    yield from (("retryOn", conditions) for _ in "1" if conditions)
    back_off = policy.retry_back_off
    for name, field in (("baseInterval", "base_interval"), ("maxInterval", "max_interval")):
        if back_off.HasField(field):
            yield f"backOff.{name}", duration_text(getattr(back_off, field))
    reset_headers = [
        {"name": entry.name, "format": ("Seconds", "UnixTimestamp")[entry.format]} for entry in _reset(policy)
    ]
    yield from (("rateLimitedBackOff.resetHeaders", reset_headers) for _ in "1" if reset_headers)
    for name, headers in (
        ("retriableRequestHeaders", [entry for entry in policy.retriable_request_headers if entry.name != ":method"]),
        ("retriableResponseHeaders", policy.retriable_headers),
    ):
        header_data = [{"name": entry.name, "type": "Exact", "value": entry.string_match.exact} for entry in headers]
        yield from ((name, header_data) for _ in "1" if header_data)
    predicates = [entry.name.rpartition(".")[2] for entry in policy.retry_host_predicate]
    yield from (("hostSelection", predicates) for _ in "1" if predicates)
    if policy.host_selection_retry_max_attempts:
        yield "hostSelectionMaxAttempts", policy.host_selection_retry_max_attempts


def _reset(policy: Any) -> Any:
    return policy.rate_limited_retry_back_off.reset_headers


def _conditions(policy: Any) -> Iterator[str]:
    for condition in policy.retry_on.split(","):
        if condition not in {"retriable-status-codes", "retriable-headers"}:
            yield CONDITIONS.get(condition, condition)
    yield from map(str, policy.retriable_status_codes)
    for header in policy.retriable_request_headers:
        if header.name == ":method":
            yield f"HttpMethod{header.string_match.exact.capitalize()}"

"""What stands in the configuration that Envoy is served, in the words of the policies: read from the bytes alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import Route
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from cp.model.duration import Duration
from cp.translate.packing import CLUSTER, LISTENER, ROUTES
from cp.translate.snapshot import Snapshot

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


class Sent:
    """A snapshot, decoded."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def listener(self, address: str, port: int) -> HttpConnectionManager | TcpProxy:
        for packed in self._snapshot.of(LISTENER):
            listener = Listener.FromString(packed.body)
            at = listener.address.socket_address
            if (at.address, at.port_value) == (address, port):
                return _terminal(listener)
        raise KeyError(port)

    def table(self, manager: HttpConnectionManager) -> RouteConfiguration:
        packed = self._snapshot.get(ROUTES, manager.rds.route_config_name)
        assert packed is not None
        return RouteConfiguration.FromString(packed.body)

    def row(self, manager: HttpConnectionManager, index: int) -> Route:
        (host,) = self.table(manager).virtual_hosts
        return host.routes[index]

    def cluster(self, name: str) -> Fields:
        """Timeouts of a cluster."""
        packed = self._snapshot.get(CLUSTER, name)
        assert packed is not None
        return dict(_of_cluster(Cluster.FromString(packed.body)))


def of_manager(manager: HttpConnectionManager) -> Fields:
    return dict(_timeout("http.requestHeadersTimeout", manager, "request_headers_timeout"))


def of_proxy(proxy: TcpProxy) -> Fields:
    found: Fields = dict(_timeout("idleTimeout", proxy, "idle_timeout"))
    if proxy.HasField("max_connect_attempts"):
        found["MeshRetry", "tcp.maxConnectAttempt"] = proxy.max_connect_attempts.value
    return found


def of_row(row: Route, section: str) -> Fields:
    """Timeouts and retries of a row that forwards; one that answers by itself has none."""
    if not row.HasField("route"):
        return {}
    found: Fields = dict(_timeout("http.requestTimeout", row.route, "timeout"))
    found |= _timeout("http.streamIdleTimeout", row.route, "idle_timeout")
    if row.route.HasField("retry_policy"):
        found |= {("MeshRetry", f"{section}.{name}"): value for name, value in _retry(row.route.retry_policy)}
    return found


def _terminal(listener: Listener) -> HttpConnectionManager | TcpProxy:
    last = listener.filter_chains[0].filters[-1].typed_config
    found: HttpConnectionManager | TcpProxy = HttpConnectionManager()
    if not last.Is(found.DESCRIPTOR):
        found = TcpProxy()
    last.Unpack(found)
    return found


def _of_cluster(cluster: Cluster) -> Iterator[tuple[tuple[str, str], str]]:
    yield from _timeout("connectionTimeout", cluster, "connect_timeout").items()
    if HTTP_OPTIONS in cluster.typed_extension_protocol_options:
        options = HttpProtocolOptions.FromString(cluster.typed_extension_protocol_options[HTTP_OPTIONS].value)
        common = options.common_http_protocol_options
        yield from _timeout("idleTimeout", common, "idle_timeout").items()
        yield from _timeout("http.maxStreamDuration", common, "max_stream_duration").items()
        yield from _timeout("http.maxConnectionDuration", common, "max_connection_duration").items()


def _timeout(path: str, message: Any, field: str) -> dict[tuple[str, str], str]:
    return {("MeshTimeout", path): duration(getattr(message, field))} if message.HasField(field) else {}


def duration(message: Any) -> str:
    return str(Duration(message.seconds * 1_000_000_000 + message.nanos))


def _retry(policy: Any) -> Iterator[tuple[str, Any]]:
    """Every field that a retry policy of Envoy's has, in the words of MeshRetry."""
    yield from (("numRetries", policy.num_retries.value) for _ in "1" if policy.HasField("num_retries"))
    yield from (("perTryTimeout", duration(policy.per_try_timeout)) for _ in "1" if policy.HasField("per_try_timeout"))
    conditions = sorted(_conditions(policy))
    yield from (("retryOn", conditions) for _ in "1" if conditions)
    back_off = policy.retry_back_off
    for name, field in (("baseInterval", "base_interval"), ("maxInterval", "max_interval")):
        if back_off.HasField(field):
            yield f"backOff.{name}", duration(getattr(back_off, field))
    limited = [{"name": one.name, "format": ("Seconds", "UnixTimestamp")[one.format]} for one in _reset(policy)]
    yield from (("rateLimitedBackOff.resetHeaders", limited) for _ in "1" if limited)
    for name, headers in (
        ("retriableRequestHeaders", [one for one in policy.retriable_request_headers if one.name != ":method"]),
        ("retriableResponseHeaders", policy.retriable_headers),
    ):
        found = [{"name": one.name, "type": "Exact", "value": one.string_match.exact} for one in headers]
        yield from ((name, found) for _ in "1" if found)
    predicates = [one.name.rpartition(".")[2] for one in policy.retry_host_predicate]
    yield from (("hostSelection", predicates) for _ in "1" if predicates)
    if policy.host_selection_retry_max_attempts:
        yield "hostSelectionMaxAttempts", policy.host_selection_retry_max_attempts


def _reset(policy: Any) -> Any:
    return policy.rate_limited_retry_back_off.reset_headers


def _conditions(policy: Any) -> Iterator[str]:
    for one in policy.retry_on.split(","):
        if one not in {"retriable-status-codes", "retriable-headers"}:
            yield CONDITIONS.get(one, one)
    yield from map(str, policy.retriable_status_codes)
    for header in policy.retriable_request_headers:
        if header.name == ":method":
            yield f"HttpMethod{header.string_match.exact.capitalize()}"

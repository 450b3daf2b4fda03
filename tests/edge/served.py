"""The timeouts and retries that a gateway is served for a request, read from the bytes and named as in policies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import RetryPolicy, Route
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from google.protobuf.message import Message

from cp.insight.simulate import Outcome
from cp.translate.packing import CLUSTER, LISTENER, ROUTES
from cp.translate.snapshot import Snapshot
from tests.edge.holding import Fields
from tests.edge.listeners import fits, narrowness
from tests.edge.oracle import Request
from tests.oracle.envoy import conditions, duration

_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_SUBSET: Final = re.compile(r"^(?!kri_)(.*)-[0-9a-f]{16}$")
_COMMON: Final = {
    "idleTimeout": "idle_timeout",
    "http.maxStreamDuration": "max_stream_duration",
    "http.maxConnectionDuration": "max_connection_duration",
}
_OF_CLIENTS: Final = {
    "http.requestTimeout": "request_timeout",
    "http.streamIdleTimeout": "stream_idle_timeout",
    "http.requestHeadersTimeout": "request_headers_timeout",
}
_MessageT = TypeVar("_MessageT", bound=Message)


def served(snapshot: Snapshot, request: Request, outcome: Outcome) -> Fields:
    """What holds for a request or a connection that is known to be forwarded."""
    assert outcome.forward is not None
    clusters = [share.cluster for share in outcome.forward.shares if share.weight and not share.is_missing]
    last = _last_filter(snapshot, request)
    fields = _of_proxy(last) if isinstance(last, TcpProxy) else _of_row(snapshot, last, outcome)
    return {**fields, **{_name(name): _of_cluster(_packed(snapshot, CLUSTER, name, Cluster())) for name in clusters}}


def _of_row(snapshot: Snapshot, manager: HttpConnectionManager, outcome: Outcome) -> Fields:
    assert outcome.row is not None
    hosts = {host.name: host for host in _packed(snapshot, ROUTES, outcome.table, RouteConfiguration()).virtual_hosts}
    row = hosts[outcome.virtual_host].routes[outcome.row.index]
    return {
        "row": _durations(row.route, {"http.requestTimeout": "timeout", "http.streamIdleTimeout": "idle_timeout"}),
        "retry": dict(_retries(row)),
        "clients": _durations(manager, _OF_CLIENTS) | _durations(manager.common_http_protocol_options, _COMMON),
    }


def _of_proxy(proxy: TcpProxy) -> Fields:
    attempts = proxy.max_connect_attempts.value if proxy.HasField("max_connect_attempts") else None
    return {
        "retry": {} if attempts is None else {"tcp.maxConnectAttempt": attempts},
        "clients": _durations(proxy, {"idleTimeout": "idle_timeout"}),
    }


def _packed(snapshot: Snapshot, type_url: str, name: str, message: _MessageT) -> _MessageT:
    packed = snapshot.get(type_url, name)
    assert packed is not None, name
    message.ParseFromString(packed.body)
    return message


def _last_filter(snapshot: Snapshot, request: Request) -> HttpConnectionManager | TcpProxy:
    """The filter that ends the chain for the server name."""
    (listener,) = (
        listener
        for listener in (Listener.FromString(packed.body) for packed in snapshot.of(LISTENER))
        if listener.address.socket_address.port_value == request.port
    )
    last, manager, proxy = _chain(listener, request.server_name or "").filters[-1], HttpConnectionManager(), TcpProxy()
    if last.typed_config.Unpack(manager):
        return manager
    assert last.typed_config.Unpack(proxy), last
    return proxy


def _chain(listener: Listener, name: str) -> FilterChain:
    chains = {pattern: chain for chain in listener.filter_chains for pattern in _patterns(chain)}
    return chains[max((pattern for pattern in chains if fits(pattern, name.lower())), key=narrowness)]


def _patterns(chain: FilterChain) -> list[str]:
    return list(chain.filter_chain_match.server_names) or ["*"]


def _name(cluster: str) -> str:
    """Without the mark of a listener that has clusters of its own, and without the hash of a subset."""
    plain = cluster.partition("@")[0]
    subset = _SUBSET.match(plain)
    return f"{subset[1]}-" if subset else plain


def _durations(message: Message, fields: dict[str, str]) -> dict[str, Any]:
    durations = {path: duration(message, field) for path, field in fields.items()}
    return {path: written for path, written in durations.items() if written is not None}


def _of_cluster(cluster: Cluster) -> dict[str, Any]:
    options = HttpProtocolOptions()
    if _OPTIONS in cluster.typed_extension_protocol_options:
        assert cluster.typed_extension_protocol_options[_OPTIONS].Unpack(options)
    common = _durations(options.common_http_protocol_options, _COMMON)
    return {**_durations(cluster, {"connectionTimeout": "connect_timeout"}), **common}


def _retries(row: Route) -> Iterator[tuple[str, Any]]:
    if not row.route.HasField("retry_policy"):
        return
    policy = row.route.retry_policy
    if policy.HasField("num_retries"):
        yield "numRetries", policy.num_retries.value
    yield from _durations(policy, {"perTryTimeout": "per_try_timeout"}).items()
    back_off = {"baseInterval": "base_interval", "maxInterval": "max_interval"}
    yield from _durations(policy.retry_back_off, back_off).items()
    yield "retryOn", set(conditions(policy))
    for path, values in _lists(policy).items():
        if values:
            yield path, values
    if policy.host_selection_retry_max_attempts:
        yield "hostSelectionMaxAttempts", policy.host_selection_retry_max_attempts


def _lists(policy: RetryPolicy) -> dict[str, list[Any]]:
    requests = [header for header in policy.retriable_request_headers if header.name != ":method"]
    predicates = [predicate.name.rpartition(".")[2] for predicate in policy.retry_host_predicate]
    return {
        "retriableRequestHeaders": [_header(header) for header in requests],
        "retriableResponseHeaders": [_header(header) for header in policy.retriable_headers],
        "hostSelection": [{"predicate": _PREDICATES[name]} for name in predicates],
        "resetHeaders": [header.name for header in policy.rate_limited_retry_back_off.reset_headers],
    }


_PREDICATES: Final = {"previous_hosts": "OmitPreviousHosts"}


def _header(header: Any) -> dict[str, str]:
    return {"name": header.name, "type": "Exact", "value": header.string_match.exact}

"""The answer that a proxy is served, read from the bytes alone: listener, route table, row, clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import RetryPolicy, Route, RouteMatch
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from cp.translate.packing import CLUSTER, LISTENER, ROUTES
from cp.translate.snapshot import Snapshot
from tests.oracle.destinations import MISSING
from tests.oracle.request import NOTHING_LISTENS, Answer
from tests.oracle.routes import Call

_STATUSES: Final = {"MOVED_PERMANENTLY": 301, "FOUND": 302, "SEE_OTHER": 303}
_OF_FIELDS: Final = {"retriable-status-codes", "retriable-headers"}
"""Words by which Envoy heeds further fields."""

_HASH: Final = re.compile(r"^(?!kri_)(.*)-[0-9a-f]{16}$")


def served(snapshot: Snapshot, call: Call) -> Answer | str:
    listener = _listener(snapshot, call)
    if listener is None:
        return NOTHING_LISTENS
    last = listener.filter_chains[0].filters[-1].typed_config if listener.filter_chains[0].filters else None
    if last is None:
        return Answer(shares={MISSING: Fraction(1)})
    manager, proxy = HttpConnectionManager(), TcpProxy()
    if last.Unpack(manager):
        return _of_request(snapshot, _row(snapshot, manager, call))
    assert last.Unpack(proxy), last.type_url
    return _of_connection(snapshot, proxy)


def _listener(snapshot: Snapshot, call: Call) -> Listener | None:
    for packed in snapshot.of(LISTENER):
        listener = Listener.FromString(packed.body)
        at = listener.address.socket_address
        if (at.address, at.port_value) == (call.address, call.port):
            return listener
    return None


def _row(snapshot: Snapshot, manager: HttpConnectionManager, call: Call) -> Route:
    packed = snapshot.get(ROUTES, manager.rds.route_config_name)
    assert packed is not None, manager.rds.route_config_name
    (host,) = RouteConfiguration.FromString(packed.body).virtual_hosts
    return next(row for row in host.routes if _takes(row.match, call))


def _takes(match: RouteMatch, call: Call) -> bool:
    headers = {":method": call.method, **dict(call.headers)}
    query = dict(call.query)
    return (
        _takes_path(match, call.path)
        and all(headers.get(header.name) == header.string_match.exact for header in match.headers)
        and all(query.get(parameter.name) == parameter.string_match.exact for parameter in match.query_parameters)
    )


def _takes_path(match: RouteMatch, path: str) -> bool:
    """Envoy's `RouteMatch`: each of these leaves the query out of account."""
    if match.HasField("path"):
        return path == match.path
    if match.HasField("path_separated_prefix"):
        return path == match.path_separated_prefix or path.startswith(f"{match.path_separated_prefix}/")
    if match.HasField("safe_regex"):
        return re.fullmatch(match.safe_regex.regex, path) is not None
    assert match.HasField("prefix"), match
    return path.startswith(match.prefix)


def _of_request(snapshot: Snapshot, row: Route) -> Answer:
    owner = row.name if row.name.startswith("kri_mhttpr_") else ""
    if row.HasField("redirect"):
        return Answer(owner, redirect=_STATUSES[row.redirect.RedirectResponseCode.Name(row.redirect.response_code)])
    if row.HasField("direct_response"):
        assert row.direct_response.status == 500, row.direct_response
        return Answer(owner, shares={MISSING: Fraction(1)})
    action = row.route
    weights = [(cluster.name, cluster.weight.value) for cluster in action.weighted_clusters.clusters] or [
        (action.cluster, 1)
    ]
    return Answer(
        owner,
        shares=_shares(snapshot, weights),
        request_timeout=duration(action, "timeout"),
        stream_idle_timeout=duration(action, "idle_timeout"),
        retry=_retry(action.retry_policy) if action.HasField("retry_policy") else None,
        connection_timeouts=_connections(snapshot, weights),
    )


def _of_connection(snapshot: Snapshot, proxy: TcpProxy) -> Answer:
    weights = [(cluster.name, cluster.weight) for cluster in proxy.weighted_clusters.clusters] or [(proxy.cluster, 1)]
    shares = _shares(snapshot, weights)
    if set(shares) == {MISSING}:
        return Answer(shares=shares)
    return Answer(
        shares=shares,
        idle_timeout=duration(proxy, "idle_timeout"),
        connect_attempts=proxy.max_connect_attempts.value if proxy.HasField("max_connect_attempts") else None,
        connection_timeouts=_connections(snapshot, weights),
    )


def _shares(snapshot: Snapshot, weights: list[tuple[str, int]]) -> dict[str, Fraction]:
    """A cluster that is not there answers nothing; two that are the same are one."""
    total = sum(weight for _, weight in weights)
    shares: dict[str, Fraction] = {}
    for name, weight in weights:
        backend = _name(name) if snapshot.get(CLUSTER, name) is not None else MISSING
        if weight:
            shares[backend] = shares.get(backend, Fraction(0)) + Fraction(weight, total)
    return shares


def _name(cluster: str) -> str:
    """Of a subset by tags the name has a hash, which says nothing here."""
    subset = _HASH.match(cluster)
    return f"{subset[1]}-" if subset else cluster


def _connections(snapshot: Snapshot, weights: list[tuple[str, int]]) -> dict[str, Fraction]:
    return {_name(name): timeout for name, weight in weights if weight for timeout in _timeouts(snapshot, name)}


def _timeouts(snapshot: Snapshot, name: str) -> Iterator[Fraction]:
    packed = snapshot.get(CLUSTER, name)
    if packed is not None:
        timeout = duration(Cluster.FromString(packed.body), "connect_timeout")
        assert timeout is not None
        yield timeout


def duration(message: Any, field: str) -> Fraction | None:
    if not message.HasField(field):
        return None
    duration = getattr(message, field)
    return Fraction(duration.seconds) + Fraction(duration.nanos, 10**9)


def _retry(policy: RetryPolicy) -> dict[str, Any]:
    return {
        "numRetries": policy.num_retries.value if policy.HasField("num_retries") else None,
        "perTryTimeout": duration(policy, "per_try_timeout"),
        "retryOn": set(conditions(policy)),
    }


def conditions(policy: RetryPolicy) -> Iterator[str]:
    """The words of MeshRetry's that are none of Envoy's are fields of their own there."""
    yield from (word for word in policy.retry_on.split(",") if word and word not in _OF_FIELDS)
    yield from map(str, policy.retriable_status_codes)
    for header in policy.retriable_request_headers:
        if header.name == ":method":
            yield f"HttpMethod{header.string_match.exact.capitalize()}"

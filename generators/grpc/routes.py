"""Route tables of a gRPC client: the routes that a call can match, and their clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.route.v3.route_components_pb2 import Route, RouteAction, RouteMatch
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from generators.envoy import names
from generators.envoy.edit import over_ads

if TYPE_CHECKING:
    from envoy.config.route.v3.route_components_pb2 import HeaderMatcher, RetryPolicy
    from google.protobuf.message import Message

_MATCHES: Final = frozenset(
    {"prefix", "path", "safe_regex", "path_separated_prefix", "headers", "case_sensitive", "runtime_fraction", "grpc"}
)
"""The conditions that gRPC can check. A route with any other, such as a query parameter, matches no gRPC call."""

_METHOD: Final = ":method"
_POST: Final = "POST"

_RETRIED: Final = ("cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable")

_CHANNEL: Final = "io.grpc.channel_id"
"""The filter state that identifies the channel of a gRPC client (gRFC A42)."""


def grpc_route_table(table: RouteConfiguration) -> Iterator[RouteConfiguration | Cluster | ClusterLoadAssignment]:
    """The route table and, if a share of its calls has no cluster, an empty cluster that fails them."""
    reduced = RouteConfiguration(name=table.name)
    for host in table.virtual_hosts:
        rows = [row for route in host.routes if (row := _row(route)) is not None]
        reduced.virtual_hosts.add(name=host.name, domains=host.domains, routes=rows)
    yield reduced
    if any(names.MISSING_CLUSTER in _clusters(row.route) for host in reduced.virtual_hosts for row in host.routes):
        missing = Cluster(name=names.MISSING_CLUSTER, type=Cluster.EDS)
        over_ads(missing.eds_cluster_config.eds_config)
        yield missing
        yield ClusterLoadAssignment(cluster_name=names.MISSING_CLUSTER)


def _clusters(action: RouteAction) -> list[str]:
    return [action.cluster, *(share.name for share in action.weighted_clusters.clusters)]


def _row(row: Route) -> Route | None:
    match = _match(row.match)
    if match is None:
        return None
    reduced = Route(name=row.name, match=match)
    _forward(reduced.route, row.route)
    return reduced


def _match(match: RouteMatch) -> RouteMatch | None:
    """The reduced match; None if no gRPC call can match: its method is always POST, and it has no query."""
    if not _MATCHES.issuperset(field.name for field, _ in match.ListFields()):
        return None
    reduced = RouteMatch()
    for name in ("prefix", "path", "safe_regex", "case_sensitive", "runtime_fraction"):
        _carry(match, reduced, name)
    if match.HasField("path_separated_prefix"):
        reduced.prefix = f"{match.path_separated_prefix}/"  # a gRPC path is /SERVICE/METHOD
    for header in match.headers:
        if header.name != _METHOD:
            _header(reduced.headers.add(), header)
        elif header.string_match.exact != _POST:
            return None
    return reduced


def _header(reduced: HeaderMatcher, header: HeaderMatcher) -> None:
    """Copy a header condition. Absence is written with `invert_match`, which every gRPC library understands."""
    reduced.CopyFrom(header)
    if header.HasField("present_match") and not header.present_match:
        reduced.present_match, reduced.invert_match = True, not header.invert_match


def _forward(reduced: RouteAction, action: RouteAction) -> None:
    """A route that answers by itself, such as a redirect, leads to a missing cluster, so that its calls fail."""
    shares = [share for share in action.weighted_clusters.clusters if share.weight.value]
    if shares:
        for share in shares:
            grpc_share = reduced.weighted_clusters.clusters.add(name=share.name)
            grpc_share.weight.value = share.weight.value
    else:
        reduced.cluster = action.cluster or names.MISSING_CLUSTER
    if action.HasField("max_stream_duration"):
        reduced.max_stream_duration.CopyFrom(action.max_stream_duration)
    elif action.HasField("timeout"):
        reduced.max_stream_duration.max_stream_duration.CopyFrom(action.timeout)
    if action.HasField("retry_policy"):
        _retry(reduced, action.retry_policy)
    for policy in action.hash_policy:
        _hash(reduced, policy)


def _retry(reduced: RouteAction, policy: RetryPolicy) -> None:
    """Copy a retry policy. gRPC retries by the status of calls only; without such a condition it retries nothing."""
    conditions = [condition for condition in policy.retry_on.split(",") if condition in _RETRIED]
    if not conditions or (policy.HasField("num_retries") and policy.num_retries.value == 0):
        return
    reduced.retry_policy.retry_on = ",".join(conditions)
    _carry(policy, reduced.retry_policy, "num_retries")
    _carry(policy, reduced.retry_policy, "retry_back_off")


def _hash(reduced: RouteAction, policy: RouteAction.HashPolicy) -> None:
    """Copy a hash policy. Hashing by source address becomes hashing by channel."""
    if policy.HasField("header"):
        reduced.hash_policy.add(terminal=policy.terminal).header.header_name = policy.header.header_name
    elif policy.HasField("connection_properties"):
        reduced.hash_policy.add(terminal=policy.terminal).filter_state.key = _CHANNEL


def _carry(source: Message, reduced: Message, name: str) -> None:
    if source.HasField(name):
        value = getattr(source, name)
        if isinstance(value, str):
            setattr(reduced, name, value)
        else:
            getattr(reduced, name).CopyFrom(value)

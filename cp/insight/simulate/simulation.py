"""The simulation: the outcome of a call, computed from the resources of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from envoy.config.core.v3.protocol_pb2 import HttpProtocolOptions
from envoy.config.route.v3.route_components_pb2 import RedirectAction, RouteAction, VirtualHost
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from cp.insight.simulate.client_headers import with_client_headers
from cp.insight.simulate.conditions import UnsimulatedFeature, conditions
from cp.insight.simulate.filter_chains import filter_chain_of, terminates_tls
from cp.insight.simulate.outcome import DirectReply, ForwardedCall, Outcome, RetryRule, RowTrial, TrafficShare
from cp.insight.simulate.paths import InvalidRequest, RedirectedPath
from cp.insight.simulate.request import Call, ClientRules, PathReading, Request, request_of
from cp.insight.simulate.rewrites import host_of, location_of, path_of
from cp.insight.simulate.served import ServedResources, terminal_filter
from cp.insight.simulate.virtual_hosts import virtual_host_of
from cp.model.duration import Duration

if TYPE_CHECKING:
    from envoy.config.route.v3.route_components_pb2 import RetryPolicy, Route
    from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

    from cp.translate.snapshot import Snapshot

_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
_TEMPORARY_REDIRECT: Final = 307
_CLOSED: Final = 0
_SIMULATED_ESCAPES: Final = {
    HttpConnectionManager.IMPLEMENTATION_SPECIFIC_DEFAULT,
    HttpConnectionManager.KEEP_UNCHANGED,
    HttpConnectionManager.UNESCAPE_AND_REDIRECT,
}
_REDIRECTS: Final = {
    RedirectAction.MOVED_PERMANENTLY: 301,
    RedirectAction.FOUND: 302,
    RedirectAction.SEE_OTHER: 303,
    RedirectAction.TEMPORARY_REDIRECT: 307,
    RedirectAction.PERMANENT_REDIRECT: 308,
}
_WITHOUT_CLUSTER: Final = {
    RouteAction.SERVICE_UNAVAILABLE: 503,
    RouteAction.NOT_FOUND: 404,
    RouteAction.INTERNAL_SERVER_ERROR: 500,
}
_NANOSECONDS: Final = 1_000_000_000

# Envoy's defaults.
# https://www.envoyproxy.io/docs/envoy/latest/faq/configuration/timeouts
_ROUTE_TIMEOUT: Final = Duration.parse("15s")
_STREAM_IDLE_TIMEOUT: Final = Duration.parse("5m")
_TCP_IDLE_TIMEOUT: Final = Duration.parse("1h")
_BASE_INTERVAL: Final = Duration.parse("25ms")
_MAX_INTERVAL_OF_BASE: Final = 10


def simulate(snapshot: Snapshot, call: Call) -> Outcome:
    """The outcome of a call. Raises `NoListener`, or `UnsimulatedFeature` if the outcome is not known for sure."""
    served = ServedResources(snapshot)
    listener = served.listener(call.address, call.port)
    chain = filter_chain_of(listener, call)
    if chain is None:
        return Outcome(listener.name, reply=DirectReply(_CLOSED, "no filter chain is for such connections"))
    last_filter, ends_tls = terminal_filter(chain), terminates_tls(chain)
    if ends_tls and not call.is_over_tls:
        return Outcome(listener.name, reply=DirectReply(_CLOSED, "the client has to speak TLS"))
    if not isinstance(last_filter, HttpConnectionManager):
        return Outcome(listener.name, forward=_tcp_call(served, last_filter))
    if call.is_over_tls and not ends_tls:
        return Outcome(listener.name, reply=DirectReply(_CLOSED, "the client speaks TLS, and HTTP is served without"))
    return _http_outcome(served, listener.name, last_filter, call)


def retries_by_row(snapshot: Snapshot, outcome: Outcome) -> Mapping[int, RetryRule]:
    """Return when requests are retried, by the index of the row that takes them, for the virtual host of a call."""
    hosts = ServedResources(snapshot).named_table(outcome.table).virtual_hosts
    host = next((host for host in hosts if host.name == outcome.virtual_host), VirtualHost())
    rows = enumerate(_with_retries(row, host) for row in host.routes)
    return {index: _retry(row.route.retry_policy) for index, row in rows if row.route.HasField("retry_policy")}


def _http_outcome(served: ServedResources, listener: str, manager: HttpConnectionManager, call: Call) -> Outcome:
    _check_simulated(listener, manager, call)
    table = served.table(manager)
    try:
        request = with_client_headers(request_of(call, _client_rules(manager)), manager, call)
    except InvalidRequest as fault:
        return Outcome(listener, table=table.name, reply=DirectReply(_BAD_REQUEST, str(fault)))
    except RedirectedPath as other:
        unescaped = DirectReply(_TEMPORARY_REDIRECT, "the path has escaped slashes", location=other.location)
        return Outcome(listener, table=table.name, reply=unescaped)
    outcome = Outcome(listener, request.target, request.authority, table.name)
    if request.values("x-forwarded-proto") == ("",):
        return replace(outcome, reply=DirectReply(_NOT_FOUND, "`x-forwarded-proto` is empty"))
    host = virtual_host_of(table, request.authority)
    if host is None:
        return replace(outcome, reply=DirectReply(_NOT_FOUND, f"no virtual host is for `{request.authority}`"))
    rows = tuple(RowTrial(index, row.name, conditions(row.match, request)) for index, row in enumerate(host.routes))
    taken_row = _taken_row(host, rows)
    row = None if taken_row is None else _with_retries(taken_row, host)
    forward, reply = _row_outcome(served, manager, row, request)
    return replace(outcome, virtual_host=host.name, rows=rows, forward=forward, reply=reply)


def _check_simulated(listener: str, manager: HttpConnectionManager, call: Call) -> None:
    """Raise `UnsimulatedFeature` for an upgrade, and for a listener that does not normalise paths as ours do."""
    if any(name.lower() == "upgrade" for name, _ in call.headers):
        raise UnsimulatedFeature("a call that wants to upgrade its connection")
    if not manager.normalize_path.value or manager.path_with_escaped_slashes_action not in _SIMULATED_ESCAPES:
        raise UnsimulatedFeature(f"the paths of the listener {listener}")
    if manager.common_http_protocol_options.headers_with_underscores_action == HttpProtocolOptions.DROP_HEADER:
        raise UnsimulatedFeature(f"the listener {listener}, which drops headers with underscores")
    if manager.xff_num_trusted_hops:
        raise UnsimulatedFeature(f"the listener {listener}, which believes proxies before it")


def _client_rules(manager: HttpConnectionManager) -> ClientRules:
    underscores = manager.common_http_protocol_options.headers_with_underscores_action
    return ClientRules(
        PathReading(
            merges_slashes=manager.merge_slashes,
            redirects_escaped_slashes=manager.path_with_escaped_slashes_action
            == HttpConnectionManager.UNESCAPE_AND_REDIRECT,
        ),
        is_edge=manager.use_remote_address.value,
        rejects_underscores=underscores == HttpProtocolOptions.REJECT_REQUEST,
    )


def _taken_row(host: VirtualHost, rows: Iterable[RowTrial]) -> Route | None:
    """The row that takes the request.

    A row of which it is unknown whether it matches decides the outcome only if it comes before the first match.
    """
    trial = next((row for row in rows if row.matches is not False), None)
    if trial is None:
        return None
    if trial.matches is None:
        raise UnsimulatedFeature(next(condition.pattern for condition in trial.conditions if condition.holds is None))
    return host.routes[trial.index]


def _with_retries(row: Route, host: VirtualHost) -> Route:
    """Write the retry policy of its virtual host into a row that forwards and has none."""
    is_silent = row.WhichOneof("action") == "route" and not row.route.HasField("retry_policy")
    if is_silent and host.HasField("retry_policy"):
        row.route.retry_policy.CopyFrom(host.retry_policy)
    return row


def _row_outcome(
    served: ServedResources, manager: HttpConnectionManager, row: Route | None, request: Request
) -> tuple[ForwardedCall | None, DirectReply | None]:
    if row is None:
        return None, DirectReply(_NOT_FOUND, "no row of the route table takes this request")
    action = row.WhichOneof("action")
    if action == "route":
        return _http_call(served, manager, row, request), None
    if action == "redirect":
        location = location_of(row.redirect, row.match, request)
        return None, DirectReply(_REDIRECTS[row.redirect.response_code], "a redirect", location=location)
    if action == "direct_response":
        answer = row.direct_response
        return None, DirectReply(answer.status, "the route answers by itself", answer.body.inline_string)
    raise UnsimulatedFeature(f"a route with `{action}`")


def _http_call(served: ServedResources, manager: HttpConnectionManager, row: Route, request: Request) -> ForwardedCall:
    action = row.route
    shares, host = tuple(_shares(served, action)), host_of(action, request)
    if host is None and not any(_is_named(served, share) for share in shares if share.weight):
        host = request.authority
    return ForwardedCall(
        shares=shares,
        path=path_of(action, row.match, request),
        host=host,
        timeout=_duration(action, "timeout", _ROUTE_TIMEOUT),
        idle_timeout=_duration(action, "idle_timeout", _duration(manager, "stream_idle_timeout", _STREAM_IDLE_TIMEOUT)),
        retry=_retry(action.retry_policy) if action.HasField("retry_policy") else None,
        mirrors=tuple(_mirrors(action)),
    )


def _shares(served: ServedResources, action: RouteAction) -> Iterator[TrafficShare]:
    status = _WITHOUT_CLUSTER[action.cluster_not_found_response_code]
    specifier = action.WhichOneof("cluster_specifier")
    if specifier == "cluster":
        yield _share(served, action.cluster, 1, status)
    elif specifier == "weighted_clusters":
        for weighted in action.weighted_clusters.clusters:
            yield _share(served, weighted.name, weighted.weight.value, status)
    else:
        raise UnsimulatedFeature(f"a RouteAction with `{specifier}`")


def _share(served: ServedResources, name: str, weight: int, status: int) -> TrafficShare:
    cluster = served.cluster(name)
    if cluster is None:
        return TrafficShare(name, weight, is_missing=True, status=status)
    return TrafficShare(name, weight, served.endpoints(cluster))


def _is_named(served: ServedResources, share: TrafficShare) -> bool:
    """Whether endpoints of a cluster have names, as those outside of the mesh do: only these take the host's place."""
    cluster = served.cluster(share.cluster)
    return cluster is not None and served.names_endpoints(cluster)


def _mirrors(action: RouteAction) -> Iterator[tuple[str, float]]:
    for mirror in action.request_mirror_policies:
        fraction = mirror.runtime_fraction.default_value
        whole = (100, 10_000, 1_000_000)[fraction.denominator]
        yield mirror.cluster, 100 * fraction.numerator / whole if mirror.HasField("runtime_fraction") else 100.0


def _retry(policy: RetryPolicy) -> RetryRule:
    back_off = policy.retry_back_off
    base = _duration(back_off, "base_interval", _BASE_INTERVAL)
    return RetryRule(
        on=tuple(condition for condition in policy.retry_on.split(",") if condition),
        retries=policy.num_retries.value if policy.HasField("num_retries") else 1,
        per_try_timeout=_duration(policy, "per_try_timeout", Duration()),
        base_interval=base,
        max_interval=_duration(back_off, "max_interval", Duration(base.nanoseconds * _MAX_INTERVAL_OF_BASE)),
        statuses=tuple(policy.retriable_status_codes),
        host_attempts=policy.host_selection_retry_max_attempts or 1,
    )


def _tcp_call(served: ServedResources, proxy: TcpProxy) -> ForwardedCall:
    weighted = [(cluster.name, cluster.weight) for cluster in proxy.weighted_clusters.clusters] or [(proxy.cluster, 1)]
    shares = tuple(_share(served, name, weight, 0) for name, weight in weighted)
    attempts = proxy.max_connect_attempts.value if proxy.HasField("max_connect_attempts") else 1
    idle_timeout = _duration(proxy, "idle_timeout", _TCP_IDLE_TIMEOUT)
    return ForwardedCall(shares, idle_timeout=idle_timeout, connect_attempts=attempts)


def _duration(message: Any, field: str, default: Duration) -> Duration:
    if not message.HasField(field):
        return default
    duration = getattr(message, field)
    return Duration(duration.seconds * _NANOSECONDS + duration.nanos)

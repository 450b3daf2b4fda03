"""The simulated timeouts, retries and shares of a call, and the features that are not simulated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from envoy.config.core.v3.protocol_pb2 import HttpProtocolOptions
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import Route as RouteMessage
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.http.early_header_mutation.header_mutation.v3.header_mutation_pb2 import HeaderMutation

from cp.insight.simulate import Call, NoListener, Outcome, RetryRule, TrafficShare, UnsimulatedFeature, simulate
from cp.model.duration import Duration
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, PackedResource
from cp.translate.snapshot import Snapshot, SnapshotPart
from generators.build.client_rows import row_for, show_clients
from generators.build.clusters import backend_cluster
from generators.build.endpoints import assignment
from generators.build.listeners import inbound_listener, outbound_listener
from generators.build.routes import row
from generators.envoy import names
from generators.envoy.edit import pack
from generators.proxy import (
    Backend,
    Endpoint,
    Endpoints,
    Inbound,
    Match,
    MeshTls,
    Outbound,
    PathKind,
    PathMatch,
    Protocol,
    Redirect,
    Route,
    Split,
    ValueMatch,
)

HOST, PORT = "127.0.0.1", 10080
TYPE_URLS = {
    "Cluster": CLUSTER,
    "ClusterLoadAssignment": ENDPOINTS,
    "Listener": LISTENER,
    "RouteConfiguration": ROUTES,
}


def packed(*drafts: Any) -> Snapshot:
    finished = (resource for draft in drafts for resource in draft.finish())
    return Snapshot(
        SnapshotPart(PackedResource.of(TYPE_URLS[m.DESCRIPTOR.name], n, m.SerializeToString()) for n, m in finished)
    )


def backend(name: str, *addresses: str, protocol: Protocol = Protocol.HTTP) -> tuple[Any, Any]:
    endpoints = tuple(Endpoint(address, 8080) for address in addresses)
    return backend_cluster(Backend(name, name, protocol)), assignment(Endpoints(name, endpoints))


def served(*routes: Route, protocol: Protocol = Protocol.HTTP) -> Snapshot:
    outbound = Outbound("backend", "backend", HOST, PORT, protocol, routes)
    return packed(outbound_listener(outbound), *backend("v1", "10.0.0.1", "10.0.0.2"), *backend("v2", "10.0.0.3"))


def with_rows(*messages: RouteMessage) -> Snapshot:
    """A snapshot with the given rows, which our generators need not be able to build."""
    table = RouteConfiguration(name="backend")
    table.virtual_hosts.add(name="backend", domains=["*"]).routes.extend(messages)
    resources = [
        packed_resource for part in served().parts for packed_resource in part if packed_resource.type_url != ROUTES
    ]
    return Snapshot(SnapshotPart([*resources, PackedResource.of(ROUTES, "backend", table.SerializeToString())]))


def to(path: str = "/", method: str = "GET", **headers: str) -> Call:
    sent_headers = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Call(HOST, PORT, method, path, "backend", sent_headers)


def outcome(snapshot: Snapshot, call: Call | None = None) -> Outcome:
    return simulate(snapshot, call or to())


def prefix(value: str) -> Match:
    return Match(PathMatch(PathKind.PREFIX, value))


def test_a_call_goes_to_the_shares_of_the_row_that_takes_it() -> None:
    routes = (Route("api", match=prefix("/api"), splits=(Split("v1", 9), Split("v2", 1))), Route("rest"))

    result = outcome(served(*routes), to("/api/x"))

    assert result.row is not None
    assert result.row.name == "api"
    assert result.forward is not None
    assert result.forward.shares == (
        TrafficShare("v1", 9, ("10.0.0.1:8080", "10.0.0.2:8080")),
        TrafficShare("v2", 1, ("10.0.0.3:8080",)),
    )


def test_a_share_of_a_backend_that_is_missing_is_answered_with_500() -> None:
    result = outcome(served(Route("all", splits=(Split("v1"), Split("gone", missing=True)))))

    assert result.forward is not None
    assert [(share.is_missing, share.status) for share in result.forward.shares] == [(False, 0), (True, 500)]


def test_a_share_of_a_cluster_that_is_not_served_is_answered_with_503() -> None:
    result = outcome(served(Route("all", splits=(Split("elsewhere"),))))

    assert result.forward is not None
    assert result.forward.shares == (TrafficShare("elsewhere", is_missing=True, status=503),)


def test_timeouts_that_are_not_configured_are_the_defaults_of_envoy() -> None:
    forward = outcome(served(Route("all", splits=(Split("v1"),)))).forward

    assert forward is not None
    assert (str(forward.timeout), str(forward.idle_timeout), forward.retry) == ("15s", "5m0s", None)


def test_timeouts_and_retries_are_those_of_the_row() -> None:
    message = row(Route("all", splits=(Split("v1"),)))
    message.route.timeout.seconds = 2
    message.route.idle_timeout.SetInParent()
    policy = message.route.retry_policy
    policy.retry_on = "5xx,retriable-status-codes"
    policy.retriable_status_codes.append(503)
    policy.retry_back_off.base_interval.nanos = 50_000_000

    forward = outcome(with_rows(message)).forward

    assert forward is not None
    assert (str(forward.timeout), str(forward.idle_timeout)) == ("2s", "0s")
    assert forward.retry == RetryRule(
        on=("5xx", "retriable-status-codes"),
        retries=1,
        per_try_timeout=Duration(),
        base_interval=Duration.parse("50ms"),
        max_interval=Duration.parse("500ms"),
        statuses=(503,),
    )


def test_a_redirect_is_answered_with_its_location() -> None:
    result = outcome(served(Route("all", filters=(Redirect(hostname="new", status=301),))), to("/a?b"))

    assert result.reply is not None
    assert (result.reply.status, result.reply.location) == (301, "http://new/a?b")


def test_an_unavailable_route_is_answered_with_its_reason() -> None:
    result = outcome(served(Route("all", unavailable_reason="nobody is there")))

    assert result.reply is not None
    assert (result.reply.status, result.reply.body) == (500, "nobody is there")


def test_a_request_that_no_row_takes_is_answered_with_404() -> None:
    result = outcome(served(Route("api", match=prefix("/api"))), to("/other"))

    assert result.row is None
    assert result.reply is not None
    assert result.reply.status == 404


@pytest.mark.parametrize(
    "call", [to("no-slash"), to("/a b"), to("/a#b"), to("/%00"), to(method="FETCH"), to(method="get")]
)
def test_an_invalid_request_is_answered_with_400(call: Call) -> None:
    result = outcome(served(Route("all")), call)

    assert result.reply is not None
    assert result.reply.status == 400
    assert result.rows == ()


def test_each_row_has_its_conditions_and_whether_they_hold() -> None:
    match = Match(PathMatch(PathKind.EXACT, "/a"), "POST", (ValueMatch("x-version", value="2"),), (ValueMatch("q"),))

    (trial,) = outcome(served(Route("all", match=match)), to("/a?q=1", x_version="1")).rows

    assert [
        (condition.subject, condition.kind, condition.pattern, condition.value, condition.holds)
        for condition in trial.conditions
    ] == [
        ("path", "Exact", "/a", "/a", True),
        ("method", "Exact", "POST", "GET", False),
        ("header x-version", "Exact", "2", "1", False),
        ("query parameter q", "Exact", "", "1", False),
    ]


def test_a_connection_goes_to_the_shares_of_its_listener() -> None:
    result = outcome(served(Route("all", splits=(Split("v1", 4), Split("v2", 1))), protocol=Protocol.TCP))

    assert result.rows == ()
    assert result.forward is not None
    assert [(share.cluster, share.weight) for share in result.forward.shares] == [("v1", 4), ("v2", 1)]


def test_a_call_to_an_address_without_a_listener_has_no_outcome() -> None:
    with pytest.raises(NoListener):
        simulate(served(Route("all")), Call(HOST, PORT + 1))


def test_a_row_that_is_not_simulated_does_not_matter_behind_one_that_matches() -> None:
    odd = row(Route("odd", splits=(Split("v1"),)))
    odd.match.runtime_fraction.default_value.numerator = 50
    api = row(Route("api", match=prefix("/api"), splits=(Split("v2"),)))
    snapshot = with_rows(api, odd)

    assert outcome(snapshot, to("/api")).forward is not None
    with pytest.raises(UnsimulatedFeature, match="runtime_fraction"):
        outcome(snapshot, to("/other"))


def test_a_route_by_an_id_that_envoy_generates_is_not_simulated() -> None:
    snapshot = served(
        Route("all", match=Match(headers=(ValueMatch("x-request-id", value="1"),)), splits=(Split("v1"),))
    )

    assert outcome(snapshot, to(x_request_id="1")).forward is not None
    with pytest.raises(UnsimulatedFeature, match="x-request-id"):
        outcome(snapshot)


def with_chains(*chains: tuple[str, bool, Any]) -> Snapshot:
    """A listener with chains: for which name they are, whether they end TLS, and what they end in."""
    listener = Listener(name="edge")
    listener.address.socket_address.address, listener.address.socket_address.port_value = HOST, PORT
    listener.listener_filters.add(name=names.TLS_INSPECTOR)
    for server_name, ends_tls, last in chains:
        chain = listener.filter_chains.add(name=server_name)
        chain.filter_chain_match.transport_protocol = "tls"
        chain.filter_chain_match.server_names.extend([server_name] if server_name else [])
        if ends_tls:
            chain.transport_socket.name = names.TLS_SOCKET
        chain.filters.add().typed_config.Pack(last)
    return Snapshot(SnapshotPart([PackedResource.of(LISTENER, "edge", listener.SerializeToString())]))


def cluster_of(snapshot: Snapshot, server_name: str | None) -> str:
    """The cluster of a connection; empty if it is closed."""
    result = simulate(snapshot, Call(HOST, PORT, server_name=server_name))
    if result.forward is None:
        assert result.reply is not None
        assert result.reply.status == 0
        return ""
    return result.forward.shares[0].cluster


@pytest.mark.parametrize(
    ("server_name", "cluster"),
    [
        ("a.b.c", "exact"),
        ("A.B.C", "exact"),
        ("x.b.c", "longer"),
        ("x.y.b.c", "longer"),
        ("b.c", "shorter"),
        ("c", "any"),
        ("", "any"),
        (None, ""),
    ],
)
def test_a_connection_is_taken_by_the_chain_of_the_narrowest_name(server_name: str | None, cluster: str) -> None:
    names_of_chains = {"*.c": "shorter", "a.b.c": "exact", "": "any", "*.b.c": "longer"}
    snapshot = with_chains(*((name, False, TcpProxy(cluster=cluster)) for name, cluster in names_of_chains.items()))

    assert cluster_of(snapshot, server_name) == cluster


def test_a_connection_for_which_there_is_no_chain_is_closed() -> None:
    snapshot = with_chains(("a.b.c", True, TcpProxy(cluster="exact")))

    assert [cluster_of(snapshot, name) for name in ("a.b.c", "b.c", "", None)] == ["exact", "", "", ""]


def edge(**fields: Any) -> Snapshot:
    """A listener for HTTPS, whose clients may be anybody."""
    manager = HttpConnectionManager(**fields)
    manager.normalize_path.value = manager.use_remote_address.value = True
    host = manager.route_config.virtual_hosts.add(name="all", domains=["*"])
    host.routes.append(row(Route("api", match=prefix("/api"), splits=(Split("v1"),))))
    host.routes.append(row(Route("old", match=prefix("/old"), filters=(Redirect(hostname="new"),))))
    return with_chains(("", True, manager))


def over_tls(path: str, **headers: str) -> Call:
    return replace(to(path, **headers), server_name="")


def test_slashes_are_merged_where_the_listener_does_so() -> None:
    assert outcome(edge(merge_slashes=True), over_tls("//api///x/?a//b")).path == "/api/x/?a//b"
    assert outcome(edge(), over_tls("//api")).path == "//api"


def test_escaped_slashes_are_answered_with_a_redirect_where_the_listener_does_so() -> None:
    unescape = HttpConnectionManager.UNESCAPE_AND_REDIRECT

    result = outcome(edge(path_with_escaped_slashes_action=unescape, merge_slashes=True), over_tls("/api%2f%2Fx?%2f"))

    assert result.reply is not None
    assert (result.reply.status, result.reply.location) == (307, "/api/x?%2f")


def test_nothing_is_believed_of_what_clients_of_an_edge_say_of_themselves() -> None:
    result = outcome(edge(), over_tls("/old", x_forwarded_proto="http"))

    assert result.reply is not None
    assert result.reply.location == "https://new/old"


def test_headers_with_underscores_are_answered_with_400_where_the_listener_does_so() -> None:
    rejecting = HttpProtocolOptions(headers_with_underscores_action=HttpProtocolOptions.REJECT_REQUEST)
    snapshot = edge(common_http_protocol_options=rejecting)

    result = simulate(snapshot, replace(over_tls("/api"), headers=(("a_b", "1"),)))

    assert result.reply is not None
    assert result.reply.status == 400


def test_plain_text_where_tls_ends_and_tls_where_http_is_served_without_come_to_nothing() -> None:
    snapshot = edge()
    plain = with_chains(("", False, HttpConnectionManager()))

    assert [cluster_of(snapshot, None), cluster_of(plain, "a")] == ["", ""]


def of_inbound() -> Snapshot:
    """An inbound with a row for one client, and one for one server name."""
    tls = MeshTls("default")
    draft = inbound_listener(Inbound(HOST, PORT, HOST, 8080, "backend", Protocol.HTTP, tls=tls))
    clients: list[dict[str, Any]] = [
        {"spiffeID": {"type": "Exact", "value": "spiffe://default/web"}},
        {"spiffeID": {"type": "Prefix", "value": "spiffe://default/a"}, "sni": {"type": "Exact", "value": "b.example"}},
    ]
    show_clients(draft, clients)
    draft.routes[:0] = [row_for(client, draft.routes[0]) for client in clients]
    return packed(draft)


@pytest.mark.parametrize(
    ("uris", "server_name", "row"),
    [
        ((), "", 2),
        (("spiffe://default/web",), "", 0),
        (("kuma://a/b", "spiffe://default/web", "kuma://c/d"), "", 0),
        (("spiffe://default/web2",), "", 2),
        (("spiffe://default/abc",), "", 2),
        (("spiffe://default/abc",), "b.example", 1),
    ],
)
def test_a_row_for_some_clients_takes_who_shows_it_over_tls_and_not_who_says_so(
    uris: tuple[str, ...], server_name: str, row: int
) -> None:
    spoofed = (("X-Koguma-Client-Uris", "spiffe://default/web"), ("x-koguma-server-name", "b.example"))
    for headers in ((), spoofed):
        call = Call(HOST, PORT, headers=headers, client_uris=uris, server_name=server_name)
        taken = simulate(of_inbound(), call)

        assert next(trial.index for trial in taken.rows if trial.matches) == row


def test_another_change_to_headers_before_the_routes_is_not_simulated() -> None:
    draft = outbound_listener(Outbound("backend", "backend", HOST, PORT, Protocol.HTTP, (Route("a"),)))
    assert draft.manager is not None
    mutations = HeaderMutation()
    mutations.mutations.add().append.header.key = "x-other"
    draft.manager.early_header_mutation_extensions.add(name="other", typed_config=pack(mutations))

    with pytest.raises(UnsimulatedFeature, match="x-other"):
        simulate(packed(draft), Call(HOST, PORT))

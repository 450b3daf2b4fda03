"""What a gRPC client without a proxy is given of what is made for an Envoy."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.cors.v3.cors_pb2 import Cors
from envoy.extensions.filters.http.fault.v3.fault_pb2 import HTTPFault
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import CLUSTER, LISTENER
from cp.translate.snapshot import Snapshot
from generators.build.clusters import backend_cluster
from generators.grpc import for_grpc
from generators.proxy import Backend, CertificateName, MeshTls, Protocol
from tests.random_mesh import MESH, document
from tests.snapshots import policies

M = TypeVar("M", bound=Message)
ADDRESS = {"endpoint": {"address": {"socketAddress": {"address": "10.0.0.1", "portValue": 80}}}}
OTHER = {"endpoint": {"address": {"socketAddress": {"address": "10.0.0.2", "portValue": 80}}}}


def taken(made: Message, data: Any) -> list[Any]:
    resources = for_grpc(("a:80",), [("a", ParseDict(data, made))])
    return [MessageToDict(message) for _, message in resources]


def cluster(**data: Any) -> list[Any]:
    return taken(Cluster(), {"name": "a", "type": "EDS", **data})


def rows(*routes: Any) -> list[Any]:
    first, *_ = taken(RouteConfiguration(), {"name": "t", "virtualHosts": [{"name": "a", "routes": routes}]})
    return list(first["virtualHosts"][0].get("routes", []))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("LEAST_REQUEST", None), ("RANDOM", None), ("RING_HASH", "RING_HASH"), ("MAGLEV", "RING_HASH")],
)
def test_a_balancer_that_grpc_does_not_know_is_replaced(policy: str, expected: str | None) -> None:
    (found,) = cluster(lbPolicy=policy)

    assert found.get("lbPolicy") == expected


def test_a_hash_function_that_grpc_refuses_is_left_out() -> None:
    (found,) = cluster(lbPolicy="RING_HASH", ringHashLbConfig={"hashFunction": "MURMUR_HASH_2", "minimumRingSize": 7})

    assert found["ringHashLbConfig"] == {"minimumRingSize": "7"}


def test_what_has_to_be_encrypted_is_not_called_in_the_clear() -> None:
    assert cluster(transportSocket={"name": "envoy.transport_sockets.tls"}) == []


def mesh_cluster(**tls: Any) -> Any:
    backend = Backend("a", "a", Protocol.GRPC, mesh_tls=MeshTls("default", **tls))
    ((_, cluster),) = (made for made in backend_cluster(backend).finish() if isinstance(made[1], Cluster))
    return cluster


def test_calls_within_the_mesh_take_certificates_from_the_provider_in_the_bootstrap() -> None:
    names = (CertificateName("spiffe://default/a"), CertificateName("spiffe://default/b/", is_prefix=True))
    made = mesh_cluster(names=names, sni="a.mesh", oldest="TLSv1_2", newest="TLSv1_3")
    ((_, reduced),) = for_grpc((), [("a", made)])
    assert isinstance(reduced, Cluster)
    context = UpstreamTlsContext()
    assert reduced.transport_socket.typed_config.Unpack(context)

    provider = {"instanceName": "koguma"}
    validation = {
        "caCertificateProviderInstance": provider,
        "matchSubjectAltNames": [{"exact": "spiffe://default/a"}, {"prefix": "spiffe://default/b/"}],
    }
    assert reduced.transport_socket.name == "envoy.transport_sockets.tls"
    assert MessageToDict(context) == {
        "commonTlsContext": {
            "tlsCertificateProviderInstance": provider,
            "combinedValidationContext": {"defaultValidationContext": validation},
        }
    }


def test_of_addresses_that_are_resolved_one_is_taken_and_several_are_not() -> None:
    def resolved(*endpoints: Any) -> list[Any]:
        return cluster(type="STRICT_DNS", loadAssignment={"endpoints": [{"lbEndpoints": list(endpoints)}]})

    assert [found["type"] for found in resolved(ADDRESS)] == ["LOGICAL_DNS"]
    assert resolved(ADDRESS, OTHER) == resolved() == resolved({"endpoint": {"address": {"pipe": {"path": "/s"}}}}) == []


def test_health_checks_and_timeouts_of_connections_are_left_out_and_limits_stay() -> None:
    limits = {"thresholds": [{"maxConnections": 1, "maxRequests": 2}, {"priority": "HIGH", "maxRequests": 3}]}
    (found,) = cluster(connectTimeout="1s", healthChecks=[{}], circuitBreakers=limits)

    assert found == {"name": "a", "type": "EDS", "edsClusterConfig": {}, "circuitBreakers": {"thresholds": [MAX]}}


MAX = {"maxRequests": 2}


def test_endpoints_are_ejected_by_the_rate_of_failures_alone() -> None:
    by_count = {"consecutive5xx": 3, "enforcingSuccessRate": 0, "enforcingFailurePercentage": 0}
    (without,), (by_rate,) = cluster(outlierDetection=by_count), cluster(outlierDetection={"interval": "3s"})

    assert "outlierDetection" not in without
    assert by_rate["outlierDetection"] == {"interval": "3s"}


def test_every_locality_has_a_weight_and_every_address_is_there_once() -> None:
    name = {"endpoint": {"address": {"socketAddress": {"address": "a.example", "portValue": 80}}}}
    groups = [
        {"locality": {"zone": "a"}, "lbEndpoints": [ADDRESS, ADDRESS, {**OTHER, "loadBalancingWeight": 4}]},
        {"lbEndpoints": [OTHER, name], "priority": 1},
        {"lbEndpoints": [_at("10.0.0.3")], "priority": 2, "loadBalancingWeight": 7},
        {"lbEndpoints": [_at("10.0.0.4")], "priority": 3, "loadBalancingWeight": 0},
    ]
    (found,) = taken(ClusterLoadAssignment(), {"clusterName": "a", "endpoints": groups})

    assert [(one["loadBalancingWeight"], one.get("priority", 0)) for one in found["endpoints"]] == [(5, 0), (7, 1)]
    assert [one["locality"] for one in found["endpoints"]] == [{"zone": "a"}, {}]
    assert len(found["endpoints"][0]["lbEndpoints"]) == 2


def _at(address: str) -> dict[str, Any]:
    return {"endpoint": {"address": {"socketAddress": {"address": address, "portValue": 80}}}}


def test_a_row_that_no_call_can_match_is_left_out() -> None:
    def method(name: str) -> dict[str, Any]:
        return {"prefix": "/", "headers": [{"name": ":method", "stringMatch": {"exact": name}}]}

    query = {"prefix": "/", "queryParameters": [{"name": "q", "presentMatch": True}]}

    assert rows({"match": query, "route": {"cluster": "a"}}, {"match": method("GET"), "route": {"cluster": "a"}}) == []
    assert rows({"match": method("POST"), "route": {"cluster": "a"}}) == rows(
        {"match": {"prefix": "/"}, "route": {"cluster": "a"}}
    )


@pytest.mark.parametrize("action", [{"redirect": {}}, {"directResponse": {"status": 500}}])
def test_a_row_that_answers_by_itself_leads_to_nobody(action: dict[str, Any]) -> None:
    hosts = [{"name": "a", "routes": [{"match": {"prefix": "/"}, **action}]}]
    table, refused, nobody = taken(RouteConfiguration(), {"name": "t", "virtualHosts": hosts})

    assert table["virtualHosts"][0]["routes"][0]["route"]["cluster"] == refused["name"] == nobody["clusterName"]


def test_a_call_is_retried_by_its_status_and_ends_with_the_timeout_of_the_route() -> None:
    def route(retry: Any) -> Any:
        action = {"cluster": "a", "timeout": "0s", "retryPolicy": retry, "prefixRewrite": "/", "idleTimeout": "1s"}
        (row,) = rows({"match": {"prefix": "/"}, "route": action, "requestHeadersToRemove": ["a"]})
        assert row.keys() == {"match", "route"}
        return row["route"]

    limit = {"maxStreamDuration": "0s"}
    assert route({"retryOn": "5xx,reset"}) == {"cluster": "a", "maxStreamDuration": limit}
    assert route({"retryOn": "reset,unavailable,internal", "perTryTimeout": "1s"})["retryPolicy"] == {
        "retryOn": "unavailable,internal"
    }


def test_of_the_filters_the_fault_and_the_router_are_taken() -> None:
    manager = HttpConnectionManager(stat_prefix="a")
    manager.rds.route_config_name = "t"
    manager.access_log.add(name="a")
    for name, message in (("cors", Cors()), ("fault", HTTPFault()), ("router", Router())):
        manager.http_filters.add(name=name).typed_config.Pack(message)
    listener = Listener(name="l")
    listener.filter_chains.add().filters.add(name="http").typed_config.Pack(manager)
    ((name, found),) = for_grpc(("a:80",), [("l", listener)])
    assert isinstance(found, Listener)
    http = HttpConnectionManager()
    found.api_listener.api_listener.Unpack(http)

    assert (name, [field.name for field, _ in found.ListFields()]) == ("a:80", ["name", "api_listener"])
    assert [one.name for one in http.http_filters] == ["fault", "envoy.filters.http.router"]
    assert not http.access_log


def served(protocol: str, *more: Document) -> Snapshot:
    """A client that can call one service."""
    tags = {"kuma.io/service": "a", "kuma.io/protocol": protocol}
    server = document("Dataplane", "s", networking={"address": "10.0.0.2", "inbound": [{"port": 80, "tags": tags}]})
    client = document("Dataplane", "c", labels={"koguma.io/client": "grpc"}, networking={"address": "10.0.0.1"})
    world = World.of([MESH, server, client, *more], kinds(policies()))
    assert not list(world.findings)
    dataplane = world.get(Key("Dataplane", "default", "c"))
    assert dataplane is not None
    return Compiler(policies()).snapshot(world, dataplane)


@pytest.mark.parametrize(("protocol", "count"), [("grpc", 2), ("http2", 2), ("http", 0), ("tcp", 0)])
def test_services_that_do_not_understand_grpc_are_left_out(protocol: str, count: int) -> None:
    found = served(protocol)

    assert (found.count(LISTENER), found.count(CLUSTER)) == (count, min(count, 1))


def test_a_route_for_connections_does_not_keep_calls_from_their_service() -> None:
    to = [{"targetRef": {"kind": "MeshService", "name": "a"}, "rules": [{"default": {"backendRefs": [A]}}]}]

    assert served("grpc", document("MeshTCPRoute", "r", spec={"to": to})) == served("grpc")


A = {"kind": "MeshService", "name": "a"}


def test_a_client_that_becomes_a_proxy_is_given_nothing_of_before() -> None:
    """And the other way round: what was kept for the one is not taken for the other."""
    tags = {"kuma.io/service": "a", "kuma.io/protocol": "grpc"}
    server = document("Dataplane", "s", networking={"address": "10.0.0.2", "inbound": [{"port": 80, "tags": tags}]})
    networking = {"address": "10.0.0.1", "outbound": [{"port": 81, "tags": {"kuma.io/service": "a"}}]}
    proxy = document("Dataplane", "d", networking=networking)
    client = document("Dataplane", "d", networking=networking, labels={"koguma.io/client": "grpc"})
    world, compiler = World.of([MESH, server, proxy], kinds(policies())), Compiler(policies())

    for revision, now in enumerate((proxy, client, proxy, client)):
        world = world.next({now.key: now}, revision)
        dataplane = world.get(now.key)
        assert dataplane is not None
        assert compiler.snapshot(world, dataplane) == Compiler(policies()).snapshot(world, dataplane)


def test_a_label_that_is_misspelt_is_refused() -> None:
    wrong = document("Dataplane", "d", labels={"koguma.io/client": "gprc"}, networking={"address": "10.0.0.2"})
    (found,) = World.of([MESH, wrong], kinds(policies())).findings

    assert (found.path, found.message) == ('labels["koguma.io/client"]', "`gprc` is no kind of client")

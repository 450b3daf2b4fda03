"""What is explained of meshes with legacy policies is what their proxies are served."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any, Final

from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from cp.api.envoy_json import decoded
from cp.insight.explain import explain
from cp.insight.explain.model import FieldValue
from cp.resources.client import is_grpc_client
from cp.translate.compiler import Compiler
from cp.translate.packing import CLUSTER, LISTENER
from cp.translate.snapshot import Snapshot
from cp.translate.view.proxies import OutboundAddress
from tests.explain.served import DecodedSnapshot
from tests.explain.test_access import explained, served
from tests.explain.test_served import assert_same, calls, served_fields, values_of_request
from tests.oracle.door import LET_IN, REFUSED
from tests.random_mesh import LEGACY, Mesh, dataplanes, for_meshes, mesh_of
from tests.snapshots import policies


@for_meshes(LEGACY)
def test_every_timeout_and_retry_is_explained_with_the_value_that_is_served(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, address, call in calls(world, Random(mesh.seed)):
        snapshot = DecodedSnapshot(compiler.snapshot(world, dataplane))
        explanation = explain(compiler, policies(), world, dataplane, call)

        assert_same(values_of_request(explanation), served_fields(snapshot, address, explanation))
        for backend in explanation.backends:
            if not backend.missing_reason:
                assert_same([*backend.values, *explanation.values], snapshot.cluster(backend.cluster), "cluster")


LIMITS: Final = {
    "connectionLimits.maxConnections": "maxConnections",
    "connectionLimits.maxPendingRequests": "maxPendingRequests",
    "connectionLimits.maxRequests": "maxRequests",
    "connectionLimits.maxRetries": "maxRetries",
}
DETECTION: Final = {
    "outlierDetection.interval": "interval",
    "outlierDetection.detectors.totalFailures.consecutive": "consecutive5xx",
    "outlierDetection.detectors.gatewayFailures.consecutive": "consecutiveGatewayFailure",
}
CHECKS: Final = {name: name for name in ("interval", "timeout", "unhealthyThreshold", "healthyThreshold")}


def of_cluster(cluster: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Limits, detectors and checks of a cluster, by the fields of policies, in Envoy's words."""
    (limits,) = cluster.get("circuitBreakers", {}).get("thresholds", [{}])
    (check,) = cluster.get("healthChecks", [{}])
    read = (
        ("MeshCircuitBreaker", LIMITS, limits),
        ("MeshCircuitBreaker", DETECTION, cluster.get("outlierDetection", {})),
        ("MeshHealthCheck", CHECKS, check),
        ("MeshHealthCheck", {"http.path": "path"}, check.get("httpHealthCheck", {})),
    )
    return {
        (policy, path): str(part[field])
        for policy, fields, part in read
        for path, field in fields.items()
        if field in part
    }


@for_meshes(LEGACY)
def test_every_limit_detector_and_check_is_explained_with_the_value_that_is_served(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, _, call in calls(world, Random(mesh.seed)):
        explanation = explain(compiler, policies(), world, dataplane, call)
        for backend in explanation.backends:
            packed = compiler.snapshot(world, dataplane).get(CLUSTER, backend.cluster)
            if packed is not None:
                values = (*explanation.values, *backend.values)
                explained = {(value.policy, value.path): str(value.winner.value) for value in values}
                served = of_cluster(decoded(packed))
                assert {field: explained.get(field) for field in served} == served


CERTIFICATES: Final = {"UriSanInput", "ServerNameInput"}
"""What Envoy compares of a caller who is told apart by more than tags."""


def is_met(predicate: Mapping[str, Any], shown: str) -> bool:
    """Whether Envoy finds that the tags which a caller shows meet a predicate."""
    for words, of_all in (("orMatcher", any), ("andMatcher", all)):
        if words in predicate:
            return of_all(is_met(inner, shown) for inner in predicate[words]["predicate"])
    if "notMatcher" in predicate:
        return not is_met(predicate["notMatcher"], shown)
    single = predicate["singlePredicate"]
    assert single["input"]["typedConfig"]["headerName"] == "x-kuma-tags"
    return re.fullmatch(single["valueMatch"]["safeRegex"]["regex"], shown) is not None


def acting(filters: Iterable[Mapping[str, Any]], shown: str) -> Iterator[Mapping[str, Any]]:
    """The filters that a request meets whose caller shows these tags."""
    for config in (each["typedConfig"] for each in filters):
        tree = config.get("xdsMatcher")
        if tree is None:
            yield config
            continue
        action = next(
            (
                entry["onMatch"]["action"]
                for entry in tree["matcherList"]["matchers"]
                if is_met(entry["predicate"], shown)
            ),
            tree.get("onNoMatch", {}).get("action"),
        )
        if action is None:
            yield config["extensionConfig"]["typedConfig"]
        elif action["name"] != "skip":
            yield action["typedConfig"]["typedConfig"]["typedConfig"]


def last_filter(snapshot: Snapshot, address: str, port: int) -> Mapping[str, Any]:
    """What is done at last with what comes in at an address."""
    for listener in map(decoded, snapshot.of(LISTENER)):
        if listener["address"]["socketAddress"] == {"address": address, "portValue": port}:
            config: Mapping[str, Any] = listener["filterChains"][0]["filters"][-1]["typedConfig"]
            return config
    raise KeyError(port)


def limits_of(configs: Iterable[Mapping[str, Any]]) -> set[str]:
    """How many requests each limit lets through at once."""
    return {str(config["tokenBucket"]["maxTokens"]) for config in configs if "tokenBucket" in config}


def faults_of(configs: Iterable[Mapping[str, Any]]) -> set[str]:
    """The statuses with which requests fail, and how long they are held up."""
    faults = [config for config in configs if config["@type"].endswith(".HTTPFault")]
    aborts = {str(fault["abort"]["httpStatus"]) for fault in faults if "abort" in fault}
    return aborts | {fault["delay"]["fixedDelay"] for fault in faults if "delay" in fault}


def explained_faults(values: Iterable[FieldValue]) -> set[str]:
    faults = [fault for value in values if value.policy == "MeshFaultInjection" for fault in value.winner.value]
    aborts = {str(fault["abort"]["httpStatus"]) for fault in faults if "abort" in fault}
    return aborts | {fault["delay"]["value"] for fault in faults if "delay" in fault}


@for_meshes(LEGACY)
def test_limits_and_faults_that_a_caller_meets_are_explained(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, address, call in calls(world, Random(mesh.seed)):
        explanation, snapshot = (
            explain(compiler, policies(), world, dataplane, call),
            compiler.snapshot(world, dataplane),
        )
        shown = shown_tags(DecodedSnapshot(snapshot), address)
        for group in explanation.servers:
            for name in group.servers:
                server = next(proxy for proxy in dataplanes(world) if proxy.name == name)
                if len(server.spec.networking.inbound) > 1 or is_grpc_client(server):
                    continue
                networking = server.spec.networking
                inbound = last_filter(compiler.snapshot(world, server), networking.address, networking.inbound[0].port)
                served = inbound.get("httpFilters", ())  # there are none where no HTTP is spoken
                if CERTIFICATES & set(re.findall(r"\w+Input\b", str(served))):
                    continue
                met = list(acting(served, shown))
                numbers = {
                    str(value.winner.value)
                    for value in group.values
                    if value.path == "local.http.requestRate.num" and value.winner.policy is not None
                    if value.winner.policy.type == "RateLimit"
                }
                if numbers:
                    assert limits_of(met) == numbers
                assert explained_faults(group.values) == faults_of(met)


@for_meshes(LEGACY)
def test_where_calls_are_written_down_and_traced_is_explained_as_it_is_served(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, address, call in calls(world, Random(mesh.seed)):
        served = last_filter(compiler.snapshot(world, dataplane), address.address, address.port)
        values = explain(compiler, policies(), world, dataplane, call).values
        told = {value.policy: value.winner.value for value in values if value.path == "backends" and value.served_in}

        files = [log["typedConfig"].get("path") for log in served.get("accessLog", ())]
        assert ("/var/log/near.log" in files) == ("near.log" in str(told.get("MeshAccessLog")))
        provider = str(served.get("tracing", {}).get("provider", {}).get("name", ""))
        assert provider.rpartition(".")[2] == "".join(sort["type"].lower() for sort in told.get("MeshTrace") or ())


def shown_tags(snapshot: DecodedSnapshot, address: OutboundAddress) -> str:
    """The tags that a proxy tells of its workload, where it calls."""
    manager = snapshot.listener(address.address, address.port)
    headers = snapshot.table(manager).request_headers_to_add if isinstance(manager, HttpConnectionManager) else ()
    return next((option.header.value for option in headers if option.header.key == "x-kuma-tags"), "")


@for_meshes(LEGACY)
def test_who_is_explained_to_be_let_in_is_let_in_by_what_is_served(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, _, call in calls(world, Random(mesh.seed)):
        explanation = explain(compiler, policies(), world, dataplane, call)
        if "mtls" in mesh.documents[0]:
            assert explained(world, explanation) == set(served(world, compiler, dataplane, explanation))
        else:
            assert explanation.access == ()


@for_meshes(LEGACY)
def test_a_row_of_a_traffic_route_is_in_the_document_of_its_policy(mesh: Mesh) -> None:
    """Its name is that of the policy, also where several rows have it."""
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, _, call in calls(world, Random(mesh.seed)):
        for row in explain(compiler, policies(), world, dataplane, call).rows:
            if row.owner is not None and row.owner.type == "TrafficRoute":
                assert row.origin is not None
                lines = mesh.text.splitlines()[: row.origin.line]
                assert f"name: {row.owner.name}" in lines
                assert row.origin.path.startswith("conf")


def test_legacy_policies_decide_in_the_meshes_that_are_drawn() -> None:
    """Or the comparisons would be of nothing."""
    wanted = {"Timeout", "Retry", "CircuitBreaker", "HealthCheck", "TrafficRoute", "TrafficPermission"}
    setting: set[str] = set()
    answers: set[str] = set()
    for seed in range(40):
        if setting >= wanted and answers == {LET_IN, REFUSED}:
            return
        world, compiler = mesh_of(seed, LEGACY).world(), Compiler(policies())
        for dataplane, _, call in calls(world, Random(seed)):
            explanation = explain(compiler, policies(), world, dataplane, call)
            values = [*explanation.values, *(value for backend in explanation.backends for value in backend.values)]
            setting |= {value.winner.policy.type for value in values if value.winner.policy is not None}
            setting |= {row.owner.type for row in explanation.rows if row.owner is not None}
            setting |= {
                access.decided_by.policy.type
                for access in explanation.access
                if access.decided_by and access.decided_by.policy
            }
            answers |= {answer for *_, answer in explained(world, explanation)}

    raise AssertionError(f"only {setting} and {answers}")

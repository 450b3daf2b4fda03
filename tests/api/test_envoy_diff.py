"""Where what an Envoy says that it has is not what it should have, on dumps as Envoy writes them."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from google.protobuf import json_format
from google.protobuf.message import Message

from cp.api.envoy_diff import NoConfigDump, compared_with_envoy
from cp.api.envoys import dumped_entries
from cp.model.checkpoint import never_stopped
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, SECRET, PackedResource
from cp.translate.snapshot import Snapshot, SnapshotPart

TYPES = {CLUSTER: Cluster, ENDPOINTS: ClusterLoadAssignment, LISTENER: Listener, SECRET: Secret}


def wanted(*resources: tuple[str, dict[str, Any]]) -> Snapshot:
    packed = []
    for type_url, data in resources:
        message: Message = json_format.ParseDict(data, TYPES[type_url]())
        name = str(data.get("name", data.get("cluster_name")))
        packed.append(PackedResource.of(type_url, name, message.SerializeToString()))
    return Snapshot(SnapshotPart(packed))


def cluster(name: str, timeout: str = "5s") -> dict[str, Any]:
    return {"name": name, "connect_timeout": timeout, "type": "EDS"}


def entry(data: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version_info": "1", "cluster": {"@type": CLUSTER, **data}, **more}


def differences(
    snapshot: Snapshot, *configs: dict[str, Any], draining: tuple[tuple[str, str], ...] = (), **refusals: str
) -> list[dict[str, Any]]:
    told = {(CLUSTER, name): reason for name, reason in refusals.items()}
    comparison = compared_with_envoy(snapshot, {"configs": list(configs)}, told, draining, never_stopped)
    return list(comparison.data["differences"])


def test_order_and_names_of_fields_make_no_difference() -> None:
    has = {"type": "EDS", "connectTimeout": "5.000s", "name": "a"}

    assert differences(wanted((CLUSTER, cluster("a"))), {"dynamic_active_clusters": [entry(has)]}) == []


def test_draining_resource_is_no_difference() -> None:
    active = {"dynamic_active_clusters": [entry(cluster("a"))]}

    assert differences(Snapshot(), active, draining=((CLUSTER, "a"),)) == []


def test_what_is_missing_or_too_much_or_different_is_told() -> None:
    snapshot = wanted(*((CLUSTER, cluster(name)) for name in "ab"))
    active = [entry(cluster("b", "7s")), entry(cluster("c"))]

    assert differences(snapshot, {"dynamic_active_clusters": active}, b="no good") == [
        {"type": "clusters", "name": "a", "state": "missing"},
        {
            "type": "clusters",
            "name": "b",
            "state": "different",
            "fields": [{"path": "connectTimeout", "wanted": "5s", "envoy": "7s"}],
            "reason": "no good",
        },
        {"type": "clusters", "name": "c", "state": "extra"},
    ]


def test_the_reason_of_a_refusal_is_told_without_the_dump_of_the_resource() -> None:
    said = 'goo.gle/debugproto  \nname: "a"\nhidden {\n  value: "s3cret"\n}\n: value must be less than 100'

    (difference,) = differences(wanted((CLUSTER, cluster("a"))), a=said)

    assert difference["reason"] == "value must be less than 100"


def test_what_is_not_ready_is_told_beside_what_is_in_force_meanwhile() -> None:
    snapshot = wanted(*((CLUSTER, cluster(name)) for name in "ab"))
    warming = {"dynamic_warming_clusters": [entry(cluster("a")), entry(cluster("b"))]}
    active = {"dynamic_active_clusters": [entry(cluster("b", "7s"))]}

    first, second = differences(snapshot, warming | active)

    assert (first["name"], first["state"], "fields" in first) == ("a", "warming", False)
    assert (second["name"], second["state"], len(second["fields"])) == ("b", "warming", 1)


def test_why_envoy_has_not_taken_a_listener_is_told_in_its_words() -> None:
    listener = {"name": "a", "traffic_direction": "INBOUND"}
    active = {"version_info": "1", "listener": {"@type": LISTENER, **listener}}
    fault = {"details": "cannot bind", "failed_configuration": {"@type": LISTENER, "name": "a"}}
    held = {"name": "a", "active_state": active, "error_state": fault}
    draining = {"name": "gone", "draining_state": active}

    assert differences(wanted((LISTENER, listener)), {"dynamic_listeners": [held, draining]}) == [
        {"type": "listeners", "name": "a", "state": "refused", "reason": "cannot bind"}
    ]


def test_an_agent_may_say_anything() -> None:
    strange: list[Any] = [{}, {"cluster": 5}, {"cluster": {"name": []}}, {"error_state": "x", "cluster": {"name": "b"}}]
    listeners: list[Any] = [{"name": "l", "active_state": 7}, {"active_state": {"listener": []}, "error_state": []}]

    told = differences(
        wanted((CLUSTER, cluster("a"))), {"dynamic_active_clusters": strange, "dynamic_listeners": listeners}
    )

    assert {"type": "clusters", "name": "a", "state": "missing"} in told


def assignment(*hosts: tuple[str, int]) -> dict[str, Any]:
    places = [
        {"endpoint": {"address": {"socket_address": {"address": host, "port_value": port}}}} for host, port in hosts
    ]
    return {"cluster_name": "a", "endpoints": [{"lb_endpoints": places}]}


def test_endpoints_are_compared_as_hosts() -> None:
    snapshot = wanted((ENDPOINTS, assignment(("192.0.2.1", 80), ("192.0.2.2", 80))))
    has = assignment(("192.0.2.2", 80), ("192.0.2.1", 80)) | {"policy": {"overprovisioning_factor": 140}}
    has["endpoints"][0]["lb_endpoints"][0] |= {"health_status": "HEALTHY", "load_balancing_weight": 1}
    of_others = {"endpoint_config": {"@type": ENDPOINTS, "cluster_name": "static"}}

    def compared(data: dict[str, Any]) -> list[dict[str, Any]]:
        mine = {"endpoint_config": {"@type": ENDPOINTS, **data}}
        return differences(snapshot, {"dynamic_endpoint_configs": [mine, of_others]})

    assert compared(has) == []
    (difference,) = compared(assignment(("192.0.2.1", 80)))
    assert [field["path"] for field in difference["fields"]] == ['hosts["192.0.2.2:80"]']


def test_what_cannot_be_read_is_told_and_all_else_compared() -> None:
    snapshot = wanted(*((CLUSTER, cluster(name)) for name in "ab"))
    active = [entry(cluster("a") | {"connect_timeout": {}}), entry(cluster("b"))]

    (difference,) = differences(snapshot, {"dynamic_active_clusters": active})

    assert (difference["name"], difference["fields"][0]["wanted"]) == ("a", "a resource")
    assert difference["fields"][0]["envoy"].startswith("something that cannot be read")


def test_secrets_are_compared_without_keys_and_without_those_of_the_proxy_itself() -> None:
    chain = {"certificate_chain": {"inline_string": "chain"}}
    secret = {"name": "a", "tls_certificate": chain | {"private_key": {"inline_string": "key"}}}
    shown = {"name": "a", "tls_certificate": chain | {"private_key": {"inline_string": "[redacted]"}}}
    other = {"name": "a", "tls_certificate": {"certificate_chain": {"inline_string": "older"}}}
    own = {"name": "identity", "secret": {"@type": SECRET, "name": "identity"}}

    def compared(data: dict[str, Any]) -> list[dict[str, Any]]:
        entries = [{"name": "a", "secret": {"@type": SECRET, **data}}, own]
        return differences(wanted((SECRET, secret)), {"dynamic_active_secrets": entries})

    assert compared(shown) == []
    assert [field["path"] for field in compared(other)[0]["fields"]] == ["tlsCertificate.certificateChain.inlineString"]


@pytest.mark.parametrize(
    "configs", [[1], [{"dynamic_active_clusters": 1}], [{"dynamic_active_clusters": [1]}]], ids=str
)
def test_what_is_no_dump_is_compared_with_nothing(configs: list[Any]) -> None:
    with pytest.raises(NoConfigDump):
        compared_with_envoy(Snapshot(), {"configs": configs}, {}, (), never_stopped)


@pytest.mark.parametrize("answer", [b'"text"', b"[]", b"null", b'{"configs": 1}'])
def test_what_has_no_entries_is_no_dump(answer: bytes) -> None:
    with pytest.raises(NoConfigDump):
        dumped_entries(answer)

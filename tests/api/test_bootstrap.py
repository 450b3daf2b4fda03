"""A proxy asks for its bootstrap configuration."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest
import yaml

from cp.api.work import CallerBusy, WorkQueue
from cp.model.registration import DRAIN_TIME
from tests.api.conftest import Api, Unit
from tests.api.samples import dataplane

WEB = {"mesh": "default", "name": "web-1"}


@pytest.fixture
def with_web(api: Api) -> Api:
    api.put("/meshes/default/dataplanes/web-1", dataplane()).raise_for_status()
    return api


def asked(api: Api, host: str = "localhost:5681", **wanted: Any) -> dict[str, Any]:
    answer = api.post("/bootstrap", json={**WEB, **wanted}, headers={"host": host})
    found: dict[str, Any] = json.loads(answer.raise_for_status().text)
    return found


def refused(api: Api, **wanted: Any) -> httpx.Response:
    return api.post("/bootstrap", json={**WEB, **wanted})


def control_plane(bootstrap: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    cluster, _ = bootstrap["staticResources"]["clusters"]
    (locality,) = cluster["loadAssignment"]["endpoints"]
    return cluster["type"], locality["lbEndpoints"][0]["endpoint"]["address"]["socketAddress"]


def test_a_proxy_is_called_by_its_mesh_and_name_and_counts_as_its_service(with_web: Api) -> None:
    node = asked(with_web)["node"]

    assert (node["id"], node["cluster"]) == ("default.web-1", "web")


def test_a_proxy_without_a_service_counts_as_its_workload(api: Api) -> None:
    untagged = dataplane() | {"labels": {"kuma.io/workload": "shop"}}
    del untagged["networking"]["inbound"]
    untagged["networking"]["gateway"] = {"tags": {"kuma.io/service": "edge"}}
    api.put("/meshes/default/dataplanes/web-1", untagged).raise_for_status()

    assert asked(api)["node"]["cluster"] == "edge"


def test_a_builtin_gateway_alone_asks_how_many_connections_it_takes(with_web: Api) -> None:
    edge = dataplane() | {"name": "edge-1"}
    gateway = {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}
    edge["networking"] = {"address": "127.0.0.2", "gateway": gateway}
    with_web.put("/meshes/default/dataplanes/edge-1", edge).raise_for_status()

    layers = [
        {layer["name"] for layer in asked(with_web, name=name)["layeredRuntime"]["layers"]}
        for name in ("web-1", "edge-1")
    ]

    assert layers[1] - layers[0] == {"koguma:limits"}


def test_the_control_plane_is_where_the_proxy_asked(start: Unit) -> None:
    with_web = start(hosts=["mesh.example.com"]).with_mesh()
    with_web.put("/meshes/default/dataplanes/web-1", dataplane()).raise_for_status()
    by_name = control_plane(asked(with_web, host="mesh.example.com:5681"))
    by_address = control_plane(asked(with_web, host="10.1.2.3:5681"))

    assert by_name == ("STRICT_DNS", {"address": "mesh.example.com", "portValue": 5678})
    assert by_address == ("STATIC", {"address": "10.1.2.3", "portValue": 5678})


def test_localhost_is_the_address_on_which_the_control_plane_listens(with_web: Api) -> None:
    assert control_plane(asked(with_web)) == ("STATIC", {"address": "127.0.0.1", "portValue": 5678})


def test_the_settings_can_say_where_the_control_plane_is(start: Unit, api: Api) -> None:
    ours = api.collaborators.for_proxies
    other = start(
        for_proxies=type(ours)(443, [("cp.internal", 0)], "127.0.0.1", 9901, admin_unix_socket=True)
    ).with_mesh()
    other.put("/meshes/default/dataplanes/web-1", dataplane())

    assert control_plane(asked(other)) == ("STRICT_DNS", {"address": "cp.internal", "portValue": 443})


def endpoints(bootstrap: dict[str, Any]) -> list[tuple[str, int]]:
    cluster, _ = bootstrap["staticResources"]["clusters"]
    (locality,) = cluster["loadAssignment"]["endpoints"]
    addresses = (host["endpoint"]["address"]["socketAddress"] for host in locality["lbEndpoints"])
    return [(address["address"], address["portValue"]) for address in addresses]


def test_a_proxy_that_knows_several_control_planes_begins_with_the_one_that_it_asked(with_web: Api) -> None:
    known = ["cp-1.example", "cp-2.example", "10.0.0.3"]
    bootstrap = asked(with_web, host="10.0.0.3:5681", controlPlanes=known)

    assert endpoints(bootstrap) == [("10.0.0.3", 5678), ("cp-1.example", 5678), ("cp-2.example", 5678)]


def test_the_settings_can_name_several_control_planes_with_their_ports(start: Unit, api: Api) -> None:
    ours = api.collaborators.for_proxies
    hosts = [("cp.internal", 0), ("10.0.0.3", 5679)]
    other = start(for_proxies=type(ours)(443, hosts, "127.0.0.1", 9901, admin_unix_socket=True)).with_mesh()
    other.put("/meshes/default/dataplanes/web-1", dataplane())

    assert endpoints(asked(other, controlPlanes=["cp-1.example"])) == [("cp.internal", 443), ("10.0.0.3", 5679)]


@pytest.mark.parametrize("hosts", [["cp-1:5678"], ["a b"], [""], ["x" * 300], ["cp"] * 33], ids=str)
def test_what_is_no_host_is_no_control_plane(with_web: Api, hosts: list[str]) -> None:
    answer = refused(with_web, controlPlanes=hosts)

    assert answer.status_code == 422
    assert "controlPlanes" in answer.json()["detail"]


def test_the_admin_interface_is_a_socket_in_the_work_folder(with_web: Api) -> None:
    admin = asked(with_web, workdir="/run/koguma/")["admin"]["address"]

    assert admin == {"pipe": {"path": "/run/koguma/envoy-admin.sock", "mode": 0o600}}


def test_the_admin_interface_is_a_port_without_a_work_folder(with_web: Api) -> None:
    assert asked(with_web)["admin"]["address"]["socketAddress"]["portValue"] == 9901


def test_a_dataplane_keeps_the_admin_port_that_it_asks_for(api: Api) -> None:
    api.put("/meshes/default/dataplanes/web-1", dataplane(admin={"port": 9000})).raise_for_status()

    assert asked(api, workdir="/run")["admin"]["address"]["socketAddress"] == {
        "address": "127.0.0.1",
        "portValue": 9000,
    }


def test_a_work_folder_with_too_long_a_name_for_a_socket_is_refused(with_web: Api) -> None:
    answer = refused(with_web, workdir="/run/" + "x" * 100)

    assert answer.status_code == 422
    assert "shorter work folder" in answer.json()["detail"]


def test_the_proxy_tells_envoy_what_it_knows_of_itself(with_web: Api) -> None:
    metadata = asked(with_web, workdir="/run", dynamicMetadata={"team": "a"})["node"]["metadata"]

    assert metadata["dataplane.admin.socketPath"] == "/run/envoy-admin.sock"
    assert metadata["dataplane.proxyType"] == "dataplane"
    assert metadata["dynamicMetadata"] == {"team": "a"}


@pytest.mark.parametrize(
    ("request_", "seconds"),
    [
        ({"listenerDrainSeconds": 5, "version": {"kumaDp": {"version": "2.14.3"}}}, 5),
        ({"listenerDrainSeconds": 0}, 0),
        ({"version": {"kumaDp": {"version": "2.14.3"}}}, 30),
        ({}, None),
    ],
)
def test_node_has_the_drain_time_of_listeners(with_web: Api, request_: dict[str, Any], seconds: int | None) -> None:
    assert asked(with_web, **request_)["node"].get("metadata", {}).get(DRAIN_TIME) == seconds


def test_the_token_goes_to_the_control_plane_with_every_stream(with_web: Api) -> None:
    (service,) = asked(with_web, dataplaneToken="abc")["dynamicResources"]["adsConfig"]["grpcServices"]

    assert service["initialMetadata"] == [{"key": "authorization", "value": "abc"}]


@pytest.mark.parametrize(("features", "api_type"), [([], "GRPC"), (["feature-delta-grpc"], "DELTA_GRPC")])
def test_a_proxy_that_asks_for_the_incremental_protocol_gets_it(
    with_web: Api, features: list[str], api_type: str
) -> None:
    assert asked(with_web, features=features)["dynamicResources"]["adsConfig"]["apiType"] == api_type


def test_a_client_of_kuma_gets_the_configuration_in_an_envelope(with_web: Api) -> None:
    answer = with_web.post("/bootstrap", json=WEB, headers={"accept": "application/json"}).json()

    assert yaml.safe_load(base64.b64decode(answer["bootstrap"]))["node"]["id"] == "default.web-1"
    assert answer["kumaSidecarConfiguration"]["networking"]["address"] == "127.0.0.1"


def test_a_dataplane_that_the_proxy_brings_along_need_not_be_stored(api: Api) -> None:
    text = yaml.safe_dump(dataplane(service="brought"))

    assert asked(api, dataplaneResource=text)["node"]["cluster"] == "brought"


def test_a_dataplane_that_is_brought_along_must_be_that_of_the_proxy(api: Api) -> None:
    answer = refused(api, dataplaneResource=yaml.safe_dump(dataplane("other")))

    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "dataplaneResource must be one document: Dataplane default/web-1",
    )


def test_a_dataplane_that_is_brought_along_must_be_valid(api: Api) -> None:
    answer = refused(api, dataplaneResource=yaml.safe_dump(dataplane(addresses="127.0.0.1")))

    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["invalid_parameters"]] == ["networking.addresses"]


def test_a_proxy_that_nobody_stored_is_told_how_to_store_it(api: Api) -> None:
    answer = refused(api)

    assert answer.status_code == 404
    assert "koguma dp run --dataplane-file" in answer.json()["detail"]


def test_kumas_agent_is_answered_without_a_body_so_that_it_tries_again(api: Api) -> None:
    answer = api.post("/bootstrap", json={"mesh": "default", "name": "web-1"}, headers={"accept": "application/json"})

    assert (answer.status_code, answer.content) == (404, b"")


def test_a_grpc_client_that_nobody_stored_is_told_so(api: Api) -> None:
    body = {"mesh": "default", "name": "web-1", "proxyType": "grpc"}
    answer = api.post("/bootstrap", json=body, headers={"accept": "application/json"})

    assert answer.status_code == 404
    assert "there is no Dataplane `web-1`" in answer.json()["detail"]


@pytest.mark.parametrize("resource", ["", yaml.safe_dump(dataplane(mesh="shop"))])
def test_a_proxy_of_a_mesh_that_is_not_there_is_refused_and_may_try_again(api: Api, resource: str) -> None:
    answer = refused(api, mesh="shop", dataplaneResource=resource)

    assert (answer.status_code, answer.headers["retry-after"]) == (422, "3")
    assert answer.json()["detail"] == "there is no Mesh `shop`; there is `default`"


def test_a_proxy_with_a_misspelt_name_is_told_the_one_that_was_meant(with_web: Api) -> None:
    assert "did you mean `web-1`?" in refused(with_web, name="wbe-1").json()["detail"]


@pytest.mark.parametrize("body", ["", "[]", '{"mesh": "default"}', '{"mesh": 1, "name": "web-1"}'])
def test_a_body_that_is_no_bootstrap_request_is_refused(api: Api, body: str) -> None:
    answer = api.post("/bootstrap", content=body, headers={"content-type": "application/json"})

    assert (answer.status_code, answer.json()["detail"].partition(":")[0]) == (400, "not a bootstrap request")


def test_other_sorts_of_proxies_are_refused(with_web: Api) -> None:
    assert "ingress" in refused(with_web, proxyType="ingress").json()["detail"]


def test_a_proxy_says_where_its_machine_keeps_those_whom_it_trusts(with_web: Api) -> None:
    def trusted(bootstrap: dict[str, Any]) -> str:
        (secret,) = bootstrap["staticResources"]["secrets"]
        return str(secret["validationContext"]["trustedCa"]["filename"])

    assert trusted(asked(with_web, systemCaPath="/etc/pki/ca.pem")) == "/etc/pki/ca.pem"
    assert asked(with_web, systemCaPath="/etc/pki/ca.pem")["node"]["metadata"]["systemCaPath"] == "/etc/pki/ca.pem"
    assert trusted(asked(with_web)) == "/etc/ssl/certs/ca-certificates.crt"


def grpc_client(api: Api) -> None:
    client = dataplane() | {"labels": {"koguma.io/client": "grpc", "kuma.io/zone": "east"}}
    api.put("/meshes/default/dataplanes/web-1", client).raise_for_status()


def test_a_grpc_client_is_told_who_it_is_and_where_to_ask(api: Api) -> None:
    grpc_client(api)

    assert asked(api, host="10.1.2.3:5681", proxyType="grpc") == {
        "xds_servers": [
            {
                "server_uri": "10.1.2.3:5678",
                "channel_creds": [{"type": "insecure"}],
                "server_features": ["xds_v3"],
            }
        ],
        "node": {"id": "default.web-1", "cluster": "web", "locality": {"zone": "east"}},
    }
    (server,) = asked(api, host="[fd00::1]:5681", proxyType="grpc")["xds_servers"]
    assert server["server_uri"] == "[fd00::1]:5678"


def test_a_grpc_client_is_told_of_further_control_planes(api: Api) -> None:
    grpc_client(api)

    servers = asked(api, proxyType="grpc", controlPlanes=["localhost", "cp-2.example", "::1"])["xds_servers"]

    assert [server["server_uri"] for server in servers] == ["127.0.0.1:5678", "cp-2.example:5678", "[::1]:5678"]


def test_a_grpc_client_with_certificates_is_told_where_they_are_and_tells_so(api: Api) -> None:
    grpc_client(api)
    files = {"certificate": "/c/leaf.pem", "key": "/c/key.pem", "authorities": "/c/roots.pem"}

    bootstrap = asked(api, proxyType="grpc", certificateFiles=files)

    assert bootstrap["node"]["metadata"] == {"koguma.io/certificates": "koguma"}
    provider = bootstrap["certificate_providers"]["koguma"]
    assert provider["plugin_name"] == "file_watcher"
    assert provider["config"] == {
        "certificate_file": "/c/leaf.pem",
        "private_key_file": "/c/key.pem",
        "ca_certificate_file": "/c/roots.pem",
        "refresh_interval": "2s",
    }


def test_a_proxy_is_no_grpc_client_and_the_other_way_round(with_web: Api) -> None:
    no_client = refused(with_web, proxyType="grpc")
    grpc_client(with_web)
    no_proxy = refused(with_web)

    assert "give it the label `koguma.io/client: grpc`" in no_client.json()["detail"]
    assert "ask `koguma dp grpc-bootstrap web-1 --mesh default`" in no_proxy.json()["detail"]
    assert (no_client.status_code, no_proxy.status_code) == (422, 422)


def test_many_proxies_of_one_address_are_told_to_try_again(with_web: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """kuma-dp ends after any error of the client, and a fleet may be behind one address."""

    def reject(_queue: WorkQueue, _caller: str) -> None:
        raise CallerBusy(429, "Too many requests", "wait", headers={"retry-after": "5"})

    monkeypatch.setattr(WorkQueue, "_must_have_room", reject)

    answer = refused(with_web)

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")

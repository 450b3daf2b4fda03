"""Legacy policies over the API, under the paths that Kuma's tools know."""

from typing import Any

import pytest

from cp.api.kuma_only import KUMA_ONLY
from cp.model.source import LEGACY_POLICIES
from tests.api.conftest import KINDS, Api, FixedState
from tests.api.samples import dataplane

ANY = [{"match": {"kuma.io/service": "*"}}]
HTTP = [{"match": {"kuma.io/service": "*", "kuma.io/protocol": "http"}}]
TIMES = {"interval": "1s", "timeout": "1s", "unhealthyThreshold": 1, "healthyThreshold": 1}
BETWEEN: dict[str, Any] = {"sources": ANY, "destinations": ANY}

POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "circuit-breakers": ("CircuitBreaker", {**BETWEEN, "conf": {"thresholds": {"maxConnections": 1}}}),
    "fault-injections": (
        "FaultInjection",
        {"sources": ANY, "destinations": HTTP, "conf": {"abort": {"percentage": 0.5, "httpStatus": 500}}},
    ),
    "health-checks": ("HealthCheck", {**BETWEEN, "conf": TIMES}),
    "proxytemplates": ("ProxyTemplate", {"selectors": ANY, "conf": {"imports": ["default-proxy"]}}),
    "rate-limits": ("RateLimit", {**BETWEEN, "conf": {"http": {"requests": 1, "interval": "1s"}}}),
    "retries": ("Retry", {**BETWEEN, "conf": {"http": {"numRetries": 1}}}),
    "timeouts": ("Timeout", {**BETWEEN, "conf": {"connectTimeout": "1s"}}),
    "traffic-logs": ("TrafficLog", BETWEEN),
    "traffic-permissions": ("TrafficPermission", BETWEEN),
    "traffic-routes": ("TrafficRoute", {**BETWEEN, "conf": {"destination": {"kuma.io/service": "*"}}}),
    "traffic-traces": ("TrafficTrace", {"selectors": ANY}),
}

OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "meshgatewayroutes": (
        "MeshGatewayRoute",
        {"selectors": ANY, "conf": {"tcp": {"rules": [{"backends": [{"destination": {"kuma.io/service": "web"}}]}]}}},
    ),
    "virtual-outbounds": (
        "VirtualOutbound",
        {
            "selectors": ANY,
            "conf": {
                "host": "{{.service}}.mesh",
                "port": "80",
                "parameters": [{"name": "service", "tagKey": "kuma.io/service"}],
            },
        },
    ),
}
"""Those that are about gateways and names."""

EVERY = {**POLICIES, **OTHERS}


@pytest.mark.parametrize("plural", EVERY)
def test_a_legacy_policy_is_written_read_listed_and_deleted(api: Api, plural: str) -> None:
    kind, data = EVERY[plural]
    path, document = f"/meshes/default/{plural}/all", {"type": kind, "mesh": "default", "name": "all", **data}

    assert api.put(path, document).status_code == 201
    read = api.get(path).json()
    assert {name: read[name] for name in document} == document
    assert [item["name"] for item in api.get(f"/meshes/default/{plural}").json()["items"]] == ["all"]
    assert [item["type"] for item in api.get(f"/{plural}").json()["items"]] == [kind]
    assert api.delete(path).status_code == 200
    assert api.get(path).status_code == 404


@pytest.mark.parametrize("plural", EVERY)
def test_what_is_wrong_with_a_legacy_policy_is_said_at_once(api: Api, plural: str) -> None:
    kind, _ = EVERY[plural]
    wrong = {"type": kind, "mesh": "default", "name": "all", "sources": 1, "selectors": 2}
    answer = api.put(f"/meshes/default/{plural}/all", wrong)

    assert answer.status_code == 400
    assert {"sources", "selectors"} <= {fault["field"] for fault in answer.json()["invalid_parameters"]}


def test_each_of_them_is_a_kind_of_its_own_and_none_of_kumas_alone() -> None:
    assert {kind for kind, _ in EVERY.values()} == LEGACY_POLICIES
    assert {KINDS[kind].plural for kind, _ in EVERY.values()} == set(EVERY)
    assert not EVERY.keys() & KUMA_ONLY.keys()


@pytest.mark.parametrize("plural", POLICIES)
def test_the_proxies_that_a_legacy_policy_selects_are_listed(api: Api, plural: str) -> None:
    kind, data = POLICIES[plural]
    api.put("/meshes/default/dataplanes/web-1", dataplane("web-1")).raise_for_status()
    document = {"type": kind, "mesh": "default", "name": "all", **data}
    api.put(f"/meshes/default/{plural}/all", document).raise_for_status()
    asked = Api(api._runner, store=api.store, state=FixedState(api.world()))

    answer = asked.get(f"/meshes/default/{plural}/all/_resources/dataplanes").json()

    assert (answer["total"], answer["next"]) == (1, None)
    assert [(item["type"], item["mesh"], item["name"]) for item in answer["items"]] == [
        ("Dataplane", "default", "web-1")
    ]


def test_what_holds_of_legacy_policies_is_in_the_rules_of_a_proxy(api: Api) -> None:
    calling = dataplane("web-1")
    calling["networking"]["outbound"] = [{"port": 10001, "tags": {"kuma.io/service": "api"}}]
    api.put("/meshes/default/dataplanes/web-1", calling).raise_for_status()
    kind, data = POLICIES["timeouts"]
    document = {"type": kind, "mesh": "default", "name": "all", **data}
    asked = Api(api._runner, store=api.store, state=FixedState(api.world()))
    before = asked.get("/meshes/default/dataplanes/web-1/_rules").json()
    api.put("/meshes/default/timeouts/all", document).raise_for_status()
    asked = Api(api._runner, store=api.store, state=FixedState(api.world()))

    (rule,) = asked.get("/meshes/default/dataplanes/web-1/_rules").json()["legacyRules"]

    assert "legacyRules" not in before
    assert (rule["type"], rule["where"], rule["conf"]) == ("Timeout", "to api", {"conf.connectTimeout": "1s"})
    assert [origin["resourceMeta"] for origin in rule["origin"]] == [
        {"type": "Timeout", "mesh": "default", "name": "all"}
    ]

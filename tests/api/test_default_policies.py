"""The policies that a new Mesh starts with, as the HTTP API stores them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.engine import Engine
from cp.resources.initial_policies import initial_policies
from cp.rules.matching import precedence
from tests.api.conftest import Api, Unit

ALL = {
    "mesh-timeout-all-shop",
    "mesh-gateways-timeout-all-shop",
    "mesh-circuit-breaker-all-shop",
    "mesh-retry-all-shop",
}
LEGACY = {
    "allow-all-shop",
    "route-all-shop",
    "timeout-all-shop",
    "circuit-breaker-all-shop",
    "retry-all-shop",
}
TIMEOUTS = {"mesh-timeout-all-shop", "mesh-gateways-timeout-all-shop"}


MESHES = {
    engine: Document(Key("Mesh", "", "shop"), {"type": "Mesh", "name": "shop", "policyEngine": engine})
    for engine in ("TargetRef", "Legacy")
}


@pytest.fixture
def api(start: Unit) -> Api:
    """An API that gives default policies to new meshes."""
    return with_engine(start, "TargetRef")


def with_engine(start: Unit, engine: Engine) -> Api:
    return start(companions=initial_policies, engine=engine, kinds=kinds(discover(), engine))


def shop(**fields: Any) -> dict[str, Any]:
    return {"type": "Mesh", "name": "shop", **fields}


def policies(api: Api, **fields: Any) -> set[str]:
    """The names of the policies of a mesh that is new."""
    api.put("/meshes/shop", shop(**fields)).raise_for_status()
    return {one.name for kind in api.kinds.values() if kind.policy or kind.legacy for one in in_mesh(api, kind.name)}


def in_mesh(api: Api, kind: str) -> list[Any]:
    return list(api.world().table(kind, "shop"))


def test_a_new_mesh_has_the_policies_that_kuma_gives_it(api: Api) -> None:
    assert policies(api) == ALL

    retry = api.get("/meshes/shop/meshretries/mesh-retry-all-shop").json()
    assert retry["spec"]["to"][0]["default"]["tcp"] == {"maxConnectAttempt": 5}
    assert retry["spec"]["to"][0]["default"]["grpc"]["perTryTimeout"] == "16s"
    breaker = api.get("/meshes/shop/meshcircuitbreakers/mesh-circuit-breaker-all-shop").json()
    assert breaker["spec"]["to"][0]["default"]["connectionLimits"]["maxRetries"] == 3


def test_a_new_mesh_of_the_legacy_engine_has_those_that_kuma_once_gave_it(start: Unit) -> None:
    """The same numbers as under the other engine, for everybody's calls to everybody."""
    api = with_engine(start, "Legacy")
    assert policies(api) == LEGACY

    for plural in ("traffic-permissions", "traffic-routes", "timeouts", "circuit-breakers", "retries"):
        (policy,) = api.get(f"/meshes/shop/{plural}").json()["items"]
        assert policy["sources"] == policy["destinations"] == [{"match": {"kuma.io/service": "*"}}]
    assert api.get("/meshes/shop/traffic-routes/route-all-shop").json()["conf"]["destination"] == {
        "kuma.io/service": "*"
    }
    assert api.get("/meshes/shop/timeouts/timeout-all-shop").json()["conf"]["http"]["streamIdleTimeout"] == "30m"
    breaker = api.get("/meshes/shop/circuit-breakers/circuit-breaker-all-shop").json()
    assert breaker["conf"]["thresholds"]["maxRetries"] == 3
    assert api.get("/meshes/shop/retries/retry-all-shop").json()["conf"]["tcp"] == {"maxConnectAttempts": 5}


@pytest.mark.parametrize("engine", ["TargetRef", "Legacy"])
def test_every_one_of_them_is_valid_and_what_the_api_would_accept(start: Unit, engine: Engine) -> None:
    api = with_engine(start, engine)
    names = policies(api)

    assert {document.key.name for document in initial_policies(MESHES[engine])} == names
    for kind in {api.kinds[document.key.type].plural for document in initial_policies(MESHES[engine])}:
        for item in api.get(f"/meshes/shop/{kind}").json()["items"]:
            body = {key: value for key, value in item.items() if key not in {"creationTime", "modificationTime", "kri"}}
            assert api.put(f"/meshes/shop/{kind}/{item['name']}", body).status_code == 200


@pytest.mark.parametrize(
    ("setting", "of_mesh", "expected"),
    [
        ("TargetRef", None, ALL),
        ("TargetRef", "Undefined", ALL),
        ("TargetRef", "Legacy", LEGACY),
        ("TargetRef", "TargetRef", ALL),
        ("Legacy", None, LEGACY),
        ("Legacy", "Undefined", LEGACY),
        ("Legacy", "Legacy", LEGACY),
        ("Legacy", "TargetRef", ALL),
    ],
)
def test_the_engine_of_the_mesh_counts_before_that_of_the_settings(
    start: Unit, setting: Engine, of_mesh: str | None, expected: set[str]
) -> None:
    said = {} if of_mesh is None else {"policyEngine": of_mesh}

    assert policies(with_engine(start, setting), **said) == expected


@pytest.mark.parametrize(
    ("skipped", "left"),
    [(["*"], set()), (["MeshTimeout"], ALL - TIMEOUTS), (["MeshRetry", "*"], set()), ([], ALL), (None, ALL)],
)
def test_a_mesh_says_which_kinds_it_does_not_start_with(api: Api, skipped: list[str] | None, left: set[str]) -> None:
    assert policies(api, skipCreatingInitialPolicies=skipped) == left


@pytest.mark.parametrize(
    ("skipped", "left"),
    [(["*"], set()), (["TrafficRoute", "Timeout"], LEGACY - {"route-all-shop", "timeout-all-shop"})],
)
def test_a_mesh_of_the_legacy_engine_says_so_too(start: Unit, skipped: list[str], left: set[str]) -> None:
    assert policies(with_engine(start, "Legacy"), skipCreatingInitialPolicies=skipped) == left


def test_a_mesh_that_is_there_already_gets_none(start: Unit) -> None:
    api = with_engine(start, "Legacy")
    policies(api)

    assert policies(api, policyEngine="TargetRef") == LEGACY


def test_policies_that_were_deleted_stay_deleted(api: Api) -> None:
    policies(api)
    api.delete("/meshes/shop/meshretries/mesh-retry-all-shop").raise_for_status()

    assert policies(api, meshServices={"mode": "Exclusive"}) == ALL - {"mesh-retry-all-shop"}


def test_a_policy_for_the_whole_mesh_is_stronger_whatever_its_name(api: Api) -> None:
    policies(api)
    spec = {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "3s"}}]}
    body = {"type": "MeshTimeout", "mesh": "shop", "name": "zzz", "spec": spec}
    api.put("/meshes/shop/meshtimeouts/zzz", body).raise_for_status()

    strongest = min(in_mesh(api, "MeshTimeout"), key=precedence)
    assert strongest.name == "zzz"


def test_a_mesh_in_which_nobody_wrote_anything_is_deleted_with_its_policies(api: Api) -> None:
    policies(api)

    assert api.delete("/meshes/shop").status_code == 200
    assert policies(api, skipCreatingInitialPolicies=["*"]) == set()


def test_a_default_policy_that_somebody_changed_keeps_its_mesh(api: Api) -> None:
    policies(api)
    name = "mesh-retry-all-shop"
    spec = {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"http": {"numRetries": 1}}}]}
    body = {"type": "MeshRetry", "mesh": "shop", "name": name, "spec": spec}
    api.put(f"/meshes/shop/meshretries/{name}", body).raise_for_status()

    answer = api.delete("/meshes/shop")
    assert answer.status_code == 400
    assert f"still has MeshRetry shop/{name}" in str(answer.json())
    assert "mesh-timeout-all-shop" not in str(answer.json())


def test_a_mesh_that_has_another_engine_by_now_still_takes_along_what_it_came_with(start: Unit) -> None:
    api = start(companions=initial_policies)
    api.put("/meshes/demo", {"type": "Mesh", "name": "demo"}).raise_for_status()
    api.put("/meshes/demo", {"type": "Mesh", "name": "demo", "policyEngine": "Legacy"}).raise_for_status()

    assert api.delete("/meshes/demo").status_code == 200
    assert list(api.world().table("MeshTimeout", "demo")) == []


@pytest.mark.parametrize("write", ["PUT", "apply"])
def test_a_legacy_policy_that_somebody_writes_is_newer_than_those_that_the_mesh_starts_with(
    start: Unit, write: str
) -> None:
    """Also one that is written together with the mesh, whatever its name."""
    api = with_engine(start, "Legacy")
    default = next(document for document in initial_policies(MESHES["Legacy"]) if document.key.type == "Timeout")
    mine = {**default.data, "name": "zzz", "conf": {"connectTimeout": "3s"}}
    if write == "PUT":
        policies(api)
        api.put("/meshes/shop/timeouts/zzz", mine).raise_for_status()
    else:
        texts = [{"text": json.dumps(data)} for data in (shop(), mine)]
        api.post("/_apply", json={"resources": texts}).raise_for_status()

    ages = {policy.name: policy.source.created for policy in in_mesh(api, "Timeout")}
    assert ages["zzz"] > ages["timeout-all-shop"] > ""

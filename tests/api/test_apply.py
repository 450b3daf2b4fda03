"""`POST /_apply`: all or nothing, and one revision."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
import structlog
import yaml

from cp.model.document import Document
from cp.model.names import Key
from cp.resources.initial_policies import initial_policies
from cp.resources.limits import BYTES_OF_PROXY
from cp.store.port import Put
from tests.api.conftest import Api, Unit
from tests.api.samples import timeout


def apply(api: Api, *resources: dict[str, Any] | str, place: str = "") -> httpx.Response:
    texts = (one if isinstance(one, str) else yaml.safe_dump(one) for one in resources)
    return api.post("/_apply", json={"resources": [{"text": text, "place": place} for text in texts]})


def outcomes(answer: httpx.Response) -> list[tuple[str, str]]:
    return [(one["name"], one["outcome"]) for one in answer.json()["resources"]]


@pytest.fixture
def api(api: Api) -> Api:
    """With a Mesh to write into."""
    apply(api, {"type": "Mesh", "name": "default"})
    return api


def revision(answer: httpx.Response) -> int:
    return int(answer.headers["koguma-revision"])


def test_what_is_written_together_is_one_revision(api: Api) -> None:
    before = revision(apply(api, timeout("first")))

    answer = apply(api, timeout("one"), timeout("two"), {"type": "Mesh", "name": "shop"}, timeout("three", mesh="shop"))

    assert answer.status_code == 200
    assert outcomes(answer) == [(name, "Created") for name in ("one", "two", "shop", "three")]
    assert revision(answer) == before + 1
    assert api.get("/meshes/shop/meshtimeouts/three").status_code == 200


@pytest.mark.parametrize(
    ("more", "reason"),
    [(f"# {'x' * 5_000_000}", "is larger than 4 MiB"), ("# " + "," * 200_000, "values: 100000 are the most")],
)
def test_a_resource_is_limited_as_alone(api: Api, more: str, reason: str) -> None:
    text = yaml.safe_dump(timeout("one")) + more

    together = apply(api, timeout("two"), text, place="mesh.yaml:3")
    alone = api.put_yaml("/meshes/default/meshtimeouts/one", text)

    assert (together.status_code, alone.status_code) in {(400, 413), (400, 400)}
    assert reason in together.json()["detail"]
    assert "mesh.yaml:3: the resource" in together.json()["detail"]


def test_what_is_there_as_it_is_stays_and_makes_no_revision(api: Api) -> None:
    apply(api, timeout("one"), timeout("two"))

    again, changed = (
        apply(api, timeout("one"), timeout("two")),
        apply(api, timeout("one"), timeout("two", request_timeout="7s")),
    )

    assert outcomes(again) == [("one", "Unchanged"), ("two", "Unchanged")]
    assert "koguma-revision" not in again.headers
    assert outcomes(changed) == [("one", "Unchanged"), ("two", "Updated")]
    assert "koguma-revision" in changed.headers


def test_a_dry_run_tells_the_same_and_writes_nothing(api: Api) -> None:
    apply(api, timeout("one"), timeout("two"))
    texts = [timeout("one"), timeout("two", request_timeout="7s"), timeout("three")]
    body = {"resources": [{"text": yaml.safe_dump(text)} for text in texts]}

    tried = api.post("/_apply", json=body, params={"dryRun": "true"})

    assert outcomes(tried) == [("one", "Unchanged"), ("two", "Updated"), ("three", "Created")]
    assert "koguma-revision" not in tried.headers
    assert outcomes(apply(api, *texts)) == outcomes(tried)


def test_a_control_plane_that_is_only_read_says_what_a_write_would_do(start: Unit) -> None:
    api = start(read_only=True)
    body = {"resources": [{"text": "{type: Mesh, name: shop}"}]}

    assert outcomes(api.post("/_apply", json=body, params={"dryRun": "true"})) == [("shop", "Created")]


def test_what_is_written_together_is_logged_with_names_and_with_who_wrote_it(api: Api) -> None:
    with structlog.testing.capture_logs() as logged:
        apply(api, *(timeout(f"t{number:02}") for number in range(12)))

    (line,) = [entry for entry in logged if entry["event"] == "api.applied"]
    assert line["resources"][0] == "MeshTimeout default/t00"
    assert line["resources"][-1] == "and 2 more"
    assert line["caller"]


def test_one_that_is_wrong_keeps_all_out_and_everything_that_is_wrong_is_told(api: Api) -> None:
    wrong = timeout("wrong") | {"spec": {"to": 3}}
    answer = apply(api, timeout("right"), wrong, timeout("astray", mesh="nowhere"), "a: [", place="x.yaml:10")

    faults = {fault["field"]: fault for fault in answer.json()["invalid_parameters"]}
    assert answer.status_code == 400
    assert faults.keys() >= {"spec.to", "mesh"}
    assert "there is no Mesh `nowhere`" in faults["mesh"]["reason"]
    assert {fault["file"] for fault in faults.values()} == {"x.yaml"}
    assert min(fault["line"] for fault in faults.values()) >= 10
    assert api.get("/meshes/default/meshtimeouts/right").status_code == 404


def test_one_resource_twice_is_a_mistake(api: Api) -> None:
    answer = apply(api, timeout("one"), timeout("one", request_timeout="7s"))

    assert (answer.status_code, "one" in answer.text) == (400, True)


def test_a_permission_is_warned_of_unless_its_mesh_has_mtls_by_then(api: Api) -> None:
    match = {"spiffeID": {"type": "Exact", "value": "spiffe://default/web"}}
    spec = {"rules": [{"default": {"allow": [match]}}]}
    permission = {"type": "MeshTrafficPermission", "mesh": "default", "name": "p", "spec": spec}
    authority = {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin"}]}

    (alone,) = apply(api, permission).json()["resources"]
    with_mtls = apply(api, permission, {"type": "Mesh", "name": "default", "mtls": authority}).json()["resources"]

    assert "has no effect: no mTLS in this mesh" in "".join(alone["warnings"])
    assert all("warnings" not in outcome for outcome in with_mtls)


def test_a_new_mesh_brings_its_policies_unless_they_come_along(start: Unit) -> None:
    api = start(companions=initial_policies)
    mine = timeout("mesh-timeout-all-shop", "shop", "7s")

    apply(api, mine, {"type": "Mesh", "name": "shop"})

    assert "7s" in api.get("/meshes/shop/meshtimeouts/mesh-timeout-all-shop").text
    assert api.get("/meshes/shop/meshretries").json()["total"] > 0


def test_what_is_no_list_of_resources_is_refused(api: Api) -> None:
    bodies: list[Any] = [{}, {"resources": []}, {"resources": [{"text": 3}]}]
    for body in bodies:
        answer = api.post("/_apply", json=body)
        assert (answer.status_code, "resources" in answer.json()["detail"]) == (400, True)


def test_a_control_plane_that_is_only_read_takes_nothing(start: Unit) -> None:
    assert apply(start(read_only=True), {"type": "Mesh", "name": "default"}).status_code == 405


def stored_over_limit(api: Api, name: str = "large") -> tuple[dict[str, Any], dict[str, Any]]:
    """A document that an earlier version has stored, and another one of the same name."""
    large = timeout(name)
    large["spec"]["to"] *= 1_001
    asyncio.run(api.store.write(Put(Document(Key("MeshTimeout", "default", name), large))))
    larger = timeout(name)
    larger["spec"]["to"] *= 1_002
    return large, larger


def applied(api: Api, document: dict[str, Any], **query: str) -> httpx.Response:
    texts = [{"text": json.dumps(document)}, {"text": json.dumps(timeout("small"))}]
    return api.post("/_apply", json={"resources": texts}, params=query)


def test_document_over_limit_is_applied_unchanged(api: Api) -> None:
    """A pipeline that applies a folder goes on after an upgrade."""
    large, larger = stored_over_limit(api)

    answer = applied(api, large).raise_for_status().json()["resources"]
    assert {each["name"]: each["outcome"] for each in answer} == {"large": "Unchanged", "small": "Created"}
    (warning,) = answer[0]["warnings"]
    assert "has 1001 entries, and 1000 are the most; it is used as it is" in warning
    refused = applied(api, larger)
    assert (refused.status_code, "has 1002 entries" in refused.text) == (400, True)
    assert applied(api, {**larger, "name": "new"}).status_code == 400


def test_document_over_limit_hides_no_other_fault(api: Api) -> None:
    """Another document of its name has a fault of its own, which is not tolerated."""
    large, _ = stored_over_limit(api, "r.app")
    items = [
        {"targetRef": {"kind": "MeshService", "name": "r", "namespace": namespace}, "default": {"idleTimeout": "1s"}}
        for namespace in ("app", "other")
    ]
    misplaced = {
        "apiVersion": "kuma.io/v1alpha1",
        "kind": "MeshTimeout",
        "metadata": {"name": "r", "namespace": "app", "labels": {"kuma.io/mesh": "default"}},
        "spec": {"targetRef": {"kind": "Mesh"}, "to": items},
    }

    texts = [{"text": json.dumps(document)} for document in (large, misplaced)]
    answer = api.post("/_apply", json={"resources": texts})

    assert (answer.status_code, "1001 entries" in answer.text) == (400, False), answer.text


def test_document_over_limit_is_put_unchanged(api: Api) -> None:
    large, larger = stored_over_limit(api)

    answer = api.put("/meshes/default/meshtimeouts/large", large)
    assert (answer.status_code, "koguma-revision" in answer.headers) == (200, False)
    assert "has 1001 entries" in answer.json()["warnings"][0]
    assert api.put("/meshes/default/meshtimeouts/large", larger).status_code == 400
    assert api.put("/meshes/default/meshtimeouts/new", {**large, "name": "new"}).status_code == 400


def test_writes_of_too_many_ports_warn(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cp.resources.limits.DESTINATION_BYTES", BYTES_OF_PROXY.most)
    spec = {
        "selector": {"dataplaneTags": {"kuma.io/service": "web"}},
        "ports": [{"port": port, "targetPort": 8080} for port in (80, 81)],
    }
    service = {"type": "MeshService", "mesh": "default", "name": "web", "spec": spec}

    of_put = api.put("/meshes/default/meshservices/web", service).raise_for_status().json()["warnings"]
    (of_apply,) = apply(api, service).raise_for_status().json()["resources"]

    for warnings in (of_put, of_apply["warnings"]):
        assert ["have 2 ports, and a proxy has room for 1" in warning for warning in warnings] == [True]

"""Resources over HTTP, as Kuma has them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from cp.api.parameters import KNOWN
from cp.api.requirements import REQUIREMENTS
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.secret import secret_document
from cp.resources.world import World
from tests.api.conftest import KINDS, Api, FixedState, Unit
from tests.api.samples import TIMEOUT_YAML, dataplane, timeout

SLOW = "/meshes/default/meshtimeouts/slow"


def test_a_new_resource_is_answered_with_201_and_an_existing_one_with_200(api: Api) -> None:
    created, updated = api.put(SLOW, timeout()), api.put(SLOW, timeout(request_timeout="11s"))

    assert (created.status_code, created.json()) == (201, {})
    assert (updated.status_code, updated.json()) == (200, {})


def of_kumactl(name: str = "backend") -> dict[str, Any]:
    """A MeshService as kumactl sends it: with what Kuma's control plane adds."""
    return {
        "type": "MeshService",
        "mesh": "default",
        "name": name,
        "creationTime": "0001-01-01T00:00:00Z",
        "modificationTime": "0001-01-01T00:00:00Z",
        "kri": f"kri_msvc_default___{name}_",
        "snis": [{"port": "http", "sni": "sni.msvc.default..backend.http"}],
        "spec": {
            "state": "Available",
            "selector": {"dataplaneTags": {"kuma.io/service": "backend"}},
            "ports": [{"port": 80, "name": "http", "targetPort": 8080, "appProtocol": "http"}],
        },
        "status": {"tls": {"status": "NotReady"}, "dataplaneProxies": {"connected": 1, "healthy": 1, "total": 1}},
    }


def test_what_kumactl_adds_to_a_service_is_taken_and_not_kept(api: Api) -> None:
    written = api.put("/meshes/default/meshservices/backend", of_kumactl())
    found = api.get("/meshes/default/meshservices/backend").json()

    assert (written.status_code, written.json()) == (201, {})
    assert "snis" not in found
    assert not found["creationTime"].startswith("0001")


def test_what_was_read_is_written_again_without_changing_anything(api: Api) -> None:
    api.put("/meshes/default/meshservices/backend", of_kumactl())
    again = api.put("/meshes/default/meshservices/backend", api.get("/meshes/default/meshservices/backend").json())

    assert again.status_code == 200
    assert "koguma-revision" not in again.headers


@pytest.mark.parametrize("kind", ["MeshTimeout", "Dataplane"])
def test_snis_are_the_field_of_services_alone(api: Api, kind: str) -> None:
    plural = f"{kind.lower()}s"
    answer = api.put(f"/meshes/default/{plural}/x", {"type": kind, "mesh": "default", "name": "x", "snis": []})

    assert "snis" in {fault["field"] for fault in answer.json()["invalid_parameters"]}


def test_what_was_written_is_read_again_with_its_dates_and_its_kri(api: Api) -> None:
    api.put(SLOW, timeout())

    found = api.get(SLOW).json()

    assert datetime.fromisoformat(found.pop("creationTime")) <= datetime.fromisoformat(found.pop("modificationTime"))
    assert found.pop("kri") == "kri_mt_default___slow_"
    assert found == timeout()


def test_what_was_exported_is_as_old_as_it_was_where_it_is_written_again(api: Api) -> None:
    """Of legacy policies that are as specific the newest holds."""
    api.put(SLOW, timeout())
    exported = api.get(SLOW).json()
    api.delete(SLOW)
    api.put(SLOW, exported)

    assert api.get(SLOW).json()["creationTime"] == exported["creationTime"]
    api.put(SLOW, {**timeout(request_timeout="9s"), "creationTime": "2020-01-01T00:00:00Z"})
    assert api.get(SLOW).json()["creationTime"] == exported["creationTime"]


def test_the_fields_of_an_old_type_stand_beside_its_name(api: Api) -> None:
    api.put("/meshes/default/dataplanes/web-1", dataplane())

    found = api.get("/meshes/default/dataplanes/web-1").json()

    assert found["networking"]["address"] == "127.0.0.1"
    assert "spec" not in found


def test_a_deleted_resource_is_gone(api: Api) -> None:
    api.put(SLOW, timeout())

    assert (api.delete(SLOW).status_code, api.get(SLOW).status_code) == (200, 404)


def test_nothing_that_is_not_there_can_be_deleted(api: Api) -> None:
    answer = api.delete(SLOW)

    assert (answer.status_code, answer.json()["detail"]) == (404, "there is no MeshTimeout `slow`")


def test_a_warning_of_something_deprecated_is_in_the_answer(api: Api) -> None:
    old = timeout()
    old["spec"]["targetRef"] = {"kind": "MeshSubset", "tags": {"kuma.io/service": "web"}}

    answer = api.put(SLOW, old)

    assert answer.status_code == 201
    assert any("MeshSubset" in warning for warning in answer.json()["warnings"])


def permission() -> dict[str, Any]:
    allowed = {"allow": [{"spiffeID": {"type": "Exact", "value": "spiffe://default/web"}}]}
    return {"type": "MeshTrafficPermission", "mesh": "default", "name": "p", "spec": {"rules": [{"default": allowed}]}}


@pytest.mark.parametrize("has_mtls", [True, False])
def test_a_permission_in_a_mesh_without_mtls_is_warned_of(start: Unit, *, has_mtls: bool) -> None:
    authority = {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin"}]}
    mesh = {"type": "Mesh", "name": "default", **({"mtls": authority} if has_mtls else {})}
    world = World.of([Document(Key("Mesh", "", "default"), mesh)], KINDS)
    api = start(state=FixedState(world)).with_mesh()

    warnings = api.put("/meshes/default/meshtrafficpermissions/p", permission()).json().get("warnings", [])

    assert ["has no effect: no mTLS in this mesh" in warning for warning in warnings] == ([] if has_mtls else [True])


CLOSED = "nobody may call web-1:8080 and 1 more inbounds: with mTLS one has to be allowed"


@pytest.mark.parametrize(("permissions", "is_closed"), [((), True), ((permission(),), False)])
def test_who_switches_mtls_on_without_a_permission_is_told_that_nobody_may_call_then(
    start: Unit, permissions: tuple[dict[str, Any], ...], *, is_closed: bool
) -> None:
    open_mesh = {"type": "Mesh", "name": "default"}
    there = [open_mesh, dataplane("web-1"), dataplane("web-2"), *permissions]
    documents = [Document(Key(each["type"], each.get("mesh", ""), each["name"]), each) for each in there]
    api = start(state=FixedState(World.of(documents, KINDS))).with_mesh()
    closed = {**open_mesh, "mtls": {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin"}]}}

    of_open = api.put("/meshes/default", {**open_mesh, "labels": {"a": "b"}}).json().get("warnings", [])
    of_dry_run = api.put("/meshes/default?dryRun=true", closed).json()["resources"][0].get("warnings", [])
    of_apply = api.post("/_apply", json={"resources": [{"text": json.dumps(closed)}]}).json()["resources"]
    of_put = api.put("/meshes/default", closed).json().get("warnings", [])

    for warnings in (of_dry_run, of_apply[0].get("warnings", []), of_put):
        assert [CLOSED in warning for warning in warnings] == ([True] if is_closed else [])
    assert of_open == []


def test_nor_is_it_where_the_permission_comes_along(start: Unit) -> None:
    there = {"type": "Mesh", "name": "default"}
    documents = [
        Document(Key("Mesh", "", "default"), there),
        Document(Key("Dataplane", "default", "web-1"), dataplane("web-1")),
    ]
    api = start(state=FixedState(World.of(documents, KINDS))).with_mesh()
    closed = {**there, "mtls": {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin"}]}}

    texts = [{"text": json.dumps(each)} for each in (closed, permission())]
    assert all("warnings" not in each for each in api.post("/_apply", json={"resources": texts}).json()["resources"])


def test_the_body_must_say_what_the_url_says(api: Api) -> None:
    answer = api.put("/meshes/default/meshtimeouts/other", timeout())

    assert answer.status_code == 400
    assert answer.json()["invalid_parameters"] == [
        {
            "field": "name",
            "reason": "name from the URL has to be the same as in body",
            "hint": "write `other`",
        }
    ]


def test_a_resource_of_a_mesh_that_is_not_there_is_refused_with_the_one_that_was_meant(api: Api) -> None:
    answer = api.put("/meshes/defaults/meshtimeouts/slow", timeout(mesh="defaults"))

    assert answer.status_code == 404
    assert answer.json()["detail"] == "there is no Mesh `defaults`; did you mean `default`?"


def test_every_violation_is_reported_with_its_field_its_reason_and_what_would_be_right(api: Api) -> None:
    faulty = timeout(request_timeout="10")
    faulty["spec"]["too"] = []

    faults = api.put(SLOW, faulty).json()["invalid_parameters"]

    assert {fault["field"]: fault.get("hint") for fault in faults} == {
        "spec.to[0].default.http.requestTimeout": None,
        "spec.too": "did you mean `to`?",
    }


def test_an_error_speaks_to_old_clients_too(api: Api) -> None:
    body = api.put(SLOW, timeout(request_timeout="10")).json()

    assert body["type"] == "/std-errors"
    assert body["details"] == body["detail"] == "Resource is not valid"
    assert body["causes"][0]["field"] == "spec.to[0].default.http.requestTimeout"


def test_a_resource_is_shown_in_kubernetes_form(api: Api) -> None:
    api.put(SLOW, timeout())

    found = api.get(SLOW, params={"format": "kubernetes"}).json()

    assert found == {
        "apiVersion": "kuma.io/v1alpha1",
        "kind": "MeshTimeout",
        "mesh": "default",
        "metadata": {"name": "slow"},
        "spec": timeout()["spec"],
    }


def test_a_resource_in_kubernetes_form_is_stored_under_its_name_and_namespace(api: Api) -> None:
    written = {
        "apiVersion": "kuma.io/v1alpha1",
        "kind": "MeshTimeout",
        "mesh": "default",
        "metadata": {"name": "slow", "namespace": "shop", "labels": {"team": "a"}},
        "spec": timeout()["spec"],
    }
    api.put("/meshes/default/meshtimeouts/slow.shop", written).raise_for_status()

    found = api.get("/meshes/default/meshtimeouts/slow.shop", params={"format": "k8s"}).json()

    metadata = found.pop("metadata")
    assert (metadata["name"], metadata["namespace"], metadata["labels"]["team"]) == ("slow", "shop", "a")
    assert found == {name: value for name, value in written.items() if name != "metadata"}


def test_a_form_that_does_not_exist_is_refused_with_those_that_do(api: Api) -> None:
    api.put(SLOW, timeout())

    answer = api.get(SLOW, params={"format": "xml"})

    assert (answer.status_code, answer.json()["detail"]) == (
        400,
        "format: `xml` is not one of universal, kubernetes, k8s",
    )


# Lost updates


def test_a_write_based_on_an_old_revision_is_refused(api: Api) -> None:
    first = api.put(SLOW, timeout()).headers["etag"]
    second = api.put(SLOW, timeout(request_timeout="11s"), if_match=first)

    late = api.put(SLOW, timeout(request_timeout="12s"), if_match=first)

    assert (second.status_code, late.status_code) == (200, 412)
    assert "read it again" in late.json()["detail"]


def test_a_read_and_a_write_tell_the_same_revision(api: Api) -> None:
    written = api.put(SLOW, timeout()).headers["etag"]

    assert api.get(SLOW).headers["etag"] == written


def test_a_write_that_changes_nothing_keeps_the_revision(api: Api) -> None:
    first = api.put(SLOW, timeout()).headers["etag"]
    api.put("/meshes/default/meshtimeouts/other", timeout("other"))

    assert api.put(SLOW, timeout()).headers["etag"] == first


def test_a_write_can_insist_on_creating(api: Api) -> None:
    first, second = (api.put(SLOW, timeout(), if_none_match="*") for _ in range(2))

    assert (first.status_code, second.status_code) == (201, 412)


def test_a_write_can_insist_on_updating(api: Api) -> None:
    refused = api.put(SLOW, timeout(), if_match="*")
    api.put(SLOW, timeout())

    assert (refused.status_code, api.put(SLOW, timeout(), if_match="*").status_code) == (412, 200)


def test_a_delete_based_on_an_old_revision_is_refused(api: Api) -> None:
    first = api.put(SLOW, timeout()).headers["etag"]
    api.put(SLOW, timeout(request_timeout="11s"))

    assert api.delete(SLOW, headers={"if-match": first}).status_code == 412


def test_a_revision_that_is_none_is_refused(api: Api) -> None:
    assert api.put(SLOW, timeout(), if_match="newest").status_code == 400


# Where a resource was written


def test_a_stored_resource_knows_the_file_and_line_of_each_of_its_fields(api: Api) -> None:
    api.put_yaml(SLOW, TIMEOUT_YAML, koguma_source="shop/timeouts.yaml:41").raise_for_status()

    stored = api._runner.run(api.store.get(Key("MeshTimeout", "default", "slow")))

    assert stored is not None
    source = stored.document.source
    assert (source.file, source.line("")) == ("shop/timeouts.yaml", 42)
    assert source.line("spec.to[0].default.http.requestTimeout") == 53


def test_a_violation_names_the_line_in_the_file_that_was_sent(api: Api) -> None:
    text = TIMEOUT_YAML.replace("10s", "ten seconds")

    (fault,) = api.put_yaml(SLOW, text, koguma_source="timeouts.yaml:101").json()["invalid_parameters"]

    assert (fault["file"], fault["line"]) == ("timeouts.yaml", 113)


def test_a_line_that_no_file_has_is_no_line(api: Api) -> None:
    text = TIMEOUT_YAML.replace("10s", "soon")
    (fault,) = api.put_yaml(SLOW, text, koguma_source=f"slow.yaml:{2**63 - 1}").json()["invalid_parameters"]

    assert (fault["file"], fault["line"] < 100) == (f"slow.yaml:{2**63 - 1}", True)


# Meshes


def test_a_mesh_that_still_has_resources_is_not_deleted(api: Api) -> None:
    api.put(SLOW, timeout())
    api.put("/meshes/default/dataplanes/web-1", dataplane())

    answer = api.delete("/meshes/default")

    assert answer.status_code == 400
    assert [fault["reason"] for fault in answer.json()["invalid_parameters"]] == [
        "still has Dataplane default/web-1",
        "still has MeshTimeout default/slow",
    ]
    assert "cascade=true" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["payments-private-key", "our-root-ca", "default.ca-builtin-key-ca-1"])
def test_a_secret_goes_with_its_mesh_unasked_only_if_it_was_made_here(api: Api, name: str) -> None:
    """Whatever its name is: people may give theirs the same."""
    key = Key("Secret", "default", name)
    made = dict(secret_document(key, b"x").data)
    theirs = {field: value for field, value in made.items() if field != "labels"}

    api.put(f"/meshes/default/secrets/{name}", theirs).raise_for_status()
    assert api.delete("/meshes/default").status_code == 400

    api.put(f"/meshes/default/secrets/{name}", made).raise_for_status()
    assert api.delete("/meshes/default").status_code == 200


def test_a_mesh_is_deleted_with_all_that_is_in_it_when_that_is_asked_for(api: Api) -> None:
    api.put(SLOW, timeout())

    assert api.delete("/meshes/default", params={"cascade": "true"}).status_code == 200
    assert api.get("/meshtimeouts").json()["total"] == 0


def test_what_belongs_to_a_new_mesh_is_stored_with_it_and_not_again(start: Unit) -> None:
    def policies(document: Document) -> list[Document]:
        key = Key("MeshTimeout", document.key.name, "slow")
        return [Document(key, timeout(mesh=document.key.name))] if document.key.type == "Mesh" else []

    api = start(companions=policies).with_mesh()
    api.delete(SLOW)
    api.put("/meshes/default", {"type": "Mesh", "name": "default", "routing": {"zoneEgress": True}})

    assert api.get(SLOW).status_code == 404
    assert api.with_mesh("other").get("/meshes/other/meshtimeouts/slow").status_code == 200


# Read only


def test_a_control_plane_that_is_read_only_refuses_writes(start: Unit) -> None:
    api = start(read_only=True)

    assert api.put("/meshes/default", {"type": "Mesh", "name": "default"}).status_code == 405
    assert api.delete("/meshes/default").status_code == 405


@pytest.mark.parametrize(
    ("method", "path", "hint"),
    [
        ("POST", "/_apply?dry-run=true", "did you mean `dryRun`?"),
        ("POST", "/_rollback?dryrun=true", "did you mean `dryRun`?"),
        ("PUT", "/meshes/default/meshtimeouts/slow?dryRun=true&dry_run=true", "did you mean `dryRun`?"),
        ("PUT", "/meshes/default?plans=true", "did you mean `plan`?"),
        ("DELETE", "/meshes/default?cascading=true", "did you mean `cascade`?"),
        ("POST", "/validate?dryRun=true", "remove it"),
    ],
)
def test_write_with_unknown_parameter_is_rejected(api: Api, method: str, path: str, hint: str) -> None:
    before = api.get("/_changes").json()

    answer = api.request(method, path, json=timeout())

    assert answer.status_code == 400
    assert hint in answer.json()["detail"]
    assert api.get("/_changes").json() == before


def test_every_route_with_parameters_is_there() -> None:
    assert set(KNOWN) <= set(REQUIREMENTS)

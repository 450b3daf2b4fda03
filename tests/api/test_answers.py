"""What the HTTP API says of itself, and of what is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
import structlog
from starlette.applications import Starlette
from starlette.types import Message

from cp.api.http import create_diagnostics
from cp.api.info import plural_words, words
from cp.model.names import Key
from cp.store.memory import MemoryStore
from cp.store.port import ReadOnly, Stored, Unusable
from tests.api.conftest import KINDS, Api, FixedState, Unit
from tests.api.samples import dataplane, timeout


class FailingStore(MemoryStore):
    """A store that raises whatever it is asked for."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    async def get(self, key: Key) -> Stored | None:
        raise self.error

    async def find(self, *keys: Key) -> Mapping[Key, Stored]:
        raise self.error


def test_the_index_says_which_control_plane_it_is(api: Api) -> None:
    index = api.get("/").json()

    assert (index["product"], index["version"], index["hostname"]) == ("Koguma", "1.2.3+preview", "here")
    assert index["instanceId"] == "instance-1"


def test_the_settings_are_shown(start: Unit) -> None:
    assert start(config={"mode": "zone"}).get("/config").json() == {"mode": "zone"}


def test_every_type_of_resource_is_described(api: Api) -> None:
    described = {one["name"]: one for one in api.get("/_resources").json()["resources"]}

    assert set(described) == set(KINDS)
    assert described["MeshTimeout"]["path"] == "meshtimeouts"
    assert described["MeshTimeout"]["policy"]["hasToTargetRef"]
    assert described["Mesh"]["scope"] == "Global"


def test_every_policy_is_described(api: Api) -> None:
    policies = {one["name"]: one for one in api.get("/policies").json()["policies"]}

    assert set(policies) == {kind.name for kind in KINDS.values() if kind.policy is not None}
    assert policies["MeshRetry"]["isOutbound"]


@pytest.mark.parametrize(
    ("name", "singular", "plural"),
    [
        ("MeshHTTPRoute", "Mesh HTTP Route", "Mesh HTTP Routes"),
        ("Mesh", "Mesh", "Meshes"),
        ("MeshRetry", "Mesh Retry", "Mesh Retries"),
        ("Dataplane", "Dataplane", "Dataplanes"),
    ],
)
def test_types_have_names_for_people(name: str, singular: str, plural: str) -> None:
    assert (words(name), plural_words(KINDS[name])) == (singular, plural)


def test_whoever_asks_is_told_who_they_are(api: Api) -> None:
    assert api.get("/who-am-i").json()["name"] == "mesh-system:admin"


def test_a_control_plane_that_reads_its_store_is_healthy_and_not_ready(start: Unit, api: Api) -> None:
    starting = start(state=FixedState(api.world(), is_ready=False))

    assert (starting.get("/healthy").status_code, starting.get("/ready").status_code) == (200, 503)
    assert api.get("/ready").status_code == 200


class AwayStore(MemoryStore):
    """A store whose database is away."""

    @property
    def outage(self) -> str:
        return "the store is away since noon: nothing listens at 192.0.2.9"


def test_a_control_plane_without_its_store_serves_and_does_not_follow(start: Unit) -> None:
    away = start(store=AwayStore())

    answer = away.get("/ready")

    assert (answer.status_code, answer.json()["status"], answer.json()["follows"]) == (200, "ready", False)
    assert answer.json()["warnings"] == ["the store is away since noon: nothing listens at 192.0.2.9"]
    assert away.get("/ready?level=follows").status_code == away.get("/ready?level=writes").status_code == 503


def test_a_control_plane_that_has_missed_something_follows_when_it_serves_that(start: Unit, api: Api) -> None:
    late = start(state=FixedState(api.world(), follows=False))

    answer = late.get("/ready")

    assert (answer.status_code, answer.json()["follows"], answer.json()["writes"]) == (200, False, True)
    assert answer.json()["warnings"] == ["What was written while the store could not be read is not served yet."]
    assert late.get("/ready?level=follows").status_code == 503


def test_late_mesh_shows_in_readiness_and_leaves_it_ready(start: Unit, api: Api) -> None:
    late = start(state=FixedState(api.world(), late_meshes={"a": 65.2}))

    answer = late.get("/ready")

    assert (answer.status_code, answer.json()["status"], answer.json()["delivers"]) == (200, "ready", False)
    assert "mesh a: proxies have waited 65 s" in answer.json()["warnings"][0]
    assert late.get("/ready", peer="192.0.2.1").json()["warnings"] == ["Proxies of 1 mesh wait for a change."]
    assert late.get("/ready?level=delivers").status_code == 503


def test_stuck_control_plane_is_not_ready(start: Unit, api: Api) -> None:
    answer = start(state=FixedState(api.world(), is_stuck=True)).get("/ready")

    assert (answer.status_code, answer.json()) == (503, {"status": "stuck"})


def test_a_control_plane_with_its_store_follows(api: Api) -> None:
    for level in ("follows", "writes", "delivers"):
        answer = api.get(f"/ready?level={level}")

        assert (answer.status_code, answer.json()) == (
            200,
            {"status": "ready", "follows": True, "writes": True, "delivers": True},
        )


class FullStore(MemoryStore):
    """A store that takes nothing any more."""

    @property
    def refusal(self) -> str:
        return "the disk is full"


def test_a_control_plane_whose_store_takes_no_writes_says_so(start: Unit) -> None:
    full = start(store=FullStore())

    answer = full.get("/ready")

    assert (answer.status_code, answer.json()["follows"], answer.json()["writes"]) == (200, True, False)
    assert answer.json()["warnings"] == ["The store takes no writes: the disk is full"]
    assert full.get("/ready", peer="192.0.2.1").json()["warnings"][0] == "The store takes no writes."
    assert full.get("/ready?level=follows").status_code == 200
    assert full.get("/ready?level=writes").status_code == 503


def test_diagnostics_have_health_and_metrics_and_no_resources(api: Api) -> None:
    async def metrics() -> bytes:
        return b"bears_total 1.0"

    answers = {path: ask(create_diagnostics(api.collaborators, metrics), path) for path in ("/ready", "/metrics")}

    assert answers["/ready"].status_code == 200
    assert "bears_total 1.0" in answers["/metrics"].text
    elsewhere = ask(create_diagnostics(api.collaborators, metrics), "/meshes")
    assert elsewhere.status_code == 404
    assert "the HTTP API has another one (5681, or 5682 with https)" in elsewhere.json()["detail"]


def ask(app: Starlette, path: str) -> httpx.Response:
    async def exchange() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.get(path)

    return asyncio.run(exchange())


# What is not there


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/meshtimeout", "there is no type of resource `meshtimeout`; did you mean `meshtimeouts`?"),
        ("/meshes/default/meshtimeoutz/x", "did you mean `meshtimeouts`?"),
        ("/meshes/default/meshtimeouts/slow", "there is no MeshTimeout `slow`; did you mean `slow-1`?"),
        ("/meshes/other", "there is no Mesh `other`; there is `default`"),
        ("/meshes/other/meshtimeouts", "there is no Mesh `other`"),
        ("/meshtimeouts/slow", "write /meshes/MESH/meshtimeouts/NAME"),
        ("/meshes/default/meshes/default", "there is no type of resource `meshes`"),
        ("/a/b/c/d", "there is no path /a/b/c/d"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is_near(api: Api, path: str, detail: str) -> None:
    api.put("/meshes/default/meshtimeouts/slow-1", timeout("slow-1"))

    answer = api.get(path)

    assert answer.status_code == 404
    assert detail in answer.json()["detail"]


def test_a_method_that_a_path_does_not_take_is_answered_with_those_it_takes(api: Api) -> None:
    answer = api.request("PATCH", "/meshes/default")

    assert answer.status_code == 405
    assert {"GET", "PUT", "DELETE"} <= set(answer.headers["allow"].split(", "))
    assert answer.json()["type"] == "/std-errors"


# What goes wrong on our side


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ReadOnly("edit the files in shop/"), 405),
        (Unusable("the disk is full"), 503),
        (RuntimeError("secret of ours"), 500),
    ],
)
def test_what_goes_wrong_in_the_store_is_an_answer(start: Unit, error: Exception, status: int) -> None:
    answer = start(store=FailingStore(error)).get("/meshes/default")

    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["status"]) == (status, status)
    assert (str(error) in answer.text) == (status != 500)


def test_unexpected_error_is_logged_with_its_path(start: Unit) -> None:
    with structlog.testing.capture_logs() as logs:
        start(store=FailingStore(RuntimeError("secret of ours"))).get("/meshes/default")

    failed = [(entry["method"], entry["path"], entry["exc_info"]) for entry in logs if entry["event"] == "api.failed"]
    assert failed == [("GET", "/meshes/default", True)]


def test_who_is_cut_off_by_the_end_is_told_that_his_write_may_have_been_made(start: Unit) -> None:
    """When the patience of the server ends, it cancels what is under way, which may be a commit."""
    sent: list[Message] = []
    scope = {
        "type": "http",
        "method": "DELETE",
        "path": "/meshes/default",
        "raw_path": b"/meshes/default",
        "query_string": b"",
        "headers": [(b"host", b"localhost:5681")],
        "client": ("127.0.0.1", 123),
    }

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    app = start(store=FailingStore(asyncio.CancelledError())).app
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(app(scope, receive, send))
    assert [message.get("status") for message in sent] == [503, None]
    assert "look at what is stored before you repeat it" in sent[1]["body"].decode()


# Validation without storing


def test_documents_are_validated_without_being_stored(api: Api) -> None:
    good, bad = timeout("good"), timeout("bad", request_timeout="soon")

    (valid, invalid) = (api.post("/validate", json=document).json() for document in (good, bad))

    assert (valid["valid"], valid["documents"]) == (True, 1)
    assert [fault["field"] for fault in invalid["violations"]] == ["spec.to[0].default.http.requestTimeout"]
    assert api.get("/meshtimeouts").json()["total"] == 0


def test_every_fault_of_every_document_is_reported(api: Api) -> None:
    text = "type: Mesh\nname: a\nfoo: 1\n---\ntype: Bear\nname: b\n---\n- no document\n"

    found = api.post("/validate", content=text, headers={"content-type": "application/yaml"}).json()

    assert [(fault["field"], fault["line"]) for fault in found["violations"]] == [("foo", 3), ("type", 5), ("", 8)]


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/ready?level=typo", "level"),
        ("/_export?reveal=yes", "reveal"),
        ("/_history?registrations=0", "registrations"),
        ("/_history?rollouts=0", "rollouts"),
        ("/meshes/default/_graph?traffic=1", "traffic"),
        ("/meshes/default/dataplanes/web/_rules?shadow=1", "shadow"),
        ("/meshes/default/dataplanes/web/stats?format=xml", "format"),
        ("/meshes/default/dataplanes/web/_envoy/stats?format=xml", "format"),
        ("/meshes/default/dataplanes/web?format=xml", "format"),
        ("/meshes/default/secrets/key?reveal=yes", "reveal"),
        ("/meshes/default/dataplanes?gateway=yes", "gateway"),
    ],
)
def test_an_unknown_value_of_a_parameter_is_rejected(api: Api, path: str, parameter: str) -> None:
    api.with_mesh()
    api.put("/meshes/default/dataplanes/web", dataplane("web"))
    api.put("/meshes/default/secrets/key", {"type": "Secret", "mesh": "default", "name": "key", "data": "eA=="})

    answer = api.get(path)

    assert answer.status_code == 400, answer.text
    assert answer.json()["invalid_parameters"][0]["field"] == parameter


def test_cascade_is_true_or_false(api: Api) -> None:
    api.with_mesh()

    assert api.request("DELETE", "/meshes/default?cascade=yes").status_code == 400
    assert api.get("/meshes/default").status_code == 200

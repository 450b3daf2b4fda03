"""Explanations over HTTP."""

from __future__ import annotations

import pytest

from cp.api.work import WorkQueue, WorkQueues
from cp.api.work_budget import WorkBudget
from tests.api.conftest import Api, FixedState, Unit
from tests.support.uncompilable import REASON, WRITTEN_BY_NOBODY, cannot_compile, cannot_write

EXPLAIN = "/meshes/default/dataplanes/web-1/_explain"


@pytest.fixture
def full(start: Unit, api: Api) -> Api:
    """An API of a mesh with a client and a service."""
    port = {"port": 80, "targetPort": 9000, "appProtocol": "http"}
    spec = {"selector": {"dataplaneTags": {"kuma.io/service": "backend"}}, "ports": [port]}
    outbound = {"port": 10080, "backendRef": {"kind": "MeshService", "name": "backend", "port": 80}}
    inbound = {"port": 9000, "tags": {"kuma.io/service": "web"}}
    networking = {"address": "10.0.0.1", "inbound": [inbound], "outbound": [outbound]}
    for path, document in (
        (
            "/meshes/default/meshservices/backend",
            {"type": "MeshService", "name": "backend", "mesh": "default", "spec": spec},
        ),
        (
            "/meshes/default/dataplanes/web-1",
            {"type": "Dataplane", "name": "web-1", "mesh": "default", "networking": networking},
        ),
    ):
        api.put(path, document).raise_for_status()
    return start(store=api.store, state=FixedState(api.world()))


def test_a_call_is_explained(full: Api) -> None:
    answer = full.get(EXPLAIN, params={"call": "GET http://backend:80/a", "header": ["x-a: 1", "x-b: 2"]})

    assert answer.status_code == 200
    body = answer.json()
    assert body["outbound"]["destination"] == "backend:80"
    assert body["call"]["headers"] == [["x-a", "1"], ["x-b", "2"]]
    assert body["outcome"]["forward"]["timeout"] == "15s"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("", "there is no call to explain; write for example `GET http://backend:80/path`"),
        ("http://nobody/", "has no outbound for `nobody`; there is `backend:80` at 127.0.0.1:10080"),
    ],
)
def test_a_call_that_means_nothing_is_refused_with_what_could_be_asked(full: Api, call: str, said: str) -> None:
    answer = full.get(EXPLAIN, params={"call": call})

    assert answer.status_code == 400
    assert said in answer.json()["detail"]


def test_what_cannot_be_simulated_is_said_to_be_so(full: Api) -> None:
    answer = full.get(EXPLAIN, params={"call": "http://backend/", "header": "upgrade: websocket"})

    assert answer.status_code == 422
    assert "cannot be told" in answer.json()["detail"]


def test_a_proxy_that_is_not_there_is_answered_with_the_one_that_was_meant(full: Api) -> None:
    answer = full.get(EXPLAIN.replace("web-1", "web-2"), params={"call": "/"})

    assert answer.status_code == 404
    assert "did you mean `web-1`" in answer.json()["detail"]


def test_who_asks_for_an_explanation_waits_among_so_many_and_no_more(full: Api, start: Unit) -> None:
    works = WorkQueues(explanations=WorkQueue("explanations", WorkBudget(at_once=1, waiting=-1)))
    busy = start(store=full.store, state=FixedState(full.world()), works=works)

    answer = busy.get(EXPLAIN, params={"call": "GET http://backend:80/a"})

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize("query", ["_values", "_values?outbound=127.0.0.1:10080", "_explain?call=http://backend/"])
def test_of_a_proxy_that_cannot_be_compiled_it_is_said_that_nobody_can_tell(
    full: Api, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cannot_compile(monkeypatch, "web-1")
    answer = full.get(f"/meshes/default/dataplanes/web-1/{query}")

    assert answer.status_code == 422
    assert f"cannot be worked out, by a fault of koguma: {REASON}" in answer.json()["detail"]


@pytest.mark.parametrize("query", ["_values?outbound=127.0.0.1:10080", "_explain?call=http://backend/"])
def test_of_a_part_that_cannot_be_made_it_is_said_that_nobody_can_tell(
    full: Api, start: Unit, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = {"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": WRITTEN_BY_NOBODY}}
    policy = {"type": "MeshTimeout", "mesh": "default", "name": "new", "spec": {"to": [item]}}
    full.put("/meshes/default/meshtimeouts/new", policy).raise_for_status()
    cannot_write(monkeypatch)
    answer = start(store=full.store, state=FixedState(full.world())).get(f"/meshes/default/dataplanes/web-1/{query}")

    assert answer.status_code == 422
    assert REASON in answer.json()["detail"]

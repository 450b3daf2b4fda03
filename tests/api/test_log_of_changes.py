"""The log names who did something, to which resources, and what became of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.serving.finding_log import log_findings_of_changes
from cp.store.port import Author, Change, ChangeBatch, Put
from tests.api.conftest import Api, Unit
from tests.test_observe import Rig, run

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = {
    "type": "MeshTimeout",
    "mesh": "default",
    "name": "slow",
    "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "1s"}}]},
}
DATAPLANE = {
    "type": "Dataplane",
    "mesh": "default",
    "name": "web",
    "networking": {"address": "192.0.2.1", "inbound": [{"port": 80, "tags": {"kuma.io/service": "web"}}]},
}
ADMIN = "mesh-system:admin"
CALLERS = ("api.", "bootstrap.served", "envoy.", "proxy.ready", "proxy.draining", "token.")
"""How events begin that somebody brought about who called the API."""


def logged(api: Api, *requests: tuple[str, str, Any]) -> dict[str, dict[str, Any]]:
    """The events of some requests, by their names."""
    with structlog.testing.capture_logs() as logs:
        for method, path, body in requests:
            api.request(method, path, **({} if body is None else {"json": body})).raise_for_status()
    return {line["event"]: dict(line) for line in logs}


def test_each_write_is_logged_with_its_resources_its_revision_and_its_caller(api: Api) -> None:
    path = "/meshes/default/meshtimeouts/slow"
    of_apply = {"resources": [{"text": "type: Mesh\nname: shop\n"}]}
    token = {"name": "ann", "groups": ["team"], "validFor": "1h"}
    bootstrap = {"mesh": "default", "name": "web", "dataplaneResource": str(DATAPLANE).replace("'", '"')}

    events = logged(api, ("PUT", path, TIMEOUT), ("POST", "/_apply", of_apply), ("DELETE", path, None))
    events |= logged(
        api, ("POST", "/_rollback", {"revision": 2, "deleteMeshes": True}), ("POST", "/bootstrap", bootstrap)
    )
    events |= logged(api, ("POST", "/tokens/user", token))

    for name in ("api.stored", "api.applied", "api.deleted", "api.rolled_back", "proxy.registered", "bootstrap.served"):
        assert (events[name]["caller"], events[name]["user"]) == ("127.0.0.1:123", ADMIN), name
    assert events["api.stored"]["resource"] == events["api.deleted"]["resource"] == "MeshTimeout default/slow"
    assert events["api.applied"]["resources"] == ["Mesh shop"]
    assert events["proxy.registered"]["resource"] == "Dataplane default/web"
    assert events["token.issued"]["user"] == ADMIN
    assert all(events[name]["revision"] > 0 for name in ("api.stored", "api.applied", "api.deleted", "api.rolled_back"))


def test_a_refusal_is_logged_with_its_caller_and_what_was_asked_for(start: Unit) -> None:
    with structlog.testing.capture_logs() as logs:
        start().request("PUT", "/meshes/default/meshtimeouts/slow", peer="192.0.2.7", json=TIMEOUT)

    (refused,) = [line for line in logs if line["event"] == "api.refused"]
    assert (refused["caller"], refused["user"]) == ("192.0.2.7:123", "mesh-system:anonymous")
    assert (refused["method"], refused["path"]) == ("PUT", "/meshes/default/meshtimeouts/slow")


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Every call by which the API logs something, with the name of the event and the place."""
    for path in sorted((ROOT / "cp/api").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            is_call = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("log.") and node.args
            if isinstance(node, ast.Call) and is_call and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value), node, f"{path.name}:{node.lineno}"


def test_whatever_a_caller_brings_about_is_logged_with_the_caller() -> None:
    of_callers = [(call, place) for event, call, place in calls() if event.startswith(CALLERS)]
    without = [
        place
        for call, place in of_callers
        if "traces" not in ast.unparse(call)
        and "caller=" not in ast.unparse(call)
        and "api.failed" not in ast.unparse(call)
    ]

    assert len(of_callers) > 10
    assert not without


def test_a_change_of_the_world_is_logged_with_resources_and_authors() -> None:
    async def test(rig: Rig) -> None:
        document = Document(Key("MeshTimeout", "default", "slow"), TIMEOUT)
        with structlog.testing.capture_logs() as logs:
            revision = await rig.store.write(Put(document), author=Author("ann", "apply from 192.0.2.7"))
            await rig.reconciler.wait_for_revision(revision, 10)

        (changed,) = [line for line in logs if line["event"] == "world.changed"]
        assert (changed["revision"], changed["resources"], changed["changed"], changed["users"]) == (
            revision,
            ["MeshTimeout default/slow"],
            1,
            ["ann"],
        )

    run(test)


def test_nobody_is_named_where_nobody_knows_who_it_was() -> None:
    async def test(rig: Rig) -> None:
        with structlog.testing.capture_logs() as logs:
            await rig.reconciler.wait_for_revision(await rig.write(Document(Key("Mesh", "", "x"), {"name": "x"})), 10)

        assert [line["users"] for line in logs if line["event"] == "world.changed"] == [[]]

    run(test)


def test_a_finding_of_a_change_is_logged_with_who_made_the_change() -> None:
    key = Key("MeshTimeout", "default", "slow")
    bad = Document(key, {**TIMEOUT, "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"no": 1}}]}})
    of = kinds(discover())
    before = World.of([], of)
    change = Change(1, key, None, bad, datetime(2026, 1, 1, tzinfo=UTC), Author("ann", "apply from 192.0.2.7"))
    after = before.next({key: bad}, 1, ())

    with structlog.testing.capture_logs() as logs:
        log_findings_of_changes(before, after, [ChangeBatch(1, (change,))])

    assert [(line["resource"], line["user"], line["origin"]) for line in logs] == [
        ("MeshTimeout default/slow", "ann", "apply from 192.0.2.7")
    ]

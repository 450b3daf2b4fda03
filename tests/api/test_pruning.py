"""`POST /_apply` under a name: what carries it and is no longer pushed goes, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest
import structlog.testing
import yaml

from cp.access.rights_file import rights_of
from cp.api.authentication import AccessControl
from cp.model.managed import MANAGED_BY
from cp.model.names import Key
from cp.resources.world import World
from cp.store.port import Author, Delete, Put
from tests.access import forge
from tests.api.conftest import ADMINS, KINDS, Api, FixedState, Unit
from tests.api.samples import dataplane, timeout
from tests.api.test_apply import outcomes, revision

CI = "shop-ci"


def push(
    api: Api, *resources: dict[str, Any], name: str = CI, prune: bool = True, dry_run: bool = False, **options: Any
) -> httpx.Response:
    body = {
        "resources": [{"text": yaml.safe_dump(resource)} for resource in resources],
        "managedBy": name,
        "prune": prune,
    }
    return api.post(f"/_apply{'?dryRun=true' if dry_run else ''}", json=body, **options)


@pytest.fixture
def api(api: Api) -> Api:
    """With what two repositories push, and what somebody wrote by hand."""
    api.with_mesh()
    push(api, timeout("one"), timeout("two"), prune=False)
    push(api, timeout("other"), name="other-ci", prune=False)
    api.put("/meshes/default/meshtimeouts/by-hand", timeout("by-hand")).raise_for_status()
    return api


def names(api: Api, plural: str = "meshtimeouts") -> list[str]:
    items = api.get(f"/meshes/default/{plural}").json()["items"]
    return sorted(item["name"] for item in items if not item["name"].endswith("-default"))


def test_what_is_pushed_under_a_name_carries_it_beside_its_own_labels(api: Api) -> None:
    push(api, timeout("one") | {"labels": {"team": "shop"}}, prune=False)

    assert api.get("/meshes/default/meshtimeouts/one").json()["labels"] == {"team": "shop", MANAGED_BY: CI}


def test_what_carries_the_name_and_is_no_longer_pushed_goes_in_the_same_write(api: Api) -> None:
    before = revision(push(api, timeout("three"), prune=False))

    answer = push(api, timeout("one", request_timeout="7s"), timeout("four"))

    assert outcomes(answer) == [("one", "Updated"), ("four", "Created"), ("three", "Deleted"), ("two", "Deleted")]
    assert revision(answer) == before + 1
    assert names(api) == ["by-hand", "four", "one", "other"]


def test_without_being_asked_nothing_goes(api: Api) -> None:
    push(api, timeout("one"), prune=False)

    assert names(api) == ["by-hand", "one", "other", "two"]


def test_a_dry_run_tells_what_would_go_and_deletes_nothing(api: Api) -> None:
    answer = push(api, timeout("one"), dry_run=True)

    assert outcomes(answer) == [("one", "Unchanged"), ("two", "Deleted")]
    assert "koguma-revision" not in answer.headers
    assert names(api) == ["by-hand", "one", "other", "two"]


def test_pushing_the_same_again_changes_nothing(api: Api) -> None:
    answer = push(api, timeout("one"), timeout("two"))

    assert outcomes(answer) == [("one", "Unchanged"), ("two", "Unchanged")]
    assert "koguma-revision" not in answer.headers


@pytest.mark.parametrize("dry_run", [False, True])
def test_another_folder_under_the_same_name_does_not_delete_all(api: Api, *, dry_run: bool) -> None:
    answer = push(api, timeout("elsewhere"), dry_run=dry_run)

    assert answer.status_code == 400
    assert "all 2 that are would be deleted" in answer.json()["detail"]
    assert names(api) == ["by-hand", "one", "other", "two"]
    push(api, timeout("elsewhere"), prune=False)
    assert outcomes(push(api, timeout("elsewhere"))) == [
        ("elsewhere", "Unchanged"),
        ("one", "Deleted"),
        ("two", "Deleted"),
    ]


def test_an_empty_folder_deletes_nothing(api: Api) -> None:
    assert push(api).status_code == 400
    assert push(api, {}).status_code == 400
    assert names(api) == ["by-hand", "one", "other", "two"]


def test_the_first_push_under_a_name_has_nothing_to_delete(api: Api) -> None:
    assert outcomes(push(api, timeout("mine"), name="third-ci")) == [("mine", "Created")]


def test_what_another_one_manages_is_not_overwritten(api: Api) -> None:
    answer = push(api, timeout("one"), timeout("other", request_timeout="7s"))

    assert answer.status_code == 400
    (fault,) = answer.json()["invalid_parameters"]
    assert fault["reason"] == "is managed by `other-ci`"
    assert "apply it once without a name" in fault["hint"]
    assert names(api) == ["by-hand", "one", "other", "two"]


def test_a_document_that_names_another_manager_is_a_mistake(api: Api) -> None:
    answer = push(api, timeout("one") | {"labels": {MANAGED_BY: "other-ci"}})

    (fault,) = answer.json()["invalid_parameters"]
    assert fault["field"] == f'labels["{MANAGED_BY}"]'
    assert "push it under `other-ci`" in fault["hint"]


def test_what_is_written_by_hand_is_managed_by_nobody_any_more_and_stays(api: Api) -> None:
    body = {"resources": [{"text": yaml.safe_dump(timeout("two"))}]}

    (by_hand,) = api.post("/_apply", json=body).json()["resources"]
    push(api, timeout("one"))

    assert by_hand["warnings"] == [
        f"MeshTimeout default/two was managed by `{CI}`, and is by nobody now ({MANAGED_BY})"
    ]
    assert names(api) == ["by-hand", "one", "other", "two"]


def test_what_somebody_wrote_by_hand_can_be_taken_over(api: Api) -> None:
    assert ("by-hand", "Updated") in outcomes(push(api, timeout("one"), timeout("two"), timeout("by-hand")))
    assert ("by-hand", "Deleted") in outcomes(push(api, timeout("one"), timeout("two")))


def test_a_mesh_stays_with_a_warning(api: Api) -> None:
    push(api, {"type": "Mesh", "name": "shop"}, prune=False)

    answer = push(api, timeout("one"), timeout("two"))

    (mesh,) = [each for each in answer.json()["resources"] if each["type"] == "Mesh"]
    assert mesh["outcome"] == "Kept"
    assert "koguma delete mesh shop --cascade" in mesh["warnings"][0]
    assert api.get("/meshes/shop").is_success


def test_resources_of_every_kind_and_mesh_go(api: Api) -> None:
    api.with_mesh("shop")
    push(api, dataplane(), timeout("one", mesh="shop"), prune=False)

    answer = push(api, timeout("one"), timeout("two"))

    deleted = [each for each in answer.json()["resources"] if each["outcome"] == "Deleted"]
    assert [(each["type"], each["mesh"]) for each in deleted] == [("Dataplane", "default"), ("MeshTimeout", "shop")]


def test_what_a_proxy_registers_stays_whatever_labels_it_brings(api: Api) -> None:
    labels = {MANAGED_BY: CI}
    registered, by_hand = dataplane("web-1") | {"labels": labels}, dataplane("web-2") | {"labels": labels}
    api.put("/meshes/default/dataplanes/web-1", registered, koguma_owner="run").raise_for_status()
    api.put("/meshes/default/dataplanes/web-2", by_hand).raise_for_status()

    answer = push(api, timeout("one"), timeout("two"))

    assert outcomes(answer)[2:] == [("web-2", "Deleted")]


def test_nothing_goes_that_the_caller_may_not_write(start: Unit) -> None:
    rights = rights_of("rights:\n  - {groups: [team], may: [write], meshes: [default]}\n", "a.yaml", KINDS, ADMINS)
    control = AccessControl(lambda: rights, clock=lambda: forge.NOW)
    world = World.of(forge.signing_keys(), KINDS)
    api = start(state=FixedState(world), access=control).with_mesh("default", "shop")
    push(api, timeout("one"), timeout("two"), timeout("three", mesh="shop"), prune=False)

    team = {"authorization": f"Bearer {forge.token({**forge.USER, 'Groups': ['team']})}"}
    refused = push(api, timeout("one"), headers=team)
    let_in = push(api, timeout("one"), timeout("three", mesh="shop"))

    assert refused.status_code == 403
    assert "shop" in refused.json()["detail"]
    assert outcomes(let_in)[2:] == [("two", "Deleted")]


def test_what_somebody_takes_over_meanwhile_stays(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at what is stored and the write."""
    write = api.store.write

    async def taken_over_before(*writes: Put | Delete, author: Author) -> int:
        monkeypatch.setattr(api.store, "write", write)
        stored = await api.store.get(Key("MeshTimeout", "default", "two"))
        assert stored is not None
        data = {name: value for name, value in stored.document.data.items() if name != "labels"}
        await write(Put(replace(stored.document, data=data)), author=author)
        return await write(*writes, author=author)

    monkeypatch.setattr(api.store, "write", taken_over_before)

    assert outcomes(push(api, timeout("one"))) == [("one", "Unchanged")]
    assert "two" in names(api)


@pytest.mark.parametrize(
    ("name", "reason"), [("", "has to be set to prune"), ("a b", "cannot be one"), ("x" * 64, "cannot be one")]
)
def test_a_name_has_to_be_one(api: Api, name: str, reason: str) -> None:
    answer = push(api, timeout("one"), name=name)

    assert answer.status_code == 400
    assert reason in answer.json()["detail"]


def test_what_went_is_logged(api: Api) -> None:
    with structlog.testing.capture_logs() as logs:
        push(api, timeout("one"))

    (event,) = [log for log in logs if log["event"] == "api.applied"]
    assert event["deleted"] == ["MeshTimeout default/two"]

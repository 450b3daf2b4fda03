"""A rollout is begun in place of a write, with its checks and rights, and is paused, continued and aborted."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import structlog
import yaml

from cp.model.managed import MANAGED_BY
from cp.resources.rollout import changes_of, rollout_key
from cp.resources.world import World
from cp.store.memory import MemoryStore
from cp.store.port import Put
from tests.api.conftest import KINDS, Api, Unit
from tests.api.samples import dataplane, timeout
from tests.api.test_secrets import SECRET
from tests.rollouts.test_assignment import rollout as stored_rollout
from tests.rollouts.test_assignment import timeout as proposal

ROLLOUT = "/meshes/default/_rollout"


class StoredState:
    """What is in force is what is stored."""

    is_ready, is_stopping, follows = True, False, True

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def current(self) -> World:
        contents = await self._store.read()
        return World.of((stored.document for stored in contents.stored), KINDS, contents.revision)

    @property
    def loaded_world(self) -> World:
        return World.of((), KINDS)


@pytest.fixture
def api(start: Unit) -> Api:
    store = MemoryStore()
    return start(store=store, state=StoredState(store)).with_mesh("default", "shop")


def begin(
    api: Api, *resources: dict[str, Any], steps: str = "1,100%", dry: bool = False, **more: Any
) -> httpx.Response:
    order = {"steps": steps} | {name: more.pop(name) for name in ("hold", "until") if name in more}
    texts = [{"text": yaml.safe_dump(each)} for each in resources]
    query = "?dryRun=true" if dry else ""
    return api.post(f"/_apply{query}", json={"resources": texts, "rollout": order, **more})


def test_resources_that_are_rolled_out_are_not_stored_yet(api: Api) -> None:
    api.put("/meshes/default/meshtimeouts/slow", timeout("slow"))
    answer = begin(api, timeout("slow", request_timeout="3s"), timeout("new")).raise_for_status().json()

    assert [each["outcome"] for each in answer["resources"]] == ["Updated", "Created"]
    assert api.get("/meshes/default/meshtimeouts/new").status_code == 404
    shown = api.get(ROLLOUT).json()
    assert shown["number"] == answer["rollout"]["number"]
    assert (shown["state"], shown["step"], shown["steps"], shown["hold"]) == ("Going", 0, ["1", "100%"], "30s")
    assert [(each["name"], each["change"]) for each in shown["resources"]] == [("slow", "Updated"), ("new", "Created")]
    assert [each["name"] for each in shown["documents"]] == ["slow", "new"]
    assert [each["mesh"] for each in api.get("/_rollouts").json()["items"]] == ["default"]


def test_the_log_says_what_is_proposed_and_by_whom(api: Api) -> None:
    with structlog.testing.capture_logs() as logs:
        begin(api, timeout("new")).raise_for_status()

    (begun,) = (line for line in logs if line["event"] == "rollout.begun")
    assert (begun["resources"], begun["user"]) == (["MeshTimeout default/new"], "mesh-system:admin")
    assert begun["caller"].startswith("127.0.0.1:")


def test_what_it_would_store_is_as_old_as_what_is_there_and_stands_where_it_was_written(api: Api) -> None:
    api.put("/meshes/default/meshtimeouts/slow", timeout("slow"))
    begin(api, timeout("slow", request_timeout="3s")).raise_for_status()
    resource = api.world().get(rollout_key("default"))
    held = next(each for each in api.run(api.store.read()).stored if each.document.key.name == "slow")
    assert resource is not None
    (document,) = changes_of("default", resource.spec).values()
    assert document is not None

    assert document.source.created == held.document.source.created != ""
    assert document.source.lines.of("spec.to") > 1
    assert resource.spec.resources[0].based_on == held.revision


def test_where_nothing_would_change_nothing_is_begun(api: Api) -> None:
    begin_with = timeout("slow")
    api.post("/_apply", json={"resources": [{"text": yaml.safe_dump(begin_with)}]}).raise_for_status()

    answer = begin(api, begin_with).raise_for_status()
    assert "rollout" not in answer.json()
    assert api.get(ROLLOUT).status_code == 404


def test_a_dry_run_begins_nothing_and_says_what_could_not_be_rolled_out(api: Api) -> None:
    assert begin(api, timeout("slow"), dry=True).status_code == 200
    assert api.get(ROLLOUT).status_code == 404
    assert begin(api, dataplane("web"), dry=True).status_code == 400


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ({"steps": "none"}, "is no step"),
        ({"hold": "0s"}, "is not between"),
        ({"hold": "25h"}, "is not between"),
        ({"hold": "soon"}, "is not a duration"),
        ({"until": "p99 < 1s"}, "no other counter is judged yet"),
    ],
)
def test_an_order_that_is_none_is_refused(api: Api, order: dict[str, str], reason: str) -> None:
    refused = begin(api, timeout("slow"), **order)  # type: ignore[arg-type]  # texts, as they are written

    assert (refused.status_code, reason in refused.json()["detail"]) == (400, True)


@pytest.mark.parametrize(
    "resource",
    [dataplane("web"), {"type": "Mesh", "name": "new"}, SECRET],
    ids=lambda each: str(each["type"]),
)
def test_what_is_about_all_proxies_at_once_cannot_be_rolled_out(api: Api, resource: dict[str, Any]) -> None:
    refused = begin(api, resource, timeout("slow"))

    assert refused.status_code == 400
    (fault,) = refused.json()["invalid_parameters"]
    assert fault["reason"].startswith("cannot be rolled out: a ")


def test_rollout_faults_name_changed_before_removed_resources(api: Api) -> None:
    before = [{"text": yaml.safe_dump(each)} for each in (dataplane("gone"), timeout("kept"))]
    api.post("/_apply", json={"resources": before, "managedBy": "git"}).raise_for_status()

    refused = begin(api, timeout("kept"), {"type": "Mesh", "name": "new"}, managedBy="git", prune=True)

    reasons = [fault["reason"] for fault in refused.json()["invalid_parameters"]]
    assert [reason.partition(": a ")[2].split()[0] for reason in reasons] == ["Mesh", "Dataplane"]


def test_what_stays_as_it_is_may_stand_beside_what_is_rolled_out(api: Api) -> None:
    """As in a folder with everything in it."""
    mesh = {"type": "Mesh", "name": "default"}
    web = dataplane("web")
    for each in (web, mesh):
        api.post("/_apply", json={"resources": [{"text": yaml.safe_dump(each)}]}).raise_for_status()

    answer = begin(api, mesh, web, timeout("slow")).raise_for_status().json()
    assert [each["outcome"] for each in answer["resources"]] == ["Unchanged", "Unchanged", "Created"]
    assert [each["name"] for each in api.get(ROLLOUT).json()["resources"]] == ["slow"]


def test_what_is_pruned_is_rolled_out_too(api: Api) -> None:
    for name in ("kept", "gone"):
        text = yaml.safe_dump(timeout(name))
        api.post("/_apply", json={"resources": [{"text": text}], "managedBy": "git"}).raise_for_status()

    answer = begin(api, timeout("kept", request_timeout="3s"), managedBy="git", prune=True).raise_for_status().json()
    assert [each["outcome"] for each in answer["resources"]] == ["Updated", "Deleted"]
    assert api.get("/meshes/default/meshtimeouts/gone").status_code == 200
    changes = {each["name"]: each["change"] for each in api.get(ROLLOUT).json()["resources"]}
    assert changes == {"kept": "Updated", "gone": "Deleted"}
    resource = api.world().get(rollout_key("default"))
    assert resource is not None
    assert [document is None for document in changes_of("default", resource.spec).values()] == [False, True]


def test_resources_of_two_meshes_are_not_rolled_out_together(api: Api) -> None:
    refused = begin(api, timeout("slow"), timeout("slow", mesh="shop"))

    assert "in several meshes: default, shop" in refused.json()["detail"]


def test_too_much_is_refused(api: Api) -> None:
    assert "too many to roll out" in begin(api, *(timeout(f"t-{n}") for n in range(201))).json()["detail"]


def test_a_mesh_has_one_rollout_at_a_time_and_the_second_hears_of_the_first(api: Api) -> None:
    begin(api, timeout("slow")).raise_for_status()
    number = api.get(ROLLOUT).json()["number"]

    refused = begin(api, timeout("other"))
    assert refused.status_code == 412
    assert f"rollout {number} of mesh default is under way, begun by mesh-system:admin" in refused.json()["detail"]
    assert begin(api, timeout("slow", mesh="shop")).status_code == 200
    command(api, "abort").raise_for_status()
    assert begin(api, timeout("other")).status_code == 200
    assert api.get(ROLLOUT).json()["number"] > number


def test_what_looks_at_what_is_stored_names_a_rollout_that_is_under_way(api: Api) -> None:
    api.put("/meshes/default/dataplanes/web-1", dataplane("web-1")).raise_for_status()
    api.put("/meshes/default/meshtimeouts/slow", timeout("slow")).raise_for_status()
    of_policy, of_proxy = "/meshes/default/meshtimeouts/slow/_resources/dataplanes", "/meshes/default/dataplanes/web-1"
    asked = ("/_lint", "/meshes/default/_lint", of_policy, f"{of_proxy}/_rules", f"{of_proxy}/_policies")
    assert not [path for path in asked if {"notLookedAt", "rollout"} & api.get(path).raise_for_status().json().keys()]

    number = begin(api, timeout("slow", request_timeout="3s")).raise_for_status().json()["rollout"]["number"]

    proposed = f"what rollout {number} of mesh default proposes, which is under way"
    assert [api.get(path).json()["notLookedAt"] for path in asked[:3]] == [[proposed]] * 3
    assert "notLookedAt" not in api.get("/meshes/shop/_lint").json()
    for path in asked[3:]:
        assert api.get(path).json()["rollout"].startswith(f"rollout {number} is under way (about to begin)")


def command(api: Api, action: str, **more: Any) -> httpx.Response:
    return api.post(ROLLOUT, json={"action": action, **more})


def test_it_is_paused_continued_and_aborted(api: Api) -> None:
    begin(api, timeout("slow")).raise_for_status()
    with structlog.testing.capture_logs() as lines:
        assert command(api, "pause").json()["state"] == "Paused"
    assert [(line["event"], line["action"]) for line in lines] == [("rollout.commanded", "pause")]
    assert command(api, "pause").status_code == 412
    assert api.get(ROLLOUT).json()["reason"] == "paused by mesh-system:admin"
    assert command(api, "continue").json()["state"] == "Going"
    assert command(api, "continue").status_code == 412
    assert command(api, "abort", number=1).status_code == 412
    ended = command(api, "abort", number=api.get(ROLLOUT).json()["number"]).json()
    assert (ended["state"], ended["underWay"], ended["reason"]) == ("Aborted", False, "aborted by mesh-system:admin")
    assert command(api, "abort").status_code == 412
    assert api.get(ROLLOUT).json()["documents"] == []


@pytest.mark.parametrize("body", [b"", b"[]", b'{"action": "stop"}', b'{"action": "abort", "more": 1}', b"x" * 2000])
def test_a_command_that_is_none_is_refused(api: Api, body: bytes) -> None:
    headers = {"content-type": "application/json"}

    assert api.post(ROLLOUT, content=body, headers=headers).status_code in {400, 413}


def test_without_a_rollout_there_is_none(api: Api) -> None:
    assert api.get(ROLLOUT).status_code == 404
    assert command(api, "abort").status_code == 404
    assert api.get("/meshes/nowhere/_rollout").status_code == 404
    assert api.get("/_rollouts").json() == {"items": []}


def test_the_control_plane_alone_writes_rollouts(api: Api) -> None:
    document = stored_rollout({proposal("a", "1s").key: proposal("a", "1s")}, ["web"])
    path = "/meshes/default/rollouts/latest"
    plain = {name: value for name, value in document.data.items() if name != "labels"}

    assert api.put(path, plain).status_code == 403
    assert api.post("/_apply", json={"resources": [{"text": yaml.safe_dump(plain)}]}).status_code == 403
    api.run(api.store.write(Put(document)))
    assert api.delete(path).status_code == 403
    assert api.get(path).status_code == 200


def test_what_is_proposed_is_shown_only_where_rights_are_asked_for(api: Api) -> None:
    begin(api, timeout("slow", request_timeout="1234s")).raise_for_status()

    for path in ("/meshes/default/rollouts/latest", "/meshes/default/rollouts", "/rollouts", "/_history", "/_export"):
        assert "1234s" not in api.get(path).raise_for_status().text
    assert [each["type"] for each in api.get("/_export").json()["own"]] == ["Rollout"]
    assert "1234s" in api.get(ROLLOUT).text


def test_a_rollout_goes_with_its_mesh(api: Api) -> None:
    begin(api, timeout("slow", mesh="shop")).raise_for_status()

    assert api.delete("/meshes/shop").status_code == 200
    assert api.get("/meshes/shop/_rollout").status_code == 404


def test_a_proxy_is_explained_by_what_it_is_served(api: Api) -> None:
    web, other = dataplane("web-1"), dataplane("web-2")
    for each in (web, other):
        api.put(f"/meshes/default/dataplanes/{each['name']}", each).raise_for_status()
    proposed = proposal("slow", "1234s")
    api.run(api.store.write(Put(stored_rollout({proposed.key: proposed}, ["web-1"]))))

    has_it, has_not = (api.get(f"/meshes/default/dataplanes/{name}/_policies") for name in ("web-1", "web-2"))
    assert "slow" in has_it.raise_for_status().text
    assert "slow" not in has_not.raise_for_status().text
    for name, served in (("web-1", "what it proposes"), ("web-2", "what is stored")):
        note = api.get(f"/meshes/default/dataplanes/{name}/_delivery").json()["rollout"]
        assert note == f"rollout 1 is under way (step 1 of 2 (1), 1 of 0 proxies, going): this proxy is served {served}"
    asked = api.get("/_delivery?resource=MeshTimeout/default/slow").json()
    assert asked["rollouts"] == ["rollout 1 of mesh default is under way: step 1 of 2 (1), 1 of 0 proxies, going"]


def test_a_plan_says_that_it_does_not_look_at_what_is_rolled_out(api: Api) -> None:
    begin(api, timeout("slow", request_timeout="3s")).raise_for_status()

    notes = {
        name: api.put(f"/meshes/default/meshtimeouts/{name}?dryRun=true&plan=true", timeout(name)).json()["plan"]
        for name in ("slow", "other")
    }
    proposed = next(note for note in notes["other"]["notCompared"] if "rollout" in note)
    assert proposed.endswith(" of mesh default proposes, which is under way")
    assert f"{proposed} and would go back with this write" in notes["slow"]["notCompared"]


class KnownState(StoredState):
    """`known` is the World in force."""

    known = World.of((), KINDS)

    @property
    def loaded_world(self) -> World:
        return self.known


@pytest.mark.parametrize("way", ["put", "delete", "apply", "prune", "rollback"])
def test_whoever_writes_what_a_rollout_changes_hears_that_this_ends_it(start: Unit, way: str) -> None:
    store = MemoryStore()
    state = KnownState(store)
    api = start(store=store, state=state).with_mesh("default")
    pushed = [{"text": yaml.safe_dump(timeout(name))} for name in ("slow", "other")]
    api.post("/_apply", json={"resources": pushed, "managedBy": "ci"}).raise_for_status()
    second, third = ({**timeout("slow", request_timeout=each), "labels": {MANAGED_BY: "ci"}} for each in ("2s", "3s"))
    api.put("/meshes/default/meshtimeouts/slow", second)
    begin(api, third, managedBy="ci").raise_for_status()
    state.known = api.world()

    number = api.get(ROLLOUT).json()["number"]
    ends = f"this ends rollout {number} of mesh default, which changes it too: what it proposes is taken back"
    assert ends in written_by(api, way, "slow")
    assert not any("rollout" in warning for warning in written_by(api, "put", "another"))


def test_a_rollback_that_would_end_a_rollout_by_now_is_not_the_one_that_was_looked_at(start: Unit) -> None:
    store = MemoryStore()
    state = KnownState(store)
    api = start(store=store, state=state).with_mesh("default")
    for patience in ("2s", "3s"):
        api.put("/meshes/default/meshtimeouts/slow", timeout("slow", request_timeout=patience)).raise_for_status()
    body = {"revision": 2, "only": [{"type": "MeshTimeout", "name": "slow"}]}
    seen = api.post("/_rollback?dryRun=true", json=body).headers["etag"]
    begin(api, timeout("slow", request_timeout="4s")).raise_for_status()
    state.known = api.world()

    assert api.post("/_rollback", json=body, headers={"if-match": seen}).status_code == 412
    seen = api.post("/_rollback?dryRun=true", json=body).headers["etag"]
    assert api.post("/_rollback", json=body, headers={"if-match": seen}).is_success


def written_by(api: Api, way: str, name: str) -> list[str]:
    """The warnings of a write."""
    path, changed = f"/meshes/default/meshtimeouts/{name}", timeout(name, request_timeout="9s")
    match way:
        case "put":
            answer = api.put(path, changed)
        case "delete":
            answer = api.delete(path)
        case "apply":
            answer = api.post("/_apply", json={"resources": [{"text": yaml.safe_dump(changed)}]})
        case "prune":
            kept = [{"text": yaml.safe_dump(timeout("other"))}]
            answer = api.post("/_apply", json={"resources": kept, "managedBy": "ci", "prune": True})
        case _:
            answer = api.post("/_rollback", json={"revision": 1, "only": [{"type": "MeshTimeout", "name": name}]})
    data = answer.raise_for_status().json()
    outcomes = [each for each in data.get("resources", ()) if each["name"] == name]
    return [warning for each in (data, *outcomes) for warning in each.get("warnings", ())]

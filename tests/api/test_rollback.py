"""A rollback brings back how resources were, in one write, with the rights and the checks of any write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from cp.model.document import Document
from cp.model.made_here import MADE_HERE
from cp.model.names import Key
from cp.model.registration import labelled
from cp.model.secret_names import trust_key
from cp.resources.initial_policies import initial_policies
from cp.store.port import Author, Delete, Put, Stored
from tests.api.conftest import Api, Unit
from tests.api.samples import dataplane, timeout
from tests.api.test_door import OF_MEMBER, OF_TEAM, Entrance
from tests.api.test_past import SLOW, edited, newest
from tests.api.test_secrets import SECRET


def rolled_back(api: Api, revision: int, *, dry: bool = False, **body: Any) -> httpx.Response:
    return api.post(f"/_rollback?dryRun={str(dry).lower()}", json={"revision": revision, **body})


def outcomes(answer: httpx.Response) -> dict[str, str]:
    return {each["name"]: each["outcome"] for each in answer.raise_for_status().json()["resources"]}


def left_out(answer: httpx.Response) -> dict[str, str]:
    return {each["name"]: each["reason"] for each in answer.raise_for_status().json()["leftOut"]}


def request_timeout(api: Api, name: str = "slow") -> str:
    spec = api.get(f"/meshes/default/meshtimeouts/{name}").raise_for_status().json()["spec"]
    return str(spec["to"][0]["default"]["http"]["requestTimeout"])


def write(api: Api, *writes: Put | Delete) -> int:
    return asyncio.run(api.store.write(*writes))


def test_what_was_changed_made_and_deleted_is_as_before_in_one_write(api: Api) -> None:
    for name in ("changed", "deleted", "same"):
        api.put(f"/meshes/default/meshtimeouts/{name}", timeout(name))
    before = newest(api)
    api.put("/meshes/default/meshtimeouts/changed", timeout("changed", request_timeout="20s"))
    api.put("/meshes/default/meshtimeouts/made", timeout("made"))
    api.delete("/meshes/default/meshtimeouts/deleted")
    after = newest(api)

    answer = rolled_back(api, before)
    assert outcomes(answer) == {"changed": "Updated", "made": "Deleted", "deleted": "Created"}
    assert answer.headers["koguma-revision"] == str(after + 1) == str(newest(api))
    assert api.get(f"/_diff?from={before}").json()["changes"] == []
    author = api.get("/_history?size=1").json()["items"][0]
    assert (author["author"], author["origin"]) == ("mesh-system:admin", f"rollback to {before} from 127.0.0.1")


def test_what_was_looked_at_is_written_or_nothing(api: Api) -> None:
    before, _ = edited(api)
    seen = rolled_back(api, before, dry=True).headers["etag"]
    api.put("/meshes/default/meshtimeouts/slow", timeout("slow", request_timeout="30s"))
    body = {"revision": before}

    refused = api.post("/_rollback", json=body, headers={"if-match": seen})

    assert (refused.status_code, request_timeout(api)) == (412, "30s")
    assert "what would go back has changed since it was looked at" in refused.json()["detail"]
    seen = rolled_back(api, before, dry=True).headers["etag"]
    api.put("/meshes/elsewhere", {"type": "Mesh", "name": "elsewhere"})
    api.put("/meshes/elsewhere/meshtimeouts/other", timeout("other") | {"mesh": "elsewhere"})
    assert api.post("/_rollback", json=body, headers={"if-match": seen}).status_code == 412
    seen = rolled_back(api, before, dry=True, mesh="default").headers["etag"]
    api.put("/meshes/elsewhere/meshtimeouts/another", timeout("another") | {"mesh": "elsewhere"})
    of_mesh = api.post("/_rollback", json=body | {"mesh": "default"}, headers={"if-match": seen})
    assert outcomes(of_mesh) == {"slow": "Updated"}


def test_the_same_resources_of_another_revision_are_not_what_was_looked_at(api: Api) -> None:
    first, _ = edited(api)
    second = newest(api)
    api.put("/meshes/default/meshtimeouts/slow", timeout("slow", request_timeout="30s"))
    seen = [rolled_back(api, revision, dry=True).headers["etag"] for revision in (first, first, second)]

    assert seen[0] == seen[1] != seen[2]


def test_what_comes_back_is_as_old_as_it_was(api: Api) -> None:
    """The age decides between legacy policies."""
    for name in ("first", "second"):
        api.put(f"/meshes/default/meshtimeouts/{name}", timeout(name))
    before = {each["name"]: each["creationTime"] for each in api.get("/meshtimeouts").json()["items"]}
    revision = newest(api)
    for name in ("first", "second"):
        api.delete(f"/meshes/default/meshtimeouts/{name}")
    rolled_back(api, revision).raise_for_status()

    assert {each["name"]: each["creationTime"] for each in api.get("/meshtimeouts").json()["items"]} == before


def test_a_rollback_can_be_rolled_back(api: Api) -> None:
    before, after = edited(api)
    rolled_back(api, before)
    assert request_timeout(api) == "10s"

    rolled_back(api, after)
    assert request_timeout(api) == "20s"


def test_a_dry_run_says_the_same_and_writes_nothing(api: Api) -> None:
    before, after = edited(api)

    assert outcomes(rolled_back(api, before, dry=True)) == {"slow": "Updated"}
    assert (request_timeout(api), newest(api)) == ("20s", after)


def test_a_rollback_to_where_nothing_differs_writes_nothing(api: Api) -> None:
    before, _ = edited(api)
    rolled_back(api, before)
    revision = newest(api)

    answer = rolled_back(api, before)
    assert (outcomes(answer), newest(api), "koguma-revision" in answer.headers) == ({}, revision, False)


def test_only_what_is_named_goes_back(api: Api) -> None:
    before, _ = edited(api)
    api.put("/meshes/default/meshtimeouts/other", timeout("other"))
    retry = {"type": "MeshService", "mesh": "default", "name": "shop", "spec": {}}
    api.put("/meshes/default/meshservices/shop", retry).raise_for_status()

    assert outcomes(rolled_back(api, before, dry=True, only=[{"type": "MeshTimeout"}])).keys() == {"slow", "other"}
    assert outcomes(rolled_back(api, before, only=[{"type": "MeshTimeout", "name": "slow"}])).keys() == {"slow"}
    assert request_timeout(api) == "10s"
    assert request_timeout(api, "other") == "10s"


def test_only_one_mesh_goes_back(api: Api) -> None:
    before, _ = edited(api)
    api.with_mesh("second")
    api.put("/meshes/second/meshtimeouts/slow", timeout(mesh="second"))

    answer = rolled_back(api, before, dry=True, mesh="second").raise_for_status().json()["resources"]
    assert {each.get("mesh", each["name"]) for each in answer} == {"second"}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"only": [{"type": "MeshTimeout", "name": "slwo"}]}, "no MeshTimeout `slwo`; did you mean `slow`?"),
        ({"only": [{"type": "MeshTimeout"}, {"type": "MeshRetry", "name": "slow"}]}, "no MeshRetry `slow`"),
        ({"mesh": "defaults"}, "no Mesh `defaults`; did you mean `default`?"),
        ({"mesh": "second", "only": [{"type": "MeshTimeout", "name": "slow"}]}, "no MeshTimeout `slow`"),
    ],
)
def test_a_misspelt_name_is_told(api: Api, body: Any, sentence: str) -> None:
    before, _ = edited(api)
    api.with_mesh("second")

    answer = rolled_back(api, before, **body)

    assert (answer.status_code, sentence in answer.json()["detail"]) == (404, True)
    assert request_timeout(api) == "20s"


def test_what_is_there_and_as_it_was_is_no_mistake(api: Api) -> None:
    _, after = edited(api)

    for body in ({"only": [{"type": "MeshTimeout", "name": "slow"}]}, {"mesh": "default"}):
        assert outcomes(rolled_back(api, after, **body)) == {}
    api.delete("/meshes/default/meshtimeouts/slow").raise_for_status()
    assert outcomes(rolled_back(api, after, mesh="default")) == {"slow": "Created"}


def test_dataplanes_that_proxies_register_stay(api: Api) -> None:
    before = newest(api)
    api.put("/meshes/default/dataplanes/web-1", dataplane(), koguma_owner="run-1").raise_for_status()
    api.put("/meshes/default/dataplanes/web-2", dataplane("web-2")).raise_for_status()

    answer = rolled_back(api, before)
    assert (outcomes(answer), left_out(answer)) == ({"web-2": "Deleted"}, {"web-1": "its proxy registers it"})


PROXY = Author("proxy default/web-1", "registration from 192.0.2.7")
WEB = Key("Dataplane", "default", "web-1")


def by_proxy(api: Api, document: Document | None) -> int:
    write = Delete(WEB) if document is None else Put(document)
    return asyncio.run(api.store.write(write, author=PROXY))


def registered_dataplane(number: int, owner: str = "") -> Document:
    labels = {"labels": {"koguma.io/owner": owner}} if owner else {}
    data = dataplane()
    data["networking"]["admin"] = {"port": 9000 + number}
    return Document(WEB, {**data, **labels})


def test_dataplane_with_merged_registrations_is_not_deleted(api: Api) -> None:
    """The log says that it was not there, as it has the first of many registrations as one change."""
    revisions = [by_proxy(api, registered_dataplane(number, "run-1")) for number in range(30)]
    before = revisions[3]
    written = api.put("/meshes/default/dataplanes/web-1", dataplane()).raise_for_status()

    answer = rolled_back(api, before)

    reason = "its proxy registered it, and the log no longer has how it was"
    assert (outcomes(answer), left_out(answer)) == ({}, {"web-1": reason})
    assert asyncio.run(api.store.find(WEB))[WEB].revision == int(written.headers["koguma-revision"])
    assert left_out(rolled_back(api, revisions[-1])) == {"web-1": "its proxy registers it"}


def test_dataplane_by_hand_is_as_before_its_proxy_was_ready(api: Api) -> None:
    """A change of labels alone hides no other content."""
    api.put("/meshes/default/dataplanes/web-1", dataplane()).raise_for_status()
    before = newest(api)
    for _ in range(10):
        by_proxy(api, labelled(Document(WEB, dataplane()), not_ready="run-1"))
        by_proxy(api, Document(WEB, dataplane()))
    changed = dataplane()
    changed["networking"]["admin"] = {"port": 9999}
    api.put("/meshes/default/dataplanes/web-1", changed).raise_for_status()

    assert outcomes(rolled_back(api, before)) == {"web-1": "Updated"}
    assert "admin" not in asyncio.run(api.store.find(WEB))[WEB].document.data["networking"]


def test_what_decides_over_tokens_and_certificates_stays_unless_it_is_named(api: Api) -> None:
    """A rollback must not let in again whose token was revoked."""
    revoked = {"type": "GlobalSecret", "name": "user-token-revocations", "data": "eA=="}
    record = Document(trust_key("default"), {"type": "Secret", "mesh": "default", "name": "default.ca-trust"})
    of_instances = {"type": "GlobalSecret", "name": "instance-token-signing-key-1", "data": "eA=="}
    before = newest(api)
    api.put("/globalsecrets/user-token-revocations", revoked).raise_for_status()
    api.put("/globalsecrets/instance-token-signing-key-1", of_instances).raise_for_status()
    api.put("/meshes/default/secrets/key", SECRET).raise_for_status()
    write(api, Put(record))

    answer = rolled_back(api, before, dry=True)
    assert outcomes(answer) == {"key": "Deleted"}
    kept = {"user-token-revocations", "instance-token-signing-key-1"}
    assert left_out(answer).keys() == {*kept, "default.ca-trust"}
    named = rolled_back(api, before, dry=True, only=[{"type": "GlobalSecret"}, {"type": "Secret"}])
    assert outcomes(named) == {"key": "Deleted", **dict.fromkeys(kept, "Deleted")}
    assert left_out(named) == {"default.ca-trust": "the control plane alone writes it"}


def test_a_mesh_comes_back_with_all_that_was_in_it(start: Unit) -> None:
    api = start(companions=initial_policies).with_mesh()
    edited(api)
    before = newest(api)
    everything = api.get("/_export").json()["resources"]
    api.delete("/meshes/default?cascade=true").raise_for_status()

    rolled_back(api, before).raise_for_status()
    assert api.get("/_export").json()["resources"] == everything


def test_the_keys_of_a_mesh_that_comes_back_are_named_to_come_back_too(api: Api) -> None:
    name = "dataplane-token-signing-key-default-1"
    key = {"type": "Secret", "mesh": "default", "name": name, "labels": dict(MADE_HERE), "data": "eA=="}
    before = write(api, Put(Document(Key("Secret", "default", name), key)))
    api.delete("/meshes/default?cascade=true").raise_for_status()

    assert left_out(rolled_back(api, before)).keys() == {name}
    assert outcomes(rolled_back(api, before, mesh="default", only=[{"type": "Secret"}])) == {name: "Created"}


def test_a_mesh_that_is_new_goes_with_what_it_came_with(start: Unit) -> None:
    api = start(companions=initial_policies).with_mesh()
    before = newest(api)
    api.with_mesh("second")
    name = "dataplane-token-signing-key-second-1"
    key = {"type": "Secret", "mesh": "second", "name": name, "labels": dict(MADE_HERE), "data": "eA=="}
    write(api, Put(Document(Key("Secret", "second", name), key)))

    assert outcomes(rolled_back(api, before, dry=True))["second"] == "Deleted"
    refused = rolled_back(api, before)
    assert (refused.status_code, api.get("/meshes/second").status_code) == (400, 200)
    assert "Mesh second would be deleted" in refused.json()["detail"]
    assert "--delete-meshes" in refused.json()["detail"]
    rolled_back(api, before, deleteMeshes=True).raise_for_status()
    assert [each["name"] for each in api.get("/_export").json()["resources"] if "second" in str(each)] == []
    assert api.get("/_diff?from=" + str(before)).json()["changes"] == []


def test_a_mesh_with_proxies_does_not_go(api: Api) -> None:
    before = newest(api)
    api.with_mesh("second")
    api.put("/meshes/second/dataplanes/web-1", dataplane(mesh="second"), koguma_owner="run-1").raise_for_status()

    answer = rolled_back(api, before)
    assert answer.status_code == 400
    (fault,) = answer.json()["invalid_parameters"]
    assert fault["reason"] == "there would be no Mesh `second`, and Dataplane second/web-1 would be left in it"
    assert fault["hint"].startswith("end what uses it")
    assert api.get("/meshes/second").status_code == 200


def test_what_is_in_a_mesh_that_is_gone_needs_it(api: Api) -> None:
    api.with_mesh("second")
    api.put("/meshes/second/meshtimeouts/slow", timeout(mesh="second"))
    before = newest(api)
    api.delete("/meshes/second?cascade=true").raise_for_status()

    answer = rolled_back(api, before, only=[{"type": "MeshTimeout"}])
    assert (answer.status_code, "roll the Mesh back too" in answer.text) == (400, True)


def test_what_is_no_longer_valid_stays_and_so_does_all_else(api: Api) -> None:
    broken = timeout("broken")
    broken["spec"]["to"][0]["default"] = {"connectionTimeOut": "5s"}
    write(api, Put(Document(Key("MeshTimeout", "default", "broken"), broken)))
    before, _ = edited(api)
    api.delete("/meshes/default/meshtimeouts/broken").raise_for_status()

    answer = rolled_back(api, before)
    assert answer.status_code == 400
    assert "connectionTimeOut" in str(answer.json()["invalid_parameters"])
    assert request_timeout(api) == "20s"


def test_document_over_a_limit_comes_back_as_it_was_stored(api: Api) -> None:
    large = timeout("large")
    large["spec"]["to"] *= 1_001
    write(api, Put(Document(Key("MeshTimeout", "default", "large"), large)))
    before = newest(api)
    api.put("/meshes/default/meshtimeouts/large", timeout("large")).raise_for_status()

    assert outcomes(rolled_back(api, before)) == {"large": "Updated"}


def test_a_write_meanwhile_is_seen(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written after the rollback has looked is not written over unseen: it looks again."""
    before, _ = edited(api)
    store_write, edits = api.store.write, iter(["30s"])

    async def overtaken(*writes: Put | Delete, author: Author) -> int:
        for seconds in edits:
            document = Document(Key("MeshTimeout", "default", "slow"), timeout(request_timeout=seconds))
            await store_write(Put(document))
        return await store_write(*writes, author=author)

    monkeypatch.setattr(api.store, "write", overtaken)
    rolled_back(api, before).raise_for_status()
    (last, overtaking, *_) = api.get("/_history?type=MeshTimeout&mesh=default&name=slow").json()["items"]
    assert request_timeout(api) == "10s"
    assert (overtaking["author"], last["author"]) == ("", "mesh-system:admin")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"revision": 99}, "revision: there is no revision 99 yet; the newest is 1"),
        ({"revision": -1}, "there is no revision -1"),
        ({"revision": 0, "onlyy": []}, "unknown field `onlyy`"),
        ({}, "missing required field `revision`"),
    ],
)
def test_a_mistake_is_told(api: Api, body: Any, sentence: str) -> None:
    answer = api.post("/_rollback", json=body)

    assert (answer.status_code, sentence in answer.json()["detail"]) == (400, True)


def test_a_control_plane_that_is_read_only_rolls_nothing_back(start: Unit) -> None:
    api = start(read_only=True)

    assert rolled_back(api, 0).status_code == 405


def test_whoever_may_not_write_a_resource_may_not_roll_it_back(start: Unit) -> None:
    api = Entrance(start).api(OF_TEAM)
    before = newest(api)
    api.put("/meshes/default/secrets/key", SECRET).raise_for_status()
    api.put(SLOW, timeout()).raise_for_status()

    headers = {"authorization": f"Bearer {OF_MEMBER}"}
    whole = api.post("/_rollback", json={"revision": before}, headers=headers, peer="192.0.2.1")
    assert (whole.status_code, "name a mesh" in whole.text, "Secret" in whole.text) == (403, True, False)
    body = {"revision": before, "only": [{"type": "MeshTimeout"}]}
    assert outcomes(api.post("/_rollback", json=body, headers=headers, peer="192.0.2.1")) == {"slow": "Deleted"}


def test_nobody_finds_out_by_a_rollback_what_he_may_not_read(start: Unit) -> None:
    """Of a mesh, or a Secret by its name, whether it is there."""
    api = Entrance(start).api(OF_TEAM)
    before = newest(api)
    launch_codes = {**SECRET, "name": "launch-codes"}
    api.with_mesh("topsecret").put("/meshes/default/secrets/launch-codes", launch_codes).raise_for_status()

    def told(**body: Any) -> tuple[int, str]:
        headers = {"authorization": f"Bearer {OF_MEMBER}"}
        answer = api.post("/_rollback", json={"revision": before, **body}, headers=headers, peer="192.0.2.1")
        return answer.status_code, answer.text

    def same(there: dict[str, Any], absent: dict[str, Any], name: str) -> bool:
        status, text = told(**there)
        return (status, text.replace(name, "nothing")) == told(**absent)

    for name in ("launch-codes", "topsecret"):
        for kind in ("Secret", "Mesh"):
            assert same({"only": [{"type": kind, "name": name}]}, {"only": [{"type": kind, "name": "nothing"}]}, name)
        assert same({"mesh": name}, {"mesh": "nothing"}, name)
    assert "topsecret" not in told()[1]


def test_what_is_left_out_is_told_to_those_who_may_read_it(start: Unit) -> None:
    api = Entrance(start).api(OF_TEAM)
    before = newest(api)
    for mesh in ("default", "other"):
        path = f"/meshes/{mesh}/dataplanes/web-of-{mesh}"
        data = dataplane(f"web-of-{mesh}", mesh=mesh)
        api.put(path, data, koguma_owner="run-1").raise_for_status()

    headers = {"authorization": f"Bearer {OF_MEMBER}"}
    answer = api.post("/_rollback", json={"revision": before}, headers=headers, peer="192.0.2.1")
    assert left_out(answer).keys() == {"web-of-default"}


def test_what_another_control_plane_writes_meanwhile_goes_back_with_the_rest(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not half of it: it is one write."""
    for name in ("first", "second"):
        api.put(f"/meshes/default/meshtimeouts/{name}", timeout(name, request_timeout="1s"))
    before, find = newest(api), api.store.find
    api.put("/meshes/default/meshtimeouts/first", timeout("first", request_timeout="2s"))
    documents = [
        Document(Key("MeshTimeout", "default", name), timeout(name, request_timeout="9s"))
        for name in ("first", "second")
    ]

    async def hurried(*keys: Key) -> Mapping[Key, Stored]:
        monkeypatch.undo()
        await api.store.write(*map(Put, documents))
        return await find(*keys)

    monkeypatch.setattr(api.store, "find", hurried)
    assert outcomes(rolled_back(api, before)) == {"first": "Updated", "second": "Updated"}
    assert [request_timeout(api, name) for name in ("first", "second")] == ["1s", "1s"]

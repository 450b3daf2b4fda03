"""A proxy registers its Dataplane, drains, and takes it away, and nobody does so for another."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cp.model.names import Key
from cp.model.registration import MISSED_BY, NOT_READY, OWNER, labelled
from cp.store.port import UNKNOWN, Author, Contents, Delete, Put, ReadOnly, Stored
from cp.store.roster import Fence
from tests.api.conftest import Api, Unit
from tests.api.samples import dataplane

WEB = "/meshes/default/dataplanes/web-1"


def labels(api: Api) -> dict[str, str]:
    found: dict[str, str] = api.get(WEB).raise_for_status().json().get("labels", {})
    return found


def register(api: Api, owner: str = "one") -> None:
    """As a run does that has yet to start its Envoy."""
    api.put(WEB, dataplane(), koguma_owner=owner).raise_for_status()


def drain(api: Api, owner: str) -> int:
    return says(api, owner, ready=False)


def says(api: Api, owner: str, *, ready: bool) -> int:
    return api.post(f"{WEB}/_readiness", json={"owner": owner, "ready": ready}).status_code


def test_who_registers_a_dataplane_owns_it(api: Api) -> None:
    register(api)

    assert labels(api) == {OWNER: "one", NOT_READY: "one"}
    assert says(api, "one", ready=True) == 200
    assert labels(api) == {OWNER: "one"}


def test_what_was_applied_by_hand_stays_with_whoever_applied_it(api: Api) -> None:
    api.put(WEB, dataplane()).raise_for_status()
    register(api)

    assert labels(api) == {NOT_READY: "one"}


@pytest.mark.parametrize("together", [True, False])
def test_what_is_read_and_written_again_stays(api: Api, together: bool) -> None:
    register(api)
    says(api, "one", ready=True)
    read = api.get(WEB).json()

    if together:
        body = {"resources": [{"text": json.dumps(read)}]}
        api.post("/_apply", json=body).raise_for_status()
    else:
        answer = api.put(WEB, read)
        assert f"{OWNER} are written by the control plane alone" in answer.json()["warnings"][0].replace(
            f"{MISSED_BY}, {NOT_READY}, ", ""
        )

    assert labels(api) == {}
    assert api.delete(WEB, headers={"koguma-owner": "one"}).status_code == 412


def test_only_who_owns_it_takes_it_away(api: Api) -> None:
    register(api, "one")
    register(api, "two")

    assert api.delete(WEB, headers={"koguma-owner": "one"}).status_code == 412
    assert api.delete(WEB, headers={"koguma-owner": "two"}).status_code == 200


def test_a_proxy_that_drains_is_marked_once_and_not_for_a_run_that_came_later(api: Api) -> None:
    register(api, "one")
    says(api, "one", ready=True)

    assert drain(api, "one") == 200
    revision = api.get(WEB).headers["etag"]
    assert drain(api, "one") == 200
    assert api.get(WEB).headers["etag"] == revision
    assert labels(api)[NOT_READY] == "one"
    register(api, "two")
    assert drain(api, "one") == 412
    assert labels(api) == {OWNER: "two", NOT_READY: "two"}
    assert says(api, "one", ready=True) == 412


def test_what_is_applied_while_a_proxy_drains_does_not_make_it_an_endpoint_again(api: Api) -> None:
    api.put(WEB, dataplane()).raise_for_status()
    drain(api, "one")

    api.put(WEB, dataplane()).raise_for_status()
    assert labels(api) == {NOT_READY: "one"}
    bootstrap(api, owner="two")
    assert labels(api) == {NOT_READY: "two"}, "a run of it has started again"
    bootstrap(api)
    assert labels(api) == {}, "this one has no word for being ready"


def says_while_it_is_written(api: Api, *, often: bool = False) -> None:
    """The proxy says that it drains just after its Dataplane was read for another write: once, or each time."""
    find, read, turns = api.store.find, api.store.read, [0]

    async def say() -> None:
        turns[0] += 1
        if turns[0] == 1 or often:
            stored = await api.store.get(Key("Dataplane", "default", "web-1"))
            assert stored is not None
            owner = f"one{turns[0]}" if often else "one"
            await api.store.write(Put(labelled(stored.document, not_ready=owner)))

    async def found(*keys: Key) -> Any:
        result: dict[Key, Stored] = dict(await find(*keys))
        await say()
        return result

    async def everything() -> Contents:
        result = await read()
        await say()
        return result

    api.store.find, api.store.read = found, everything  # type: ignore[method-assign]


@pytest.mark.parametrize("together", [True, False])
def test_what_a_proxy_says_while_its_dataplane_is_written_is_kept(api: Api, together: bool) -> None:
    api.put(WEB, dataplane()).raise_for_status()
    says_while_it_is_written(api)
    changed = {**dataplane(), "labels": {"a": "b"}}

    if together:
        api.post("/_apply", json={"resources": [{"text": json.dumps(changed)}]}).raise_for_status()
    else:
        api.put(WEB, changed).raise_for_status()

    assert labels(api) == {"a": "b", NOT_READY: "one"}


def test_whoever_names_a_revision_hears_that_the_proxy_has_written_since(api: Api) -> None:
    revision = api.put(WEB, dataplane()).headers["etag"]
    says_while_it_is_written(api)

    assert api.put(WEB, {**dataplane(), "labels": {"a": "b"}}, if_match=revision).status_code == 412


@pytest.mark.parametrize("together", [True, False])
def test_a_dataplane_that_never_stays_the_same_is_given_up(api: Api, together: bool) -> None:
    api.put(WEB, dataplane()).raise_for_status()
    says_while_it_is_written(api, often=True)
    changed = {**dataplane(), "labels": {"a": "b"}}

    text = {"resources": [{"text": json.dumps(changed)}]}
    answer = api.post("/_apply", json=text) if together else api.put(WEB, changed)

    assert answer.status_code == 412


@pytest.mark.parametrize("body", ["{}", '{"owner": "", "ready": true}', "x"])
def test_who_drains_has_to_say_who_it_is(api: Api, body: str) -> None:
    register(api)

    assert api.post(f"{WEB}/_readiness", content=body, headers={"content-type": "application/json"}).status_code == 400


def test_a_dataplane_that_is_not_there_cannot_drain(api: Api) -> None:
    assert drain(api, "one") == 404


def bootstrap(api: Api, **wanted: Any) -> Any:
    answer = api.post("/bootstrap", json={"mesh": "default", "name": "web-1", **wanted})
    return json.loads(answer.raise_for_status().text)["node"].get("metadata", {})


def test_a_dataplane_that_comes_with_a_bootstrap_request_is_stored_and_owned(api: Api) -> None:
    metadata = bootstrap(api, dataplaneResource=json.dumps(dataplane()))

    assert labels(api) == {OWNER: metadata[OWNER]}
    assert json.loads(metadata["dataplane.resource"]) == dataplane()
    assert bootstrap(api, dataplaneResource=json.dumps(dataplane()))[OWNER] != metadata[OWNER], "each run is one"


def test_a_dataplane_that_comes_for_a_mesh_that_is_not_there_is_refused(start: Unit) -> None:
    resource = json.dumps(dataplane())

    answer = start().post("/bootstrap", json={"mesh": "default", "name": "web-1", "dataplaneResource": resource})

    assert answer.status_code == 422
    assert "there is no Mesh `default`" in answer.text


def test_a_store_that_is_only_read_takes_a_dataplane_that_stands_there_already(api: Api) -> None:
    api.put(WEB, dataplane()).raise_for_status()

    async def write(*writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
        raise ReadOnly("the store is a directory")

    api.store.write = write  # type: ignore[method-assign]
    assert api.put(WEB, dataplane(), koguma_owner="one").status_code == 200
    assert bootstrap(api, dataplaneResource=json.dumps(dataplane()), owner="one")[OWNER] == "one"
    other = {**dataplane(), "labels": {"a": "b"}}
    assert api.put(WEB, other, koguma_owner="one").status_code == 405


def test_what_is_set_to_be_read_only_is_not_written_by_proxies_either(start: Unit, api: Api) -> None:
    register(api, "one")
    api.put("/meshes/default/dataplanes/web-2", dataplane() | {"name": "web-2"}).raise_for_status()
    before = labels(api), api.get(f"{WEB[:-1]}2").json()
    closed = start(read_only=True, store=api.store)

    answers = [
        says(closed, "one", ready=True),
        bootstrapped(closed, "web-3", dataplane() | {"name": "web-3"}),
        bootstrapped(closed, "web-1", dataplane(), owner="two"),
    ]

    assert answers == [405, 405, 405]
    assert bootstrapped(closed, "web-2", None, owner="two") == 200
    assert (labels(api), api.get(f"{WEB[:-1]}2").json()) == before


def test_what_is_set_to_be_read_only_answers_who_has_nothing_to_write(start: Unit, api: Api) -> None:
    register(api, "one")
    says(api, "one", ready=True)
    closed = start(read_only=True, store=api.store)

    assert says(closed, "one", ready=True) == 200
    assert bootstrapped(closed, "web-1", dataplane(), owner="one") == 200


def bootstrapped(api: Api, name: str, brought: Any, owner: str = "one") -> int:
    resource = "" if brought is None else json.dumps(brought)
    asked = {"mesh": "default", "name": name, "owner": owner, "dataplaneResource": resource}
    return api.post("/bootstrap", json=asked).status_code


@pytest.mark.parametrize("owner", ["x" * 64, "a b", "-"])
def test_no_id_of_a_run_makes_a_dataplane_invalid(api: Api, owner: str) -> None:
    api.put(WEB, dataplane()).raise_for_status()
    asked = {"mesh": "default", "name": "web-1", "owner": owner}

    assert api.put(WEB, dataplane(), koguma_owner=owner).status_code == 400
    assert says(api, owner, ready=False) == 400
    assert api.post("/bootstrap", json=asked).status_code == 400
    assert labels(api) == {}


@pytest.mark.parametrize(("body", "status"), [(b'{"a":' * 700, 400), (b'{"a":' * 2000, 413)])
def test_a_word_of_a_proxy_is_short_and_flat(api: Api, body: bytes, status: int) -> None:
    api.put(WEB, dataplane()).raise_for_status()

    answer = api.post(f"{WEB}/_readiness", content=body, headers={"content-type": "application/json"})

    assert answer.status_code == status

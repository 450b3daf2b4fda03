"""The past over HTTP: who changed what, how resources were, what is different, and everything in one answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cp.access.rights_file import rights_of
from cp.api.authentication import AccessControl
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.initial_policies import initial_policies
from cp.resources.world import World
from cp.store.at_rest import SecretsPolicy
from cp.store.encryption import DocumentCodec
from cp.store.memory import MemoryStore
from cp.store.port import Change, Put, Store
from cp.store.secrets_keys import SecretsKey, SecretsKeys
from cp.store.sqlite import SqliteStore
from tests.access import forge
from tests.api.conftest import ADMINS, KINDS, Api, FixedState, Unit
from tests.api.samples import dataplane, timeout
from tests.api.test_door import OF_MEMBER, OF_TEAM, Entrance, documents
from tests.api.test_secrets import INLINE, KEY, SECRET

SLOW = "/meshes/default/meshtimeouts/slow"


def newest(api: Api) -> int:
    return int(api.get("/_history?size=1").json()["newest"])


def edited(api: Api) -> tuple[int, int]:
    """The revisions before and after a timeout was edited."""
    api.put(SLOW, timeout(request_timeout="10s"))
    before = newest(api)
    api.put(SLOW, timeout(request_timeout="20s"))
    return before, newest(api)


def changes(api: Api, before: int, **parameters: str) -> list[tuple[str, str, str]]:
    query = "&".join(f"{name}={value}" for name, value in parameters.items())
    found = api.get(f"/_diff?from={before}&{query}").json()["changes"]
    return [(each["type"], each["name"], each["change"]) for each in found]


# --- history ------------------------------------------------------------------------------------------------


def test_the_history_of_a_resource_says_who_made_what_of_it(api: Api) -> None:
    edited(api)
    api.delete(SLOW)

    items = api.get("/_history?type=MeshTimeout&mesh=default&name=slow").json()["items"]
    assert [(each["change"], each["author"], each["origin"]) for each in items] == [
        ("Deleted", "mesh-system:admin", "DELETE from 127.0.0.1"),
        ("Updated", "mesh-system:admin", "PUT from 127.0.0.1"),
        ("Created", "mesh-system:admin", "PUT from 127.0.0.1"),
    ]
    assert api.get("/_history?type=MeshTimeout&mesh=default&name=slow").json()["next"] is None
    assert api.get("/_history?type=MeshTimeout&mesh=default&name=slow&size=2").json()["next"] is not None


def test_the_history_comes_page_by_page(api: Api) -> None:
    first, last = edited(api)

    page = api.get("/_history?size=1").json()
    assert ([each["revision"] for each in page["items"]], page["next"]) == ([last], last)
    page = api.get(f"/_history?size=1&before={last}").json()
    assert [each["revision"] for each in page["items"]] == [first]
    pages, before = 0, str(last + 1)
    while before != "None":
        page, pages = api.get(f"/_history?size=1&before={before}").json(), pages + 1
        before = str(page["next"])
    assert page["items"][-1]["revision"] == 1


class Counted:
    """A store that notes how many changes of it are asked for at once."""

    def __init__(self, store: Store) -> None:
        self._store, self.most = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def history(self, key: Key | None = None, limit: int = 100, before: int | None = None) -> Sequence[Change]:
        self.most = max(self.most, limit)
        return await self._store.history(key, limit, before)


def test_few_documents_are_in_memory_for_a_long_history(start: Unit) -> None:
    """They are not told, and each may have megabytes."""
    counted = Counted(MemoryStore())
    api = start(store=counted).with_mesh()
    for name in ("a", "b", "c"):
        documents = [Document(Key("MeshTimeout", "default", f"{name}{number}"), {}) for number in range(15)]
        api.run(counted.write(*map(Put, documents)))
    for number in range(30):
        api.put(SLOW, timeout(request_timeout=f"{number + 1}s")).raise_for_status()

    page = api.get("/_history?size=1000").json()
    assert ([each["revision"] for each in page["items"]], page["next"]) == (
        [*range(34, 4, -1), *[4] * 15, *[3] * 15, *[2] * 15, 1],
        None,
    )
    assert counted.most < 20
    for size, told in ((31, 30), (45, 45), (59, 45), (60, 60)):
        assert len(api.get(f"/_history?size={size}").json()["items"]) == told
    assert len(api.get("/_history?size=7&before=5").json()["items"]) == 15, "a write is told as a whole"


def registered(api: Api, *names: str) -> None:
    """Proxies come, and go again; a person changes a timeout after each."""
    for number, name in enumerate(names):
        path, run = f"/meshes/default/dataplanes/{name}", f"run-{number}"
        api.put(path, dataplane(name=name), koguma_owner=run).raise_for_status()
        api.post(f"{path}/_readiness", json={"owner": run, "ready": True}).raise_for_status()
        api.delete(path, headers={"koguma-owner": run}).raise_for_status()
        api.put(SLOW, timeout(request_timeout=f"{number + 1}s"))


def test_registrations_are_left_out_where_they_are_not_wanted(api: Api) -> None:
    before = newest(api)
    registered(api, "a", "b", "c")
    api.put("/meshes/default/dataplanes/mine", dataplane(name="mine"))
    api.put(SLOW, timeout(request_timeout="9s"), koguma_owner="nobody")
    count = newest(api) - before

    every = api.get(f"/_history?size={count}").json()
    page = api.get(f"/_history?size={count}&registrations=false").json()
    deeds = [each for each in page["items"] if each["revision"] > before]

    assert [each["origin"].partition(" ")[0] for each in every["items"]].count("registration") == 6
    assert (len(deeds), every["leftOut"], page["leftOut"]) == (5, 0, 9)
    assert {(each["type"], each["name"]) for each in deeds} == {("MeshTimeout", "slow"), ("Dataplane", "mine")}
    assert deeds == [each for each in every["items"] if each["origin"].startswith("PUT")]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_pages_without_registrations_have_all_else_once(api: Api, size: int) -> None:
    registered(api, "a", "b", "c", "d")
    items, before = list[Any](), newest(api) + 1
    while before is not None:
        page = api.get(f"/_history?size={size}&before={before}&registrations=false").json()
        assert len(page["items"]) <= size
        items, before = [*items, *page["items"]], page["next"]

    every = api.get("/_history?size=1000").json()["items"]
    ways = {"registration", "readiness"}
    assert items == [each for each in every if each["origin"].partition(" ")[0] not in ways]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/_history?type=MeshTimeout", "name: is missing; a resource has a type and a name"),
        ("/_history?before=x", "before: `x` is no revision; koguma history lists them"),
        ("/_history?registrations=no", "registrations: `no` is neither `true` nor `false`"),
        ("/_history?size=0", "size: `0` is no number from 1 to 1000"),
        ("/_diff", "from: is missing; name the revision to compare with"),
        ("/_diff?from=99", "from: there is no revision 99 yet; the newest is 1"),
        ("/_diff?from=0&to=99", "to: there is no revision 99 yet; the newest is 1"),
        (f"{SLOW}?at=99", "at: there is no revision 99 yet; the newest is 1"),
        ("/meshes?at=-1", "at: `-1` is no revision; koguma history lists them"),
    ],
)
def test_a_mistake_is_told_with_what_would_be_right(api: Api, path: str, sentence: str) -> None:
    answer = api.get(path)

    assert (answer.status_code, answer.json()["detail"]) == (400, sentence)


# --- as it was ----------------------------------------------------------------------------------------------


def test_a_resource_is_shown_as_it_was(api: Api) -> None:
    before, _ = edited(api)
    api.delete(SLOW)

    answer = api.get(f"{SLOW}?at={before}")
    assert answer.json()["spec"] == timeout(request_timeout="10s")["spec"]
    assert "etag" not in answer.headers
    assert "modificationTime" not in answer.json()
    assert api.get(SLOW).status_code == 404
    assert api.get(f"{SLOW}?at={before - 1}").status_code == 404


def test_a_list_is_shown_as_it_was(api: Api) -> None:
    before, _ = edited(api)
    api.put("/meshes/default/meshtimeouts/other", timeout("other"))
    api.with_mesh("second")

    listed = api.get(f"/meshes/default/meshtimeouts?at={before}").json()["items"]
    assert [each["name"] for each in listed] == ["slow"]
    assert listed[0]["spec"] == timeout(request_timeout="10s")["spec"]
    assert api.get(f"/meshes/second/meshtimeouts?at={before}").status_code == 404


def test_a_secret_of_the_past_is_as_secret(api: Api) -> None:
    api.put("/meshes/default/secrets/key", SECRET)
    before = newest(api)
    api.delete("/meshes/default/secrets/key")

    assert KEY not in api.get(f"/meshes/default/secrets/key?at={before}").text
    assert INLINE not in api.get(f"/_diff?from={before}").text
    assert api.get(f"/meshes/default/secrets/key?at={before}&reveal=true").json()["data"] == INLINE


# --- what is different --------------------------------------------------------------------------------------


def test_a_difference_has_what_was_and_what_is(api: Api) -> None:
    before, after = edited(api)

    (change,) = api.get(f"/_diff?from={before}").json()["changes"]
    assert [change[side]["spec"] for side in ("before", "after")] == [
        timeout(request_timeout=seconds)["spec"] for seconds in ("10s", "20s")
    ]
    assert changes(api, before, to=str(after)) == [("MeshTimeout", "slow", "Updated")]
    assert changes(api, after, to=str(before)) == [("MeshTimeout", "slow", "Updated")]
    assert changes(api, before - 1, to=str(before)) == [("MeshTimeout", "slow", "Created")]
    assert changes(api, after, to=str(before - 1)) == [("MeshTimeout", "slow", "Deleted")]


def test_what_was_changed_and_changed_back_is_no_difference(api: Api) -> None:
    before, _ = edited(api)
    api.put(SLOW, timeout(request_timeout="10s"))

    assert changes(api, before) == []


def test_a_change_of_a_secret_is_told_without_it(api: Api) -> None:
    api.put("/meshes/default/secrets/key", SECRET)
    before = newest(api)
    api.put("/meshes/default/secrets/key", {**SECRET, "data": "b3RoZXI="})

    (change,) = api.get(f"/_diff?from={before}").json()["changes"]
    assert change["inSecretsAlone"]
    assert change["before"] == change["after"]


def test_what_proxies_would_get_is_compared(api: Api) -> None:
    service = {"type": "MeshService", "mesh": "default", "name": "web", "spec": SERVICE}
    outbound = {"port": 18201, "backendRef": {"kind": "MeshService", "name": "web", "port": 80}}
    for name in ("web-1", "web-2"):
        api.put(f"/meshes/default/dataplanes/{name}", dataplane(name, outbound=[outbound])).raise_for_status()
    api.put("/meshes/default/meshservices/web", service).raise_for_status()
    before, _ = edited(api)
    api.put("/meshes/default/dataplanes/web-3", dataplane("web-3"))

    (mesh,) = api.get(f"/_diff/proxies?from={before}").json()["meshes"]
    assert (mesh["mesh"], mesh["proxies"], mesh["added"], mesh["removed"]) == ("default", 2, ["web-3"], [])
    told = {
        field["path"]: (field["before"], field["after"])
        for difference in mesh["differences"]
        if difference["type"] == "routes"
        for field in difference["fields"]
    }
    assert told == {"virtualHosts[0].routes[0].route.timeout": ("10s", "20s")}
    assert all(
        difference["proxies"] == ["web-1", "web-2"]
        for difference in mesh["differences"]
        if difference["type"] == "routes"
    )
    assert api.get(f"/_diff/proxies?from={before}&mesh=nowhere").status_code == 404


SERVICE: dict[str, Any] = {
    "selector": {"dataplaneTags": {"kuma.io/service": "web"}},
    "ports": [{"port": 80, "targetPort": 8080, "appProtocol": "http"}],
}


# --- everything ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_export_is_applied_to_an_empty_store_and_is_the_same(start: Unit, is_whole: bool) -> None:
    """Also where a default policy was deleted, which a new Mesh would get."""
    api = start(companions=initial_policies).with_mesh()
    edited(api)
    api.put("/meshes/default/dataplanes/web-1", dataplane())
    api.put("/meshes/default/secrets/key", SECRET)
    if not is_whole:
        api.delete("/meshes/default/meshretries/mesh-retry-all-default").raise_for_status()
    exported = api.get("/_export?reveal=true").json()

    other = start(companions=initial_policies)
    texts = [{"text": yaml.safe_dump(resource)} for resource in exported["resources"]]
    other.post("/_apply", json={"resources": texts}).raise_for_status()
    again = other.get("/_export?reveal=true").json()
    assert again["resources"] == exported["resources"]
    names = {each["name"] for each in again["resources"]}
    assert names >= {"default", "slow", "web-1", "key", "mesh-timeout-all-default"}
    assert ("mesh-retry-all-default" in names) is is_whole
    assert ("skipCreatingInitialPolicies" in again["resources"][0]) is not is_whole


def test_an_export_leaves_secrets_out_and_says_so(api: Api) -> None:
    api.put("/meshes/default/secrets/key", SECRET)

    exported = api.get("/_export").json()
    assert exported["hidden"] == [{"type": "Secret", "mesh": "default", "name": "key"}]
    assert not [each for each in exported["resources"] if each["type"] == "Secret"]


def test_an_export_is_of_one_mesh_or_of_an_earlier_revision(api: Api) -> None:
    before, _ = edited(api)
    api.with_mesh("second")

    assert {each.get("mesh", each["name"]) for each in api.get("/_export?mesh=second").json()["resources"]} == {
        "second"
    }
    then = api.get(f"/_export?mesh=default&at={before}").json()
    (slow,) = (each for each in then["resources"] if each["name"] == "slow")
    assert (then["revision"], slow["spec"]) == (before, timeout(request_timeout="10s")["spec"])
    assert api.get("/_export?mesh=third").status_code == 404


# --- what no key decrypts -----------------------------------------------------------------------------------


@pytest.fixture
def rotated(start: Unit, tmp_path: Path) -> Iterator[Api]:
    """A Secret at revisions 2 to 4, of which the key of the first two is gone."""

    async def written() -> Store:
        for keys, values in (((1,), ("b2xk", "b2xkZXI=")), ((2, 1), ("bmV3",))):
            store = await SqliteStore.open(tmp_path / "koguma.db", secrets=secrets_under(*keys))
            if keys == (1,):
                await store.write(Put(Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})))
            for value in values:
                await store.write(Put(Document(Key("Secret", "default", "key"), {**SECRET, "data": value})))
            await store.close()
        return await SqliteStore.open(tmp_path / "koguma.db", secrets=secrets_under(2))

    api = start()
    store = api.run(written())
    yield start(store=store)
    api.run(store.close())


def secrets_under(*keys: int) -> SecretsPolicy:
    of_bytes = SecretsKeys(tuple(SecretsKey.of(bytes([key]) * 32) for key in keys))
    is_secret = DocumentCodec(of_bytes, lambda key, _: key.type == "Secret", frozenset({"Secret"}))
    return SecretsPolicy(is_secret)


OF_THE_KEY = [{"type": "Secret", "mesh": "default", "name": "key"}]


def test_what_cannot_be_decrypted_is_told_and_not_taken_for_absent(rotated: Api) -> None:
    assert rotated.get("/_export?reveal=true&at=2").json()["unreadable"] == OF_THE_KEY
    assert rotated.get("/_export?reveal=true").json()["unreadable"] == []
    assert rotated.get("/meshes/default/secrets?at=2").json()["unreadable"] == OF_THE_KEY
    assert "unreadable" not in rotated.get("/meshes/default/meshtimeouts?at=2").json()
    answer = rotated.get("/meshes/default/secrets/key?at=2")
    assert (answer.status_code, answer.json()["detail"].partition(";")[0]) == (
        400,
        "at: Secret default/key cannot be decrypted as it was at revision 2",
    )
    assert rotated.get("/_diff/proxies?from=2").json()["unreadable"] == OF_THE_KEY
    assert "unreadable" not in rotated.get("/_diff/proxies?from=4").json()
    plan = rotated.get("/_diff/plan?from=2").json()["plan"]
    assert (plan["unreadable"], [each for each in plan["documents"] if each["type"] == "Secret"]) == (OF_THE_KEY, [])


def test_what_was_not_there_yet_is_absent_whatever_became_of_it(rotated: Api) -> None:
    assert rotated.get("/_export?reveal=true&at=1").json()["unreadable"] == []
    assert rotated.get("/meshes/default/secrets/key?at=1").status_code == 404
    assert changes(rotated, 1) == [("Secret", "key", "Created")]
    assert changes(rotated, 2) == [("Secret", "key", "Unreadable")]
    rolled_back = rotated.post("/_rollback", json={"revision": 1}).json()
    assert [(each["name"], each["outcome"]) for each in rolled_back["resources"]] == [("key", "Deleted")]


# --- nobody is told of what he may not read -----------------------------------------------------------------


@pytest.fixture
def of_team(start: Unit) -> Api:
    """An API over two meshes, of which a team may read one, but for its Secrets."""
    api = Entrance(start).api(OF_TEAM)
    for mesh in ("default", "other"):
        api.put(f"/meshes/{mesh}/meshtimeouts/slow", timeout(mesh=mesh)).raise_for_status()
        api.put(f"/meshes/{mesh}/dataplanes/web-1", dataplane(mesh=mesh)).raise_for_status()
    api.put("/meshes/default/secrets/key", SECRET).raise_for_status()
    return api


def told_to_team(api: Api, path: str) -> Any:
    return api.get(path, headers={"authorization": f"Bearer {OF_MEMBER}"}, peer="192.0.2.1").raise_for_status().json()


def meshes_and_types(resources: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(each.get("mesh", each["name"]), each["type"]) for each in resources}


READABLE = {("default", "Mesh"), ("default", "MeshTimeout"), ("default", "Dataplane")}


@pytest.mark.parametrize(
    ("path", "field"), [("/_history", "items"), ("/_diff?from=0", "changes"), ("/_export", "resources")]
)
def test_whoever_may_read_one_mesh_is_told_of_that_alone(of_team: Api, path: str, field: str) -> None:
    answer = told_to_team(of_team, path)

    assert meshes_and_types(answer[field]) == READABLE
    assert "other" not in str(answer)
    assert "'key'" not in str(answer)


@pytest.mark.parametrize(
    ("kinds", "skipped"),
    [
        ("Mesh, Dataplane", None),
        ("Mesh, MeshTimeout", ["MeshTimeout"]),
        ("Mesh, MeshRetry, MeshTimeout", ["MeshTimeout"]),
    ],
)
def test_a_default_policy_that_one_may_not_read_is_not_told_to_be_deleted(
    start: Unit, kinds: str, skipped: list[str] | None
) -> None:
    """Applied elsewhere the Mesh would be without it."""
    entrance = Entrance(start).api(OF_TEAM)
    mesh = Document(Key("Mesh", "", "shop"), {"type": "Mesh", "name": "shop"})
    policies = [each for each in initial_policies(mesh) if each.key.name != "mesh-gateways-timeout-all-shop"]
    entrance.run(entrance.store.write(*map(Put, [mesh, *policies])))
    rights = replaced(f"rights: [{{groups: [team], may: [read], kinds: [{kinds}]}}]")
    api = start(store=entrance.store, access=rights, state=FixedState(World.of(documents(), KINDS)))

    answer = told_to_team(api, "/_export?mesh=shop")
    assert answer["resources"][0].get("skipCreatingInitialPolicies") == skipped


def test_an_export_of_a_mesh_that_one_may_not_read_finds_none(of_team: Api) -> None:
    answer = of_team.get("/_export?mesh=other", headers={"authorization": f"Bearer {OF_MEMBER}"}, peer="192.0.2.1")

    assert (answer.status_code, "there is `default`" in answer.json()["detail"]) == (404, True)


def test_what_proxies_get_is_compared_where_one_may_look(of_team: Api, start: Unit) -> None:
    answer = told_to_team(of_team, "/_diff/proxies?from=0")
    assert [mesh["mesh"] for mesh in answer["meshes"]] == ["default"]
    assert "meshesNotTold" not in answer

    everything = "rights: [{groups: [team], may: [read]}]"
    one = "{groups: [team], may: [read], meshes: [default]}"
    less = [f"rights: [{{groups: [team], may: [read], kinds: [Mesh, {kind}]}}, {one}]" for kind in ONE_OF_BOTH]
    closed = (["default"], ["other"])
    for rights, told in ((everything, (["default", "other"], None)), (less[0], closed), (less[1], closed)):
        api = start(store=of_team.store, access=replaced(rights), state=FixedState(World.of(documents(), KINDS)))
        answer = told_to_team(api, "/_diff/proxies?from=0")
        assert ([mesh["mesh"] for mesh in answer["meshes"]], answer.get("meshesNotTold")) == told
        plan = told_to_team(api, "/_diff/plan?from=0")["plan"]
        assert (sorted(mesh["mesh"] for mesh in plan["meshes"]), plan.get("meshesNotTold")) == told
        resources = " ".join(finding["resource"] for finding in plan["findings"]["appearing"])
        assert (" default/" in resources, " other/" in resources) == (True, rights != less[0])
        asked = api.get("/_diff/proxies?from=0&mesh=other", headers={"authorization": f"Bearer {OF_MEMBER}"})
        assert asked.status_code == (403 if told == closed else 200)


ONE_OF_BOTH = ("Dataplane", "Inspection")
"""What proxies are served is told to those who may read both."""


def replaced(text: str) -> AccessControl:
    rights = rights_of(text, "access.yaml", KINDS, ADMINS)
    return AccessControl(lambda: rights, clock=lambda: forge.NOW)
